"""Tasks find each other over TCP, and strangers find nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest

from holdfast._base.version import __version__
from holdfast.errors import Unavailable
from holdfast.guard import meeting, trust
from holdfast.guard.allocation import Allocation
from holdfast.guard.meeting import Guest, Host

SEED, OTHER = b"s" * 32, b"o" * 32
HERE = "127.0.0.1"


@pytest.fixture
def place() -> Allocation:
    return Allocation("slurm", f"test-{os.urandom(8).hex()}", 0, 3, 0, 1, "n1", ("n1", "n2", "n3"))


@contextlib.asynccontextmanager
async def listening(place: Allocation, seal: meeting.Seal | None = None) -> AsyncIterator[Host]:
    host = Host(place, SEED, "10.0.0.1:7000", seal)
    await host.listen(HERE)
    try:
        yield host
    finally:
        await host.close()


async def joined(place: Allocation, task: int, seed: bytes = SEED, patience_s: float = 20.0) -> Guest:
    guest = replace(place, task=task, host=f"n{task + 1}")
    return await meeting.join(guest, [HERE], seed, None, patience_s)


async def test_a_task_learns_the_controllers_address(place: Allocation) -> None:
    async with listening(place) as host:
        guest = await joined(place, 1)

        assert guest.controller == "10.0.0.1:7000"
        assert guest.address == HERE
        assert host.present == {1: "n2"}
        guest.leave()


async def test_tasks_may_come_before_the_first_one(place: Allocation) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(joined, place, 1)
        await anyio.sleep(0.3)
        async with listening(place) as host:
            with anyio.fail_after(20):
                await host.changed.wait()
            assert host.present == {1: "n2"}


async def test_both_sides_notice_that_the_other_is_gone(place: Allocation) -> None:
    async with listening(place) as host:
        one, two = await joined(place, 1), await joined(place, 2)
        host.changed = asyncio.Event()
        one.leave()
        with anyio.fail_after(20):
            await host.changed.wait()
        assert host.lost == {1: "n2"}
        host.tell({"job": "x"})
        assert await two.hear() == {"job": "x"}
    assert await two.hear() is None


async def test_a_task_whose_launcher_is_dead_counts_as_gone_before_it_has_left(place: Allocation) -> None:
    async with listening(place) as host:
        one, two = await joined(place, 1), await joined(place, 2)
        host.changed = asyncio.Event()
        one.abandon()
        with anyio.fail_after(20):
            await host.changed.wait()
        assert host.gone == {1: "n2"} and not host.lost
        one.leave()
        two.leave()


async def test_a_task_with_another_command_is_told_apart(place: Allocation) -> None:
    host = Host(place, SEED, "10.0.0.1:7000", None, ("python", "a.py"))
    await host.listen(HERE)
    try:
        same = await meeting.join(replace(place, task=1, host="n2"), [HERE], SEED, None, 20, ("python", "a.py"))
        assert host.problem == ""
        other = await meeting.join(replace(place, task=2, host="n3"), [HERE], SEED, None, 20, ("python", "b.py"))
        assert host.problem.startswith("Task 2 on n3 guards another command than task 0 on n1")
        same.leave()
        other.leave()
    finally:
        await host.close()


async def test_task_0_learns_of_the_signals_and_problems_of_others(place: Allocation) -> None:
    async with listening(place) as host:
        one, two = await joined(place, 1), await joined(place, 2)
        one.pass_on(15)
        two.complain("its disk is full")
        with anyio.fail_after(20):
            while not (host.signals and host.problem):
                host.changed.clear()
                await host.changed.wait()
        assert (host.signals, host.problem, host.lost) == ({1: 15}, "Task 2 on n3: its disk is full", {})
        one.leave()
        two.leave()


async def test_a_task_with_another_secret_is_not_let_in(place: Allocation) -> None:
    async with listening(place) as host:
        with pytest.raises(Unavailable, match="not found task 0"):
            await joined(place, 1, OTHER, patience_s=1.0)
        assert host.present == {}


async def test_what_listens_on_the_first_port_and_is_no_guard_is_passed_by(place: Allocation) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"job": place.job, "nonce": "n", "credential": ""}).encode() + b"\n")
        await asyncio.sleep(0.2)
        writer.write(json.dumps({"controller": "192.0.2.1:1", "proof": "0" * 64}).encode() + b"\n")
        writer.close()

    impostor = await asyncio.start_server(answer, HERE, meeting.ports(place.job)[0])
    async with impostor, listening(place):
        guest = await joined(place, 1)

        assert guest.controller == "10.0.0.1:7000"
        guest.leave()


async def test_the_seed_comes_inside_the_credential(place: Allocation) -> None:
    async with listening(place, seal=SEED.hex):
        guest = await meeting.join(replace(place, task=1), [HERE], OTHER, bytes.fromhex, 20.0)

        assert guest.seed == SEED
        guest.leave()


async def test_another_release_is_named(place: Allocation) -> None:
    async with listening(place) as host:
        reader, writer = await asyncio.open_connection(HERE, meeting.ports(place.job)[0])
        said = json.loads(await reader.readline())
        proof = trust.proof(SEED, "task", said["nonce"], "1", "n2", "9.9", "m")
        line = {"task": 1, "name": "n2", "version": "9.9", "nonce": "m", "proof": proof, "clock": 0}
        writer.write(json.dumps(line).encode() + b"\n")
        with anyio.fail_after(20):
            await host.changed.wait()

        assert "Task 1 on n2 has Holdfast 9.9" in host.problem
        writer.close()


@pytest.mark.parametrize(
    ("apart_s", "said"), [(600, "600 s ahead of that of n1"), (-900, "900 s behind that of n1")]
)
async def test_a_host_with_another_clock_is_named(place: Allocation, apart_s: float, said: str) -> None:
    async with listening(place) as host:
        reader, writer = await asyncio.open_connection(HERE, meeting.ports(place.job)[0])
        nonce = json.loads(await reader.readline())["nonce"]
        proof = trust.proof(SEED, "task", nonce, "1", "n2", __version__, "m")
        line = {"task": 1, "name": "n2", "version": __version__, "nonce": "m", "proof": proof, "command": []}
        writer.write(json.dumps(line | {"clock": time.time() + apart_s}).encode() + b"\n")
        with anyio.fail_after(20):
            await host.changed.wait()

        assert host.problem.startswith(f"The clock of n2 is {said}")
        writer.close()


async def test_lines_that_are_no_greeting_do_no_harm(place: Allocation) -> None:
    async with listening(place) as host:
        for junk in (b"\n", b"[]\n", b'{"task": []}\n', b"x" * 200_000, b'{"task": 99}\n'):
            reader, writer = await asyncio.open_connection(HERE, meeting.ports(place.job)[0])
            await reader.readline()
            with contextlib.suppress(OSError):
                writer.write(junk)
                await writer.drain()
                assert await reader.read() == b""
            writer.close()
        guest = await joined(place, 1)
        assert host.present == {1: "n2"}
        guest.leave()


async def test_a_task_that_comes_late_learns_of_the_job_too(place: Allocation) -> None:
    async with listening(place) as host:
        one = await joined(place, 1)
        host.tell_job("train-1")
        assert host.gone == {2: ""}

        two = await joined(place, 2)

        assert [await one.hear(), await two.hear()] == [{"job": "train-1"}] * 2
        assert host.gone == {}
        one.leave()
        two.leave()


async def test_task_0_learns_which_tasks_have_lost_their_launcher(place: Allocation) -> None:
    async with listening(place) as host:
        one = await joined(place, 1)
        one.abandon()
        one.leave()
        with anyio.fail_after(20):
            while not host.lost:
                host.changed.clear()
                await host.changed.wait()

        assert host.abandoned == {1}
        assert host.gone == {1: "n2", 2: ""}


async def test_the_kernel_is_asked_to_notice_a_side_that_is_silent(place: Allocation) -> None:
    async with listening(place) as host:
        guest = await joined(place, 1)

        for writer in (guest._writer, *host._writers.values()):
            connection = writer.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            probes = [
                connection.getsockopt(socket.IPPROTO_TCP, name)
                for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert probes[0] + probes[1] * probes[2] == meeting.SILENT_S
        guest.leave()
