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
from holdfast.guard import lines, meeting
from holdfast.guard.allocation import Allocation
from holdfast.guard.lines import Link
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


@pytest.mark.parametrize(
    "said", [b"\n", b"x" * 200_000, b"[" * 60_000 + b"\n", b'{"job": "\\ud800"}\n', b'{"job": 1e999}\n']
)
async def test_what_listens_on_the_first_port_and_says_what_no_guard_does_is_passed_by(
    place: Allocation, said: bytes
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    impostor = await asyncio.start_server(answer, HERE, meeting.ports(place.job)[0])
    async with impostor, listening(place):
        (await joined(place, 1)).leave()


async def test_what_listens_on_the_first_port_and_is_no_guard_is_passed_by(place: Allocation) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"job": place.job, "nonce": "n", "credential": ""}).encode() + b"\n")
        theirs = json.loads(await reader.readline())["nonce"]
        words = ("n", theirs, str(meeting.ports(place.job)[0]))
        Link(reader, writer, OTHER, words, first_task=True).send({"controller": "192.0.2.1:1"})
        writer.close()

    impostor = await asyncio.start_server(answer, HERE, meeting.ports(place.job)[0])
    async with impostor, listening(place):
        guest = await joined(place, 1)

        assert guest.controller == "10.0.0.1:7000"
        guest.leave()


async def test_who_passes_a_conversation_on_to_task_0_is_not_let_in_between(place: Allocation) -> None:
    passed = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            passed.append(data)
            writer.write(data)
        writer.close()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HERE, meeting.ports(place.job)[1])
        await asyncio.gather(copy(reader, back), copy(there, writer))

    impostor = await asyncio.start_server(between, HERE, meeting.ports(place.job)[0])
    async with impostor, listening(place) as host:
        guest = await joined(place, 1)

        assert passed, "it was tried"
        assert b"10.0.0.1:7000" not in b"".join(passed)
        assert host.present == {1: "n2"}
        (link,) = host._links.values()
        assert link._writer.get_extra_info("peername") == guest._link._writer.get_extra_info("sockname")
        guest.leave()


async def test_a_line_that_is_made_up_or_said_again_ends_the_conversation(place: Allocation) -> None:
    """As somebody might who can write into a connection of the two, once it stands."""
    async with listening(place) as host:
        one, two = await joined(place, 1), await joined(place, 2)
        host.changed = asyncio.Event()
        two._link._writer.write(b'{"signal": 15}\n')
        with anyio.fail_after(20):
            await host.changed.wait()
        assert (host.lost, host.signals) == ({2: "n3"}, {})

        said: list[bytes] = []
        writer = host._links[1]._writer
        write = writer.write
        writer.write = said.append  # type: ignore[method-assign,assignment]
        host.tell({"failed": {}})
        for line in (*said, *said):
            write(line)
        assert await one.hear() == {"failed": {}}
        assert await one.hear() is None
        one.leave()
        two.leave()


async def test_who_holds_all_places_of_an_address_keeps_no_other_out(
    place: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "OF_ONE_ADDRESS", 2)
    port = meeting.ports(place.job)[0]
    async with listening(place) as host:
        held = [await asyncio.open_connection(HERE, port) for _ in range(2)]
        for reader, _ in held:
            await reader.readline()
        refused, writer = await asyncio.open_connection(HERE, port)
        assert await refused.read() == b""
        writer.close()

        elsewhere, writer = await asyncio.open_connection(HERE, port, local_addr=("127.0.0.2", 0))
        assert json.loads(await elsewhere.readline())["job"] == place.job

        for _, each in (*held, (elsewhere, writer)):
            each.close()
        (await joined(place, 1)).leave()
        assert host.present == {1: "n2"}


async def test_the_seed_comes_inside_the_credential(place: Allocation) -> None:
    async with listening(place, seal=SEED.hex):
        guest = await meeting.join(replace(place, task=1), [HERE], OTHER, bytes.fromhex, 20.0)

        assert guest.seed == SEED
        guest.leave()


async def introduced(place: Allocation, introduction: dict[str, object]) -> Link:
    """A guest that says this of itself."""
    port = meeting.ports(place.job)[0]
    reader, writer = await asyncio.open_connection(HERE, port)
    nonce = json.loads(await reader.readline())["nonce"]
    lines.write_line(writer, {"nonce": "m"})
    link = Link(reader, writer, SEED, (nonce, "m", str(port)), first_task=False)
    link.send({"task": 1, "name": "n2", "version": __version__, "command": meeting._mark(()), **introduction})
    return link


async def test_another_release_is_named(place: Allocation) -> None:
    async with listening(place) as host:
        link = await introduced(place, {"version": "9.9", "clock": 0})
        with anyio.fail_after(20):
            await host.changed.wait()

        assert "Task 1 on n2 has Holdfast 9.9" in host.problem
        link.close()


@pytest.mark.parametrize(
    ("apart_s", "said"), [(600, "600 s ahead of that of n1"), (-900, "900 s behind that of n1")]
)
async def test_a_host_with_another_clock_is_named(place: Allocation, apart_s: float, said: str) -> None:
    async with listening(place) as host:
        link = await introduced(place, {"clock": time.time() + apart_s})
        with anyio.fail_after(20):
            await host.changed.wait()

        assert host.problem.startswith(f"The clock of n2 is {said}")
        link.close()


async def test_lines_that_are_no_greeting_do_no_harm(place: Allocation) -> None:
    async with listening(place) as host:
        deep = b"[" * 60_000 + b"\n"
        for junk in (
            b"\n",
            b"[]\n",
            b"{}\n",
            b'{"nonce": []}\n[]\n',
            b"x" * 200_000,
            deep,
            b'{"nonce": "n"}\n0 {}\n',
        ):
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

        for link in (guest._link, *host._links.values()):
            connection = link._writer.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            probes = [
                connection.getsockopt(socket.IPPROTO_TCP, name)
                for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert probes[0] + probes[1] * probes[2] == lines.SILENT_S
        guest.leave()
