"""The SDK against a controller of the test's own, over real mutual TLS."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController, Pki

from holdfast._security.enrolment import pinning
from holdfast.client import Client
from holdfast.errors import (
    ConfigError,
    CursorExpired,
    HoldfastError,
    InvalidSpec,
    NotFound,
    Unauthenticated,
    Unavailable,
    Violation,
    WrongState,
)
from holdfast.settings import ClientSettings
from holdfast.v1 import host_pb2, job_pb2

pytestmark = pytest.mark.anyio


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 (what a server holds has no event to wait for)
            await anyio.sleep(0.01)


# Calls


async def test_a_created_job_is_found_again(controller: FakeController) -> None:
    async with Client(controller.settings()) as client:
        created = await client.create_job(job_pb2.CustomJob(display_name="first"))
        assert (await client.get_job(created.id)).display_name == "first"


async def test_the_same_request_id_creates_one_job(controller: FakeController) -> None:
    async with Client(controller.settings()) as client:
        job = job_pb2.CustomJob(display_name="once")
        first = await client.create_job(job, request_id="r1")
        assert (await client.create_job(job, request_id="r1")).id == first.id
        assert (await client.create_job(job)).id != first.id


async def test_a_passing_outage_is_not_seen_by_the_caller(controller: FakeController) -> None:
    controller.failures = [Unavailable("starting"), Unavailable("starting")]
    async with Client(controller.settings()) as client:
        created = await client.create_job(job_pb2.CustomJob())
    assert list(controller.jobs) == [created.id]
    requests = {request.request_id for name, request in controller.calls if name == "CreateJob"}
    assert len(requests) == 1
    assert len(controller.calls) == 3


async def test_a_restart_that_is_sent_twice_carries_the_id_by_which_it_is_acted_on_once(
    controller: FakeController,
) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    controller.failures = [Unavailable("starting")]
    async with Client(controller.settings()) as client:
        await client.restart_job(job.id)
    assert [name for name, _ in controller.calls] == ["RestartJob"] * 2
    assert len({request.request_id for _, request in controller.calls} - {""}) == 1


@pytest.mark.parametrize(
    "error",
    [
        NotFound("There is no job x.", fix="See `holdfast ps`."),
        WrongState("The job has ended.", fix="Submit it again."),
        InvalidSpec([Violation("jobSpec.workerPoolSpecs[0].replicaCount", "must be at least 1", "set it to 1")]),
    ],
)
async def test_refusals_arrive_as_they_were_raised(controller: FakeController, error: HoldfastError) -> None:
    controller.failures = [error]
    async with Client(controller.settings()) as client:
        with pytest.raises(type(error)) as refused:
            await client.create_job(job_pb2.CustomJob())
    assert refused.value.message == error.message
    assert refused.value.fix == error.fix


async def test_lists_come_in_pages(controller: FakeController) -> None:
    for _ in range(5):
        controller.add_job(job_pb2.CustomJob())
    async with Client(controller.settings()) as client:
        assert [job.id async for job in client.list_jobs(page_size=2)] == ["j1", "j2", "j3", "j4", "j5"]
        assert [job.id for job in await client.newest_jobs(2)] == ["j4", "j5"]
    assert [name for name, _ in controller.calls] == ["ListJobs"] * 4


async def test_hosts_can_be_cordoned(controller: FakeController) -> None:
    controller.hosts["host-0"] = host_pb2.Host(name="host-0")
    async with Client(controller.settings()) as client:
        assert (await client.cordon("host-0", "fan")).cordon_reason == "fan"
        assert [host.cordoned for host in await client.list_hosts()] == [True]
        assert not (await client.uncordon("host-0")).cordoned
        with pytest.raises(NotFound):
            await client.get_host("host-9")


async def test_an_abandoned_call_leaks_no_cancellation(controller: FakeController) -> None:
    controller.delay_s = 30.0
    async with Client(controller.settings()) as client:
        started = time.monotonic()
        with anyio.move_on_after(0.3) as scope:
            await client.get_job("j1")
        assert scope.cancelled_caught
        assert time.monotonic() - started < 25
        controller.delay_s = 0.0
        with pytest.raises(NotFound):
            await client.get_job("j1")


async def test_a_sibling_failure_ends_a_waiting_watch(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())

    async def fail() -> None:
        await until(lambda: controller.open_streams == 1)
        raise RuntimeError("sibling")

    async with Client(controller.settings()) as client:
        with pytest.raises(BaseExceptionGroup) as failed:  # noqa: PT012
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail)
                async for _ in client.watch_job(job.id):
                    pass
        assert [str(each) for each in failed.value.exceptions] == ["sibling"]
        await until(lambda: controller.open_streams == 0)


# The link


async def test_no_controller_is_said_within_seconds(controller: FakeController) -> None:
    settings = controller.settings()
    await controller.stop()
    started = time.monotonic()
    async with Client(settings) as client:
        with pytest.raises(Unavailable, match=r"No controller answers at 127\.0\.0\.1"):
            await client.get_job("j1")
    assert time.monotonic() - started < 20


async def test_a_port_that_swallows_everything_is_noticed(controller: FakeController) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ours = controller.settings()
        settings = ClientSettings(address, ours.ca, ours.cert, ours.key)
        started = time.monotonic()
        async with Client(settings) as client:
            with pytest.raises(
                Unavailable, match=f"What listens at {address} takes connections, but does not answer"
            ):
                await client.get_job("j1")
        assert time.monotonic() - started < 20


async def test_a_port_that_takes_no_connections_any_more_is_no_fault_of_certificates(
    controller: FakeController,
) -> None:
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            link = waiting.enter_context(socket.socket())
            link.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                link.connect(full.getsockname())
        ours = controller.settings()
        address = f"127.0.0.1:{full.getsockname()[1]}"
        async with Client(ClientSettings(address, ours.ca, ours.cert, ours.key)) as client:
            with pytest.raises(Unavailable, match=f"No controller answers at {address}"):
                await client.get_job("j1")


async def test_what_speaks_no_tls_is_no_controller(controller: FakeController) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        ours = controller.settings()
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(ClientSettings(address, ours.ca, ours.cert, ours.key)) as client:
            with pytest.raises(Unavailable, match=f"What listens at {address} does not speak TLS"):
                await client.get_job("j1")


async def test_who_joins_is_told_of_a_controller_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "CALL_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match="takes connections, but did not answer within 1 s") as failed:
            await anyio.to_thread.run_sync(pinning.fetch_authority, address, f"sha256:{'0' * 64}", 0.0)
    assert "overloaded or stopped" in failed.value.fix


async def test_a_stranger_is_told_that_the_handshake_failed(controller: FakeController, tmp_path: Path) -> None:
    other = Pki.make(tmp_path / "other").files("user")
    ours = controller.settings()
    for settings in (
        ClientSettings(ours.controller, other.ca, other.cert, other.key),
        ClientSettings(ours.controller, ours.ca, other.cert, other.key),
    ):
        async with Client(settings) as client:
            with pytest.raises((Unauthenticated, Unavailable)):
                await client.get_job("j1")
    assert controller.calls == []


async def test_a_missing_certificate_is_named(controller: FakeController, tmp_path: Path) -> None:
    ours = controller.settings()
    with pytest.raises(ConfigError, match=r"gone\.pem"):
        async with Client(ClientSettings(ours.controller, tmp_path / "gone.pem", ours.cert, ours.key)):
            pass


# Watching


async def test_a_watch_delivers_the_history_and_ends_with_the_job(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob(display_name="a"))
    controller.event(job.id, "GangLaunched", "running", "RUNNING")
    async with Client(controller.settings()) as client:
        types = []
        async for event in client.watch_job(job.id):
            types.append(event.type)
            if event.type == "GangLaunched":
                controller.event(job.id, "JobEnded", "succeeded", "SUCCEEDED")
    assert types == ["JobSubmitted", "GangLaunched", "JobEnded"]


async def test_a_watch_outlives_its_controller_and_misses_nothing(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    told: list[bool] = []
    types: list[str] = []

    async def outage() -> None:
        await until(lambda: types == ["JobSubmitted"])
        await controller.stop()
        controller.event(job.id, "GangLaunched", "running", "RUNNING")
        await until(lambda: told == [False])
        await controller.start()
        await until(lambda: told == [False, True])
        controller.event(job.id, "JobEnded", "succeeded", "SUCCEEDED")

    async with Client(controller.settings()) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(outage)
        with anyio.fail_after(30):
            async for event in client.watch_job(job.id, on_link=lambda error: told.append(error is None)):
                types.append(event.type)
    assert types == ["JobSubmitted", "GangLaunched", "JobEnded"]
    assert told == [False, True]


async def test_a_watch_says_that_the_controller_is_back_though_nothing_happens(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    told: list[bool] = []

    async def outage() -> None:
        await until(lambda: controller.open_streams == 1)
        await controller.stop()
        await until(lambda: told == [False])
        await controller.start()
        await until(lambda: told == [False, True])
        tasks.cancel_scope.cancel()

    async with Client(controller.settings()) as client:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outage)
                async for _ in client.watch_job(job.id, job.cursor, on_link=lambda e: told.append(e is None)):
                    pass
    assert told == [False, True]


async def test_a_watch_of_an_ended_job_from_its_end_ends(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    cursor = controller.event(job.id, "JobEnded", "failed", "FAILED")
    async with Client(controller.settings()) as client:
        with anyio.fail_after(20):
            assert [event async for event in client.watch_job(job.id, cursor)] == []


async def test_history_that_is_gone_is_said(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    controller.oldest_cursor = 100
    async with Client(controller.settings()) as client:
        with pytest.raises(CursorExpired, match="gone"):
            async for _ in client.watch_job(job.id, 1):
                pass


async def test_an_unknown_job_is_not_waited_for(controller: FakeController) -> None:
    async with Client(controller.settings()) as client:
        with anyio.fail_after(20):
            with pytest.raises(NotFound):
                async for _ in client.watch_job("nope"):
                    pass
            with pytest.raises(NotFound):
                async for _ in client.stream_logs("nope", follow=True):
                    pass


async def test_leaving_a_stream_early_closes_it(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    async with Client(controller.settings()) as client:
        async with contextlib.aclosing(client.watch_job(job.id)) as events:
            async for _ in events:
                break
        await until(lambda: controller.open_streams == 0)
        # Without aclosing too: dropping it is enough.
        async for _ in client.watch_job(job.id):
            break
        gc.collect()
        await until(lambda: controller.open_streams == 0)


async def test_hosts_are_watched_through_an_outage(controller: FakeController) -> None:
    controller.hosts["host-0"] = host_pb2.Host(name="host-0")
    seen: list[bool] = []
    async with Client(controller.settings()) as client:
        with anyio.fail_after(30):
            async with contextlib.aclosing(client.watch_hosts()) as hosts:
                async for host in hosts:
                    seen.append(host.cordoned)
                    if len(seen) == 1:
                        await controller.stop()
                        controller.hosts["host-0"].cordoned = True
                        await controller.start()
                    else:
                        break
    assert seen == [False, True]


# Logs


async def test_logs_are_filtered_and_end(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    controller.write(job.id, b"zero\n")
    controller.write(job.id, b"one\n", rank=1)
    async with Client(controller.settings()) as client:
        assert [chunk.data async for chunk in client.stream_logs(job.id, ranks=[1])] == [b"one\n"]


async def test_followed_logs_survive_an_outage_without_gap_or_repetition(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob())
    controller.event(job.id, "GangLaunched", "running", "RUNNING")
    got = b""
    expected = b"".join(b"line %d\n" % n for n in range(60))
    controller.write(job.id, expected[:101])

    async def outage() -> None:
        await until(lambda: len(got) == 101)
        await controller.stop()
        # The log is the same, but is read again in other pieces.
        controller.chunks[job.id].clear()
        for start in range(0, 300, 50):
            controller.write(job.id, expected[start : start + 50])
        await controller.start()
        await until(lambda: len(got) == 300)
        controller.write(job.id, expected[300:])
        controller.event(job.id, "JobEnded", "succeeded", "SUCCEEDED")

    async with Client(controller.settings()) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(outage)
        with anyio.fail_after(30):
            async for chunk in client.stream_logs(job.id, follow=True, tail_lines=20):
                got += chunk.data
    assert got == expected
