"""Processes of this machine: started detached, recognised, signalled, waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.dev import processes
from holdfast.dev.processes import Process

Spawn = Callable[..., Process]
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    started: list[Process] = []

    def run(program: str, *arguments: str, env: dict[str, str] | None = None) -> Process:
        command = (sys.executable, "-c", program, *arguments)
        started.append(processes.spawn(command, tmp_path / "log", env if env is not None else dict(os.environ)))
        return started[-1]

    yield run
    for process in started:
        processes.send(process, signal.SIGKILL)
        assert not processes.wait_all({process}, 10)
        processes.exit_status(process)


def wait_for_log(path: Path, text: str) -> str:
    deadline = time.monotonic() + 20
    while text not in (said := path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
    return said


def test_spawned_process_is_detached(spawn: Spawn, tmp_path: Path) -> None:
    program = "import os; print(os.getcwd(), os.getsid(0) == os.getpid(), os.read(0, 9), os.environ['A'])"
    process = spawn(program, env={"A": "b"})
    assert not processes.wait_all({process}, 20)
    assert (tmp_path / "log").read_text() == "/ True b'' b\n"
    assert processes.exit_status(process) == 0


def test_output_is_appended_and_signals_are_the_default_ones(spawn: Spawn, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    program = "from signal import *; print(pthread_sigmask(0, []), getsignal(SIGTERM) == SIG_DFL)"
    assert not processes.wait_all({spawn(program)}, 20)
    assert (tmp_path / "log").read_text() == "before\nset() True\n"


def test_end_of_a_process_wakes_who_waits(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    assert processes.lives(process)
    assert processes.wait_all({process}, 0.05) == {process}
    processes.send(process, signal.SIGTERM)
    began = time.monotonic()
    processes.wait_any({process}, 30)
    assert time.monotonic() - began < 20
    assert not processes.lives(process), "dead, though nobody has reaped it"
    assert process.pid not in processes.snapshot()
    assert processes.exit_status(process) == -signal.SIGTERM
    assert processes.exit_status(process) is None, "reaped once"
    processes.wait_any({process}, 30)


def test_reused_pid_is_never_signalled(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    processes.send(replace(process, start_ticks=process.start_ticks - 1), signal.SIGKILL)
    assert processes.wait_all({process}, 0.2) == {process}


def test_command_is_found_by_its_arguments(spawn: Spawn) -> None:
    process = spawn(SLEEP, "one")
    wanted = {"one": ("-c", SLEEP, "one"), "two": ("-c", SLEEP, "two")}
    deadline = time.monotonic() + 20
    while not (found := processes.find(wanted)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert found == {"one": process}


def test_forked_copy_is_not_taken_for_the_original(spawn: Spawn, tmp_path: Path) -> None:
    program = "import os,time; os.fork() or time.sleep(0.1); print('up', flush=True); time.sleep(60)"
    process = spawn(program, "fork")
    while wait_for_log(tmp_path / "log", "up").count("up") < 2:
        pass
    child = next(s.process for s in processes.snapshot().values() if s.parent == process.pid)
    try:
        assert processes.find({"it": ("-c", program, "fork")}) == {"it": process}
    finally:
        processes.send(child, signal.SIGKILL)


def test_names_with_blanks_and_parentheses_are_read(tmp_path: Path) -> None:
    odd = tmp_path / "a ) b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([odd, "60"])
    try:
        seen = processes.stat(child.pid)
        assert seen is not None
        assert (seen.name, seen.parent, seen.threads) == ("a ) b", os.getpid(), 1)
    finally:
        child.kill()
        child.wait()


def test_environment_and_arguments_of_who_is_gone_are_empty(spawn: Spawn) -> None:
    process = spawn("pass")
    assert not processes.wait_all({process}, 20)
    processes.exit_status(process)
    assert processes.environment(process.pid) == {}
    assert processes.arguments(process.pid) == ()
    assert processes.stat(process.pid) is None


def test_main_thread_that_is_dead_does_not_make_a_process_dead(spawn: Spawn, tmp_path: Path) -> None:
    program = (
        "import ctypes, threading, time\n"
        "def on():\n    time.sleep(0.2); print('on', flush=True); time.sleep(60)\n"
        "threading.Thread(target=on).start()\nctypes.CDLL(None).syscall(60, 0)"
    )
    process = spawn(program)
    wait_for_log(tmp_path / "log", "on")
    seen = processes.stat(process.pid)
    assert seen is not None
    if seen.state != "Z":
        pytest.skip("exit(2) has another number on this machine")
    assert processes.lives(process)
