"""What a rank waits for, seen from outside: real processes in every kind of wait.

Longer than 400 lines because each kind of wait has its process here.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.integration.sampling.conftest import Stage

from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.records.recording import WorkerSample


async def waits(stage: Stage, kind: WaitKind, rank: int = 0) -> Wait:
    """A wait of that kind that the rank has got into, seen twice the same."""
    before: list[Wait | None] = [None]

    def settled(sample: WorkerSample) -> bool:
        wait = next(one.wait for one in sample.ranks if one.rank == rank)
        same = (
            wait is not None
            and before[0] is not None
            and (wait.kind, wait.what) == (before[0].kind, before[0].what)
        )
        before[0] = wait
        return same and wait is not None and wait.kind is kind

    await stage.sampled(settled, kind.value)
    wait = before[0]
    assert wait is not None
    assert wait.since_s is not None and wait.since_s <= time.monotonic()
    return wait


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server on loopback that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []
        threading.Thread(target=lambda: _accept(server, kept), daemon=True).start()
        yield server.getsockname()[1]
        for one in kept:
            one.close()
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, kept: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            kept.append(server.accept()[0])


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


# -- Itself and its children ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run([sys.executable, '-c', child], stdout=subprocess.PIPE)",
        "import multiprocessing as m; a, b = m.Pipe(); m.Process(target=exec, args=(child,)).start(); a.recv()",
        "import multiprocessing as m; q = m.Queue(); m.Process(target=exec, args=(child,)).start(); q.get()",
    ],
    ids=["output", "socketpair", "queue"],
)
async def test_a_child(stage: Stage, code: str) -> None:
    stage.start(f"child = 'import threading; threading.Event().wait()'\n{code}")
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert found.what.startswith("pid ")
    assert "stopped" not in found.what


DOWNLOADS = "import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)"


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run([sys.executable, '-c', child])",
        "subprocess.run([sys.executable, '-c', child], stdout=subprocess.PIPE)",
        "subprocess.run(['bash', '-c', f'{sys.executable} -c \"$0\" & wait', child])",
        "inside = 'def go():\\n ' + child + '\\nimport threading as t; a = t.Thread(target=go); a.start(); a.join()'\n"
        "subprocess.run([sys.executable, '-c', inside])",
        "import multiprocessing as m; a, b = m.Pipe(); m.Process(target=exec, args=(child,)).start(); a.recv()",
    ],
    ids=["wait", "output", "grandchild", "thread", "socketpair"],
)
async def test_a_child_that_waits_for_a_service_outside(stage: Stage, code: str) -> None:
    with silent_server() as port:
        stage.start(f"child = {DOWNLOADS.replace('{port}', str(port))!r}\n{code}")
        await stage.up()
        sample = await stage.sampled(
            lambda one: (wait := one.ranks[0].wait) is not None and str(port) in wait.what, "it"
        )
    found = sample.ranks[0].wait
    assert found is not None and found.kind is WaitKind.OUTSIDE
    assert found.what.startswith("pid ") and found.what.endswith(f": 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("subprocess.run(['sleep', '600'])", " `sleep`"),
        ("subprocess.run(['sleep', '600'], stdout=subprocess.PIPE)", " `sleep`"),
        ("subprocess.run(['sleep', '600'], capture_output=True)", " `sleep`"),
        (
            "import multiprocessing as m; q = m.Queue()\n"
            "for n in (600, 9000): m.Process(target=time.sleep, args=(n,)).start()\n"
            "q.get()",
            "2 processes below it",
        ),
    ],
    ids=["wait", "output", "both outputs", "actors"],
)
async def test_a_child_that_sleeps_ends_when_it_wakes(stage: Stage, code: str, what: str) -> None:
    began_s = time.monotonic()
    stage.start(code)
    await stage.up()
    found = await waits(stage, WaitKind.SLEEP)
    assert found.what.endswith(what)
    assert found.until_s is not None and 590 < found.until_s - began_s < 660


async def test_a_child_whose_own_wait_cannot_be_told_may_work_on_something_outside(stage: Stage) -> None:
    child = "import threading; threading.Event().wait()"
    stage.start(f"subprocess.run([sys.executable, '-c', {child!r}])")
    await stage.up()
    sample = await stage.sampled(lambda one: bool(one.ranks[0].wait and "can't be" in one.ranks[0].wait.what), "it")
    found = sample.ranks[0].wait
    assert found is not None and found.kind is WaitKind.OUTSIDE


async def test_of_several_children_the_stopped_one_is_named(stage: Stage) -> None:
    stage.start(
        "import multiprocessing as m; q = m.Queue()\n"
        "a, b = [m.Process(target=time.sleep, args=(600,)) for _ in range(2)]\n"
        "a.start(); b.start(); os.kill(b.pid, signal.SIGSTOP); q.get()"
    )
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert found.what.endswith(", stopped")


async def test_a_stopped_child_is_shown_as_stopped(stage: Stage) -> None:
    stage.start("p = subprocess.Popen(['sleep', '600']); os.kill(p.pid, signal.SIGSTOP); p.wait()")
    await stage.up()
    found = await waits(stage, WaitKind.CHILD)
    assert (found.kind, found.what.endswith(" `sleep`, stopped")) == (WaitKind.CHILD, True)


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


# -- Files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
async def test_a_fifo(stage: Stage, tmp_path: Path, held: bool) -> None:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    handle = os.open(path, os.O_RDWR) if held else -1
    stage.start(f"open({path!r}).read()")
    await stage.up()
    found = await waits(stage, WaitKind.FILE)
    if held:
        os.close(handle)
    assert found.what == path


@pytest.mark.parametrize("call", ["fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.lockf(f, fcntl.LOCK_EX)"])
async def test_a_file_that_another_process_has_locked(stage: Stage, tmp_path: Path, call: str) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        (fcntl.flock if "flock" in call else fcntl.lockf)(file, fcntl.LOCK_EX)
        stage.start(f"import fcntl; f = open({str(path)!r}, 'w'); {call}")
        await stage.up()
        found = await waits(stage, WaitKind.FILE)
    assert found.what == f"{path}, locked by pid {os.getpid()}"


async def test_a_file_that_another_rank_has_locked(stage: Stage, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    stage.start(
        f"import fcntl; f = open({path!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True)\n"
        "time.sleep(600)",
        rank=0,
    )
    await stage.until(lambda: stage.output(0).read_bytes().count(b"\n") == 2, "the lock")
    stage.start(f"import fcntl; f = open({path!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX)", rank=1)
    await stage.up(1)
    found = await waits(stage, WaitKind.PEER, 1)
    assert found.what.startswith(f"{path}, locked by rank 0, pid ")


async def test_a_database_that_another_process_has_locked(stage: Stage, tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("create table t (a)")
        database.execute("begin exclusive")
        stage.start(f"import sqlite3; sqlite3.connect({path!r}, timeout=600).execute('insert into t values (1)')")
        await stage.up()
        found = await waits(stage, WaitKind.FILE)
    assert found.what == f"{path}, locked by pid {os.getpid()}"
    assert not found.polled, "whatever it does, no peer keeps it waiting"


HOLDS = {
    "sqlite": "import sqlite3; d = sqlite3.connect(p, isolation_level=None); d.execute('create table t (a)')\n"
    "d.execute('begin exclusive')",
    "flock": "import fcntl; f = open(p, 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
    "fcntl": "import fcntl; f = open(p, 'w'); fcntl.lockf(f, fcntl.LOCK_EX)",
    "readers": "import fcntl; f = open(p, 'w'); fcntl.flock(f, fcntl.LOCK_SH)",
}
ASKS = "import fcntl, threading, asyncio, select; f = open(p, 'r+'); call = fcntl.{call}\ndef ask():\n" + (
    "  try: call(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n  except OSError: return False\n  return True\n"
)
POLLS = {
    "busy timeout": "import sqlite3; sqlite3.connect(p, timeout=600).execute('insert into t values (1)')",
    "sleep": "while not ask(): time.sleep(0.05)",
    "tight": "while not ask(): time.sleep(0.001)",
    "event": "stop = threading.Event()\nwhile not ask(): stop.wait(0.05)",
    "select": "while not ask(): select.select([], [], [], 0.05)",
    "asyncio": "async def wait():\n  while not ask(): await asyncio.sleep(0.05)\nasyncio.run(wait())",
}


@pytest.mark.parametrize(
    ("lock", "poll"),
    [
        ("sqlite", "busy timeout"),
        *(("flock", poll) for poll in ("sleep", "tight", "event", "select", "asyncio")),
        ("fcntl", "sleep"),
        ("readers", "sleep"),
    ],
)
async def test_a_lock_that_is_polled_and_that_a_peer_holds_is_a_wait_for_that_peer(
    stage: Stage, tmp_path: Path, lock: str, poll: str
) -> None:
    path = str(tmp_path / "lock")
    stage.start(f"p = {path!r}; {HOLDS[lock]}; print(1, flush=True); time.sleep(600)", rank=0)
    await stage.until(lambda: stage.output(0).read_bytes().count(b"\n") == 2, "the lock")
    asks = "" if lock == "sqlite" else ASKS.format(call="lockf" if lock == "fcntl" else "flock")
    stage.start(f"p = {path!r}; {asks}{POLLS[poll]}", rank=1)
    await stage.up(1)
    found = await waits(stage, WaitKind.PEER, 1)
    assert found.what.startswith(f"{path}, locked by rank 0, pid ")
    assert found.polled


async def test_readers_of_one_file_do_not_wait_for_each_other(stage: Stage, tmp_path: Path) -> None:
    """As with HDF5, whose readers lock what they read."""
    path = tmp_path / "data.h5"
    path.touch()
    reads = f"import fcntl; f = open({str(path)!r}); fcntl.flock(f, fcntl.LOCK_SH); print(1, flush=True)\n"
    stage.start(f"{reads}time.sleep(600)", rank=0)
    await stage.until(lambda: stage.output(0).read_bytes().count(b"\n") == 2, "the lock")
    stage.start(f"{reads}while True: time.sleep(0.5)", rank=1)
    await stage.until(lambda: stage.output(1).read_bytes().count(b"\n") == 2, "the lock")
    found = await waits(stage, WaitKind.SLEEP, 1)
    assert not found.polled


async def test_a_long_sleep_beside_a_locked_file_is_a_sleep(stage: Stage, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    stage.start(f"p = {path!r}; {HOLDS['flock']}; print(1, flush=True); time.sleep(600)", rank=0)
    await stage.until(lambda: stage.output(0).read_bytes().count(b"\n") == 2, "the lock")
    stage.start(f"f = open({path!r}); time.sleep(600)", rank=1)
    await stage.up(1)
    assert (await waits(stage, WaitKind.SLEEP, 1)).until_s is not None


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
