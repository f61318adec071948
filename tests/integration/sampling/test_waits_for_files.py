"""Waits for files and for file locks, blocked and polled, seen from outside: real processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

import pytest
from tests.integration.sampling.conftest import Stage, waits

from holdfast.hang.pipeline.waits import WaitKind


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
