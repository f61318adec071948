"""The children of a process with threads, as the proof that a rank has left nothing behind counts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.shim.conftest import wait_until

from holdfast_agent.shim.launch import Identity
from holdfast_agent.shim.processes import read_small
from holdfast_agent.shim.warm import survivors
from holdfast_agent.shim.warm.parked_ranks import ParkedRanks

FORKS_IN_A_THREAD = """
import subprocess, sys, threading, time
def fork():
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    sys.stdin.readline()
threading.Thread(target=fork).start()
time.sleep(600)
"""


def test_a_child_whose_thread_ends_during_the_look_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", FORKS_IN_A_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, tasks = process.stdin, Path(f"/proc/{process.pid}/task")
        child = int(process.stdout.readline())

        def read(path: str) -> bytes:
            found = read_small(path)
            if len(list(tasks.iterdir())) > 1:  # the main thread was read, so its new child is missed
                stdin.write(b"\n")
                stdin.flush()
                wait_until(lambda: len(list(tasks.iterdir())) == 1)
            return found

        try:
            monkeypatch.setattr(survivors, "read_small", read)
            assert survivors.children_of(process.pid) == [child]
        finally:
            process.kill()
            subprocess.run(["kill", "-9", str(child)], check=True)


@pytest.mark.require("root")
def test_what_has_forked_the_parked_ranks_ends_beside_ranks_that_leave_no_processor_idle() -> None:
    with subprocess.Popen(["sh", "-c", "chrt -i 0 sleep 600 & wait"]) as keeper:
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
        try:
            wait_until(lambda: bool(children.read_text()))
            (late,) = map(int, children.read_text().split())
            wait_until(lambda: os.sched_getscheduler(late) == os.SCHED_IDLE)
            parked = ParkedRanks.__new__(ParkedRanks)
            parked.keeper, parked.pids, parked.ranks, parked._starts, parked.limit_bytes = keeper.pid, [], [], [], 0
            parked.identity = Identity({"uid": None, "gid": None, "groups": None, "umask": 0o22, "core_bytes": 0})
            assert parked.settle() == "not all processes that it has left are parked ranks"
            assert os.sched_getscheduler(late) == os.SCHED_OTHER
        finally:
            subprocess.run(["pkill", "-9", "-P", str(keeper.pid)], check=False)
            keeper.kill()
