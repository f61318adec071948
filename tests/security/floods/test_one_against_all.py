"""A host that was taken over, and a user who asks for everything: neither harms the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import grpc
import pytest
from tests.integration.controller.calls.test_log_streams import OUT, Files, jobs, read, running, transferring
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.integration.controller.conftest import certificates, config, controller
from tests.support.stubs import agent_stub, host_stub, job_stub

from holdfast._base.identity import Credential, Identity, Kind
from holdfast.errors import InvalidInput, TooMany
from holdfast.v1 import agent_pb2, host_pb2, job_pb2
from holdfast_controller.shell.calls import caller_limits, field_bounds
from holdfast_controller.shell.calls.caller_limits import ConcurrencyLimits
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.main import grpc_server
from holdfast_controller.shell.services import host_pictures, host_service
from holdfast_controller.shell.services.streams import transfers
from holdfast_controller.shell.services.streams.reading import WINDOW_BYTES, End, Reading

__all__ = ["certificates", "config", "controller", "jobs"]
pytestmark = pytest.mark.anyio


# A user


async def test_a_user_whose_streams_are_all_taken_stops_at_the_bound_and_nobody_else_notices(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(caller_limits.STREAMS_MOST, Kind.USER, 3)
    ann, bob = (job_stub(controller.channel(f"user/{who}")) for who in ("ann", "bob"))
    async with controller.agent() as agent:
        name = (await ann.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
        watching = [ann.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=180) for _ in range(3)]
        for stream in watching:
            await stream.read()
        code, error = await refusal(ann.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S).read())
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(error, TooMany)
        assert str(error) == "ann has 3 streams open, which is the most for one user. Close some first."
        # Her own calls, other users and the hosts go on.
        await ann.CancelJob(job_pb2.CancelJobRequest(id=name), timeout=WITHIN_S)
        assert await bob.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S).read() is not grpc.aio.EOF
        await agent.call.write(agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat()))
        await agent.until(lambda a: any(m.WhichOneof("message") == "heartbeat_ack" for m in a.said))
        watching[0].cancel()
        async with asyncio.timeout(WITHIN_S):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await ann.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S).read()
                    break
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("streams", [True, False])
async def test_each_kind_of_caller_has_a_bound_of_its_own_for_calls_and_for_streams(streams: bool) -> None:
    held, most = ConcurrencyLimits(), caller_limits.STREAMS_MOST if streams else caller_limits.CALLS_MOST
    with contextlib.ExitStack() as places:
        for kind in Kind:
            caller = Credential(Identity("test", kind, "x"), 0.0, 0.0)
            for _ in range(most[kind]):
                places.enter_context(held.permit(caller, streams=streams))
            with pytest.raises(TooMany, match=f"x has {most[kind]} "), held.permit(caller, streams=streams):
                pass
            with held.permit(caller, streams=not streams):
                pass
    with held.permit(caller, streams=streams):
        pass
    assert not held._calls and not held._streams


async def test_a_connection_carries_so_many_calls_and_a_message_so_many_bytes() -> None:
    options = dict(grpc_server.OPTIONS)
    assert options["grpc.max_receive_message_length"] == 4 << 20
    assert options["grpc.max_concurrent_streams"] == grpc_server.MAX_STREAMS
    assert options["grpc.server_handshake_timeout_ms"] <= 30_000


# A host


def huge() -> list[dict[str, Any]]:
    gpus = [host_pb2.Gpu(uuid=f"g{number}") for number in range(field_bounds.TABLE["Inventory.gpus"].items + 1)]
    return [
        {"labels": {f"k{number}": "v" for number in range(field_bounds.TABLE["Hello.labels"].items + 1)}},
        {"labels": {"k" * 64: "v"}},
        {"labels": {"k": "v" * 64}},
        {"boot_id": "b" * 256},
        {"address": "a" * 256},
        {"inventory": host_pb2.Inventory(gpus=gpus)},
        {"inventory": host_pb2.Inventory(gpus=[host_pb2.Gpu(uuid="u" * 256)])},
    ]


async def test_a_host_that_says_too_much_of_itself_is_not_taken_in(controller: Controller) -> None:
    stub = agent_stub(controller.channel("host/host-0"))
    for said in huge():
        hello = agent_pb2.Hello(**{"agent_version": "1", "boot_id": "b"} | said)
        code, error = await refusal(
            stub.Session(iter([agent_pb2.SessionRequest(hello=hello)]), timeout=WITHIN_S).read()
        )
        assert code is grpc.StatusCode.INVALID_ARGUMENT, said
        assert isinstance(error, InvalidInput) and "What the host says of itself has 1 problem" in str(error)
    hosts = host_pb2_grpc_stub(controller)
    assert list((await hosts.ListHosts(host_pb2.ListHostsRequest(), timeout=WITHIN_S)).hosts) == []


def host_pb2_grpc_stub(controller: Controller) -> Any:

    return host_stub(controller.channel("user/ann"))


async def test_what_a_host_tells_of_a_job_is_cut_and_told_so_often(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (name, agent):
        for code in range(1, 13):
            await agent.exit(name, code, message="x" * 50_000)
        await agent.until(lambda a: len(a.acks()) == a.sequence)
        shown = (await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)).job
    exits = [ended for worker in shown.workers for ended in worker.exits]
    assert max(len(ended.message) for ended in exits) <= 2 * field_bounds.EXPLAINS.bytes
    assert shown.ByteSize() < 200_000


async def test_a_host_reads_no_other_hosts_order_and_answers_none(controller: Controller, jobs: Any) -> None:
    """Readings are numbered from 1, so a stranger can guess theirs."""
    async with running(controller, jobs) as (name, _):
        mine = Files(agent_stub(controller.channel("host/host-0")).Transfer(), {(0, OUT): b"own"})
        other = agent_stub(controller.channel("host/host-1")).Transfer()
        await other.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))
        serving = asyncio.get_running_loop().create_task(mine.serve())
        await transferring(jobs, name)
        for number in range(1, 60):
            forged = agent_pb2.TransferChunk(id=number, data=b"forged")
            await other.write(agent_pb2.TransferRequest(chunk=forged))
            await other.write(agent_pb2.TransferRequest(end=agent_pb2.TransferEnd(id=number)))
        chunks = await read(jobs, name)
        serving.cancel()
        other.cancel()
        assert b"".join(chunk.data for chunk in chunks if chunk.stream == OUT) == b"own"


async def test_a_host_that_sends_more_than_it_was_asked_for_is_not_listened_to() -> None:
    line, reading = transfers._Line(), Reading(1, "host-0")
    line.readings[1] = reading
    for size in (WINDOW_BYTES - 1, WINDOW_BYTES, 1, 1):
        transfers._take(line, agent_pb2.TransferChunk(id=1, data=b"x" * size))
    kept = [reading.items.get_nowait() for _ in range(reading.items.qsize())]
    assert [len(chunk.data) for chunk in kept[:-1] if isinstance(chunk, agent_pb2.TransferChunk)] == [
        WINDOW_BYTES - 1,
        WINDOW_BYTES,
    ]
    assert kept[-1] == End("host-0 sends more than it was asked for")
    assert line.readings == {}
    told = line.orders.get_nowait()
    assert told is not None and told.close.id == 1


async def test_a_host_that_sends_what_is_nothing_is_told_to_stop(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (name, _):
        call = agent_stub(controller.channel("host/host-0")).Transfer()
        await call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))

        async def waste() -> None:
            """Answers the first order by a chunk without bytes, which costs no credit."""
            order = await call.read()
            assert isinstance(order, agent_pb2.TransferResponse)
            if order.WhichOneof("message") == "take_series":
                order = await call.read()
                assert isinstance(order, agent_pb2.TransferResponse)
            await call.write(agent_pb2.TransferRequest(chunk=agent_pb2.TransferChunk(id=order.open.id)))
            while order.WhichOneof("message") != "close":
                order = await call.read()
                assert isinstance(order, agent_pb2.TransferResponse)

        wasting = asyncio.get_running_loop().create_task(waste())
        following = jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, follow=True), timeout=180)
        problem = ""
        async for chunk in following:
            problem = problem or chunk.problem
            if problem:
                break
        following.cancel()
        assert problem == "host-0 sends more than it was asked for"
        async with asyncio.timeout(WITHIN_S):
            await wasting
        call.cancel()


async def test_one_user_s_followers_leave_readings_of_a_host_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "READINGS_OF_ONE", 3)
    served = transfers.Transfers()
    served._lines["host-0"] = transfers._Line()

    def opened(reader: str) -> Reading | None:
        return served.open("host-0", agent_pb2.OpenLog(), reader)

    mine = [opened("ann") for _ in range(3)]
    assert all(mine)
    assert opened("ann") is None
    assert served.open_samples("host-0", agent_pb2.OpenSamples(), "ann") is None
    assert opened("bob") is not None
    assert mine[0] is not None
    served.close(mine[0])
    assert opened("ann") is not None


async def test_one_users_dumps_leave_those_of_jobs_that_hang_to_the_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfers, "MAX_EXAMINATIONS", 6)
    monkeypatch.setattr(transfers, "EXAMINATIONS_OF_ONE", 3)
    served = transfers.Transfers()
    line = served._lines["host-0"] = transfers._Line()

    def asked(reader: str = "") -> asyncio.Future[agent_pb2.EvidenceReport]:
        return served.examine("host-0", agent_pb2.TakeEvidence(), reader)

    mine = [asked("ann") for _ in range(5)]
    assert [each.done() for each in mine] == [False] * 3 + [True] * 2
    assert mine[-1].result().problem == "host-0 is busy with other dumps"
    assert not asked().done() and not asked("bob").done()
    transfers._answer(line.examinations, next(iter(line.examinations)), agent_pb2.EvidenceReport())
    await asyncio.sleep(0)
    assert not asked("ann").done()
    served._hang_up(line)
    await asyncio.sleep(0)
    assert not line.examined_for


async def test_hosts_are_drawn_once_for_all_who_watch_them(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = 0

    def count(*args: Any) -> host_pb2.Host:
        nonlocal drawn
        drawn += 1
        return host_to_proto(*args)

    async with controller.agent():
        watching: list[Any] = [
            host_stub(controller.channel("user/ann")).WatchHosts(host_pb2.WatchHostsRequest(), timeout=180)
            for _ in range(20)
        ]
        for stream in watching:
            await stream.read()
        monkeypatch.setattr(host_service, "host_to_proto", count)
        monkeypatch.setattr(host_pictures, "host_to_proto", count)
        hosts = host_stub(controller.channel("user/ann"))
        await hosts.Cordon(host_pb2.CordonRequest(name="host-0", reason="fan"), timeout=WITHIN_S)
        for stream in watching:
            assert (await stream.read()).host.cordoned
        # Once for them, and once for the answer.
        assert drawn <= 3
        for stream in watching:
            stream.cancel()


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 calls at once and 50 a second; ask for it before the controller."""
    monkeypatch.setattr(caller_limits, "CALLS_BURST", 20)
    monkeypatch.setattr(caller_limits, "CALLS_PER_S", 50)


