"""What a rank waits for, seen from outside: real processes in many kinds of wait; files and children are apart."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.integration.sampling.conftest import Stage, silent_server, waits
from tests.support.rank_gang import free_port

from holdfast.hang.pipeline.waits import WaitKind

# -- Peers ---------------------------------------------------------------------------------------------------------


async def test_receive_from_another_rank(stage: Stage) -> None:
    listens = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
    stage.start(listens + "c = s.accept()[0]; c.recv(1)", rank=0)
    await stage.until(lambda: stage.output(0).read_bytes().count(b"\n") == 2, "the port")
    port = int(stage.output(0).read_text().split()[1])
    pid = stage.start(f"import socket; c = socket.create_connection(('127.0.0.1', {port})); c.recv(1)", rank=1)
    await stage.up(1)
    first, second = await waits(stage, WaitKind.PEER, 0), await waits(stage, WaitKind.PEER, 1)
    assert (first.kind, first.what) == (WaitKind.PEER, f"rank 1, pid {pid} `python`"[: len(first.what)])
    assert second.kind is WaitKind.PEER
    assert second.what.startswith("rank 0, pid ")


async def test_a_connection_to_a_host_of_the_gang_is_a_peers(stage: Stage) -> None:
    with silent_server() as port:
        stage.peers = (f"localhost:{port}",)
        stage.start(f"import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)")
        await stage.up()
        found = await waits(stage, WaitKind.PEER)
    assert found.what == f"127.0.0.1:{port}"


# -- Itself ----------------------------------------------------------------------------------------------------


async def test_a_pipe_of_its_own_is_a_lock(stage: Stage) -> None:
    stage.start("r, w = os.pipe(); os.read(r, 1)")
    await stage.up()
    await waits(stage, WaitKind.LOCK)


async def test_a_socketpair_of_its_own_is_a_lock(stage: Stage) -> None:
    stage.start("import socket; a, b = socket.socketpair(); a.recv(1)")
    await stage.up()
    await waits(stage, WaitKind.LOCK)


async def test_a_lock_is_unknown_until_its_frames_are_read(stage: Stage) -> None:
    stage.start("lock = threading.Lock(); lock.acquire(); lock.acquire()")
    await stage.up()
    await waits(stage, WaitKind.UNKNOWN)


# -- Outside -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/')",
        "import socket, select; c = socket.create_connection(('127.0.0.1', {port})); select.select([c], [], [])",
        "import socket, select; c = socket.create_connection(('127.0.0.1', {port})); p = select.poll(); "
        "p.register(c, select.POLLIN); p.poll()",
        "import asyncio\nasync def ask():\n"
        "  r, w = await asyncio.open_connection('127.0.0.1', {port}); await r.read()\n"
        "asyncio.run(ask())",
    ],
    ids=["http", "select", "poll", "asyncio"],
)
async def test_a_service_outside_the_gang(stage: Stage, code: str) -> None:
    with silent_server() as port:
        stage.start(code.replace("{port}", str(port)))
        await stage.up()
        found = await waits(stage, WaitKind.OUTSIDE)
        assert found.what == f"127.0.0.1:{port}"


async def test_a_unix_socket_of_another_program(stage: Stage, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        stage.start(f"import socket; c = socket.socket(socket.AF_UNIX); c.connect({path!r}); c.recv(1)")
        await stage.up()
        accepted = server.accept()[0]
        found = await waits(stage, WaitKind.OUTSIDE)
        accepted.close()
    assert found.what == path


async def test_a_unix_socket_of_a_stopped_child_that_accepts_no_more(stage: Stage, tmp_path: Path) -> None:
    """As of a data loader's process, which hands over its tensors' descriptors by such a socket."""
    path = str(tmp_path / "s")
    stage.start(
        f"import os, signal, socket; s = socket.socket(socket.AF_UNIX); s.bind({path!r}); s.listen(); p = os.fork()\n"
        "if p == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os.waitpid(p, os.WUNTRACED); s.close(); others = [socket.socket(socket.AF_UNIX) for _ in range(9)]\n"
        f"c = socket.socket(socket.AF_UNIX); c.connect({path!r}); c.recv(1)"
    )
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert "stopped" in found.what


async def test_a_server_without_requests(stage: Stage) -> None:
    stage.start(
        "import socket, select; s = socket.create_server(('127.0.0.1', 0)); e = select.epoll()\n"
        "a = socket.create_connection(s.getsockname()); b = s.accept()[0]\n"
        "a.close(); e.register(s); e.register(b, 0); e.poll()"
    )
    await stage.up()
    await waits(stage, WaitKind.REQUEST)


async def test_a_listener_at_the_ranks_meeting_point(stage: Stage) -> None:
    port = free_port()
    stage.peers = (f"127.0.0.1:{port}", f"127.0.0.1:{free_port()}")
    stage.start(f"import socket; socket.create_server(('', {port})).accept()", rank=0)
    stage.start("import socket; socket.create_server(('', 0)).accept()", rank=1)
    await stage.up(0)
    assert (await waits(stage, WaitKind.MEETING, 0)).what == f"0.0.0.0:{port}"
    await stage.up(1)
    await waits(stage, WaitKind.REQUEST, 1)


# -- People and clocks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["input()", "import pdb; pdb.set_trace()"])
async def test_a_terminal(stage: Stage, code: str) -> None:
    main, other = os.openpty()
    stage.start(f"import sys; t = open({os.ttyname(other)!r}, 'r+b', buffering=0)\nos.dup2(t.fileno(), 0)\n{code}")
    await stage.up()
    found = await waits(stage, WaitKind.PERSON)
    assert found.what == os.ttyname(other)
    os.close(main)
    os.close(other)


async def test_a_sleep_and_when_the_clock_ends_it(stage: Stage) -> None:
    stage.start("time.sleep(600)")
    await stage.up()
    began = time.monotonic()
    found = await waits(stage, WaitKind.SLEEP)
    assert found.until_s is not None
    assert found.until_s == pytest.approx(began + 600, abs=30)


async def test_a_loop_of_sleeps_is_one_wait(stage: Stage) -> None:
    stage.start("while True: time.sleep(0.2)")
    await stage.up()
    first = await waits(stage, WaitKind.SLEEP)
    await anyio.sleep(0.5)
    second = await waits(stage, WaitKind.SLEEP)
    assert (first.kind, second.kind) == (WaitKind.SLEEP, WaitKind.SLEEP)
    # Frames that were read meanwhile still hold, and its length is that of one sleep however long it goes on.
    assert (first.since_s, first.until_s) == (second.since_s, second.until_s)


async def test_a_sleep_that_is_longer_than_those_before_it_is_another_wait(stage: Stage) -> None:
    stage.start("for n in (0.2, 0.2, 0.2, 0.2, 0.2, 600): time.sleep(n)")
    await stage.up()
    began = time.monotonic()
    sample = await stage.sampled(
        lambda one: bool((wait := one.ranks[0].wait) and wait.until_s and wait.until_s > began + 500),
        "the long one",
    )
    found = sample.ranks[0].wait
    assert found is not None and found.since_s is not None and found.since_s >= began
    assert found.until_s == pytest.approx(began + 600, abs=30)


async def test_a_sleep_without_an_end(stage: Stage) -> None:
    stage.start("signal.pause()")
    await stage.up()
    found = await waits(stage, WaitKind.SLEEP)
    assert (found.kind, found.until_s) == (WaitKind.SLEEP, math.inf)


async def test_an_event_loop_that_sleeps_waits_for_the_clock(stage: Stage) -> None:
    stage.start("import asyncio; asyncio.run(asyncio.sleep(600))")
    await stage.up()
    found = await waits(stage, WaitKind.SLEEP)
    assert found.until_s is not None and math.isfinite(found.until_s)


# -- Who is looked at ----------------------------------------------------------------------------------------------


async def test_a_rank_on_the_cpu_waits_for_nothing(stage: Stage) -> None:
    stage.start("while True: pass")
    await stage.up()
    for _ in range(5):
        await anyio.sleep(0.1)
        sample = await stage.rank()
        assert sample.wait is None or sample.wait.kind is WaitKind.RUNNING


async def test_a_rank_below_a_launcher_is_the_one_that_is_looked_at(stage: Stage) -> None:
    code = "import os, time; os.write(1, b'up\\n'); r, w = os.pipe(); os.read(r, 1)"
    stage.start(command=["bash", "-c", f'{sys.executable} -c "{code}" & wait'])
    await stage.up()
    await waits(stage, WaitKind.LOCK)


async def test_a_stop_and_its_end_leave_the_wait_as_it_was(stage: Stage) -> None:
    pid = stage.start("r, w = os.pipe(); import select; p = select.poll(); p.register(r); p.poll(600_000)")
    await stage.up()
    await waits(stage, WaitKind.SLEEP)
    os.kill(pid, signal.SIGSTOP)
    await stage.sampled(lambda sample: sample.ranks[0].wait is None, "the stop")
    os.kill(pid, signal.SIGCONT)
    await waits(stage, WaitKind.SLEEP)