async def test_a_user_who_calls_without_end_waits_and_others_do_not(
    few_calls: None, controller: Controller
) -> None:
    ann, bob = (job_stub(controller.channel(f"user/{who}")) for who in ("ann", "bob"))
    asked = job_pb2.ListJobsRequest()
    await bob.ListJobs(asked, timeout=WITHIN_S)
    began = time.monotonic()
    flood = asyncio.gather(*(ann.ListJobs(asked, timeout=WITHIN_S) for _ in range(100)))
    await asyncio.sleep(0.1)
    await bob.ListJobs(asked, timeout=WITHIN_S)
    assert not flood.done(), "another user was not made to wait"
    await flood
    assert time.monotonic() - began >= 1.5


async def test_streams_that_are_begun_without_end_wait_sooner_than_other_calls(
    few_calls: None, controller: Controller
) -> None:
    async with controller.agent():
        ann, bob = (host_stub(controller.channel(f"user/{who}")) for who in ("ann", "bob"))
        began = time.monotonic()
        streams: list[Any] = [ann.WatchHosts(host_pb2.WatchHostsRequest(), timeout=180) for _ in range(12)]
        shown = asyncio.gather(*(stream.read() for stream in streams))
        await bob.ListHosts(host_pb2.ListHostsRequest(), timeout=WITHIN_S)
        assert not shown.done(), "another user was not made to wait"
        await shown
        assert time.monotonic() - began >= 1.5
        for stream in streams:
            stream.cancel()


async def test_refused_calls_wait_too_and_too_many_that_wait_are_refused(
    few_calls: None, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_limits, "DELAYED_MOST", 10)
    ann = job_stub(controller.channel("user/ann"))

    async def watch() -> grpc.StatusCode:
        code, _ = await refusal(ann.WatchJob(job_pb2.WatchJobRequest(id="no-such-job"), timeout=WITHIN_S).read())
        return code

    codes = await asyncio.gather(*(watch() for _ in range(60)))
    assert set(codes) == {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert codes.count(grpc.StatusCode.NOT_FOUND) > 10, "those that wait are answered"
