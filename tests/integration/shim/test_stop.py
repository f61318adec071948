"""A stop leaves nothing behind, takes no longer than its grace, and says whose doing the exits were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shim.conftest import wait_until
from tests.support.leaderless import LEADERLESS
from tests.support.promptness import assert_prompt

from holdfast._session.reports import Exit, ExitReason
from holdfast_agent.shell.shims.shim_files import Stopping

Shim = Any
Running = Callable[[int], bool]
Eventually = Callable[[Callable[[], bool]], None]

DEAF = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
# A daemon as daemons are made: two forks and a session between them; it prints its pid.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {deaf}
        print(os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
{then}
"""

CARELESS = """
import os, time
for _ in range(20):
    os.fork() or os._exit(0)
print("up", flush=True)
time.sleep(600)
"""
# Leaves its own group for that of a child that is deaf to TERM.
JOINER = """
import os, signal, time
child = os.fork()
if child == 0:
    signal.signal(15, signal.SIG_IGN)
    os.setpgid(0, 0)
    time.sleep(600)
while os.getpgid(child) != child:
    time.sleep(0.01)
os.setpgid(0, child)
print("up", flush=True)
time.sleep(600)
"""
# Bombs end by themselves after 60 s and stay below 60 processes.
BOUND = """
import os, resource, signal, time
signal.signal(15, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
os.setuid(54321)  # the limit holds for users other than root
until = time.monotonic() + 60
print("up", flush=True)
"""
# Doubles, each process in a session of its own.
TREE = """
while time.monotonic() < until:
    try:
        os.fork() or os.setsid()
    except OSError:
        time.sleep(0.001)
"""
# Never more than a few processes, none of which lives for longer than a fork takes.
CHAIN = """
while time.monotonic() < until:
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        pass
"""

TRACER = """
import ctypes, sys, time
PTRACE_SEIZE = 0x4206
assert ctypes.CDLL(None).ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None) == 0
print("attached", flush=True)
time.sleep(600)
"""


def test_rank_that_obeys_is_stopped_at_once(shim: Shim) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    shim.expect("started")
    shim.stop(grace_s=30)
    stopping, exited, _ = shim.until("empty")
    assert stopping == {"ev": "stopping", "generation": 1, "reason": "STOPPED", "grace_s": 30.0}
    assert exited["reason"] == "STOPPED" and os.WTERMSIG(exited["status"]) == signal.SIGTERM
    assert exited["message"] == "stopped as asked: killed by signal 15 (SIGTERM)"
    assert isinstance(shim.journal()[3], Stopping)


def test_rank_whose_main_thread_has_ended_is_killed(shim: Shim, strays: list[int], running: Running) -> None:
    shim.launch(1, shim.python(LEADERLESS))
    pid = int(shim.await_output())
    strays.append(pid)
    shim.stop(grace_s=0.1)
    exited, empty = shim.until("empty")[-2:]
    assert exited["message"] == "stopped as asked: killed by signal 9 (SIGKILL)"
    assert (empty["ev"], running(pid)) == ("empty", False)


def test_code_of_a_stopped_rank_is_kept(shim: Shim) -> None:
    shim.launch(1, shim.sh("trap 'exit 143' TERM; echo up; while :; do sleep 0.05; done"))
    shim.await_output()
    shim.stop()
    exited = shim.until("empty")[-2]
    assert exited["message"] == "stopped as asked: exited with code 143" and exited["status"] == 143 << 8


def test_rank_that_stands_still_goes_on_to_take_its_term(shim: Shim) -> None:
    """It may save, and doesn't take the whole grace."""
    shim.launch(1, shim.sh("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"))
    pid = shim.expect("started")["pid"]
    shim.await_output()
    os.killpg(pid, signal.SIGSTOP)
    shim.stop(grace_s=60)
    exited = shim.until("empty")[-2]
    assert exited["message"] == "stopped as asked: exited with code 7"


def test_reason_of_the_stop_becomes_the_exits(shim: Shim) -> None:
    shim.launch(1, shim.sh("exec sleep 600"))
    shim.expect("started")
    shim.stop(reason="HANG_KILLED")
    exited = shim.until("empty")[-2]
    assert exited["reason"] == "HANG_KILLED"
    assert exited["message"] == "stopped because the job hung: killed by signal 15 (SIGTERM)"


def test_stop_right_after_the_launch_still_hits(shim: Shim) -> None:
    for generation in range(1, 21):
        shim.launch(generation, *[shim.sh("exec sleep 600", rank=n, generation=generation) for n in range(2)])
        shim.stop(generation=generation, grace_s=60)
        began = time.monotonic()
        shim.until("empty")
        assert time.monotonic() - began < 30


def test_rank_that_ignores_term_costs_the_grace_and_no_more(shim: Shim) -> None:
    def stopped(generation: int) -> float:
        shim.launch(generation, shim.python(DEAF, generation=generation))
        shim.await_output(generation=generation)
        began = time.monotonic()
        shim.stop(generation, grace_s=1.0)
        exited = shim.until("empty")[-2]
        took_s = time.monotonic() - began
        assert took_s >= 1.0
        assert os.WTERMSIG(exited["status"]) == signal.SIGKILL
        assert exited["message"] == "stopped as asked: killed by signal 9 (SIGKILL)"
        return took_s

    assert_prompt(1.5, stopped)


def test_exit_before_the_stop_keeps_its_own_reason(shim: Shim) -> None:
    shim.launch(1, shim.sh("exit 7"), shim.sh("exec sleep 600", rank=1))
    shim.until("exited")
    shim.stop()
    shim.until("empty")
    reasons = {r.rank: r.reason for r in shim.journal() if isinstance(r, Exit)}
    assert reasons == {0: ExitReason.NONZERO_EXIT, 1: ExitReason.STOPPED}


def test_later_stop_may_shorten_the_grace(shim: Shim) -> None:
    shim.launch(1, shim.python(DEAF))
    shim.await_output()
    shim.stop(grace_s=600)
    shim.expect("started")
    shim.expect("stopping")
    shim.stop(grace_s=0.2, reason="HANG_KILLED")
    began = time.monotonic()
    assert shim.until("empty")[-2]["reason"] == "STOPPED", "the first reason is the cause"
    assert time.monotonic() - began < 30


def test_later_stop_never_lengthens_the_grace(shim: Shim) -> None:
    shim.launch(1, shim.python(DEAF))
    shim.await_output()
    began = time.monotonic()
    shim.stop(grace_s=0.5)
    shim.stop(grace_s=600)
    assert [m["ev"] for m in shim.until("empty")] == ["started", "stopping", "exited", "empty"]
    assert time.monotonic() - began < 30


def test_stop_is_answered_at_once_where_nothing_runs(shim: Shim) -> None:
    shim.stop(generation=4)
    assert shim.expect("empty")["generation"] == 4
    shim.launch(5, shim.sh("exit 0", generation=5))
    shim.until("empty")
    shim.stop(generation=5)
    assert shim.expect("empty")["generation"] == 5


def test_stop_of_an_older_generation_leaves_this_one_alone(shim: Shim) -> None:
    shim.launch(2, shim.sh("exec sleep 600", generation=2))
    shim.expect("started")
    shim.stop(generation=1)
    assert shim.expect("empty")["generation"] == 1
    assert shim.connect()["phase"] == "running"


def test_stop_of_a_later_generation_is_answered_for_it_too(shim: Shim) -> None:
    shim.launch(2, shim.sh("exec sleep 600", generation=2))
    shim.stop(generation=3)
    assert shim.until("empty")[-1]["generation"] == 2
    assert shim.expect("empty")["generation"] == 3


@pytest.mark.parametrize("deaf", ["", "signal.signal(15, signal.SIG_IGN)"])
def test_daemonised_child_is_found_and_killed(shim: Shim, running: Running, deaf: str) -> None:
    shim.launch(1, shim.python(DAEMON.format(deaf=deaf, then="time.sleep(600)")))
    daemon = int(shim.await_output())
    assert running(daemon)
    shim.stop(grace_s=1)
    shim.until("empty")
    assert not running(daemon)


def test_daemon_of_a_rank_that_is_gone_gets_its_two_seconds(shim: Shim, running: Running) -> None:
    shim.launch(1, shim.python(DAEMON.format(deaf="signal.signal(15, signal.SIG_IGN)", then="")))
    daemon = int(shim.await_output())
    exited = shim.until("exited")[-1]
    assert running(daemon)
    shim.expect("empty")
    assert 1.9 < time.time() - exited["end_time"] < 30
    assert not running(daemon)
    end = shim.journal()[3]
    assert isinstance(end, Exit) and end.reason is ExitReason.COMPLETED


def test_helper_lives_on_while_another_rank_runs(shim: Shim, running: Running) -> None:
    shim.launch(1, shim.sh("sleep 600 & echo $!"), shim.sh("exec sleep 600", rank=1))
    assert shim.until("exited")[-1]["rank"] == 0
    helper = int(shim.output())
    with pytest.raises(TimeoutError):
        shim.receive(timeout_s=2.5)
    assert running(helper)
    shim.stop(grace_s=60)
    began = time.monotonic()
    shim.until("empty")
    assert time.monotonic() - began < 30, "the dead rank's group has heard TERM, too"
    assert not running(helper)


def test_process_that_stands_still_again_and_again_is_killed(shim: Shim) -> None:
    shim.launch(1, shim.sh("trap '' TERM; while :; do kill -STOP $$; done"))
    pid = shim.expect("started")["pid"]
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().split()[2] == "T")
    shim.stop(grace_s=0.3)
    assert os.WTERMSIG(shim.until("empty", 30)[-2]["status"]) == signal.SIGKILL


def test_no_grace_at_all(shim: Shim) -> None:
    def stopped(generation: int) -> float:
        shim.launch(generation, *[shim.python(DEAF, rank=n, generation=generation) for n in range(4)])
        for n in range(4):
            shim.await_output(rank=n, generation=generation)
        began = time.monotonic()
        shim.stop(generation, grace_s=0)
        assert len([m for m in shim.until("empty") if m["ev"] == "exited"]) == 4
        return time.monotonic() - began

    assert_prompt(1.0, stopped)


def test_zombies_of_a_careless_rank_are_no_obstacle(shim: Shim) -> None:
    shim.launch(1, shim.python(CARELESS))
    shim.await_output()
    shim.stop(grace_s=10)
    shim.until("empty")


def test_orphans_are_reaped_while_ranks_run(shim: Shim, eventually: Eventually) -> None:
    shim.launch(1, shim.sh("for i in 1 2 3 4 5; do (true & ); done; echo up; exec sleep 600"))
    shim.await_output()

    def zombies() -> list[str]:
        lines = subprocess.run(["ps", "-eo", "ppid=,state="], capture_output=True, text=True, check=True).stdout
        return [line for line in lines.splitlines() if line.split() == [str(shim.process.pid), "Z"]]

    eventually(lambda: not zombies())


def test_rank_in_a_foreign_group_still_hears_term(shim: Shim) -> None:
    shim.launch(1, shim.python(JOINER))
    shim.await_output()
    shim.stop(grace_s=2)
    exited = next(m for m in shim.until("empty") if m["ev"] == "exited")
    assert os.WTERMSIG(exited["status"]) == signal.SIGTERM


@pytest.mark.parametrize("bomb", ["TREE", "CHAIN"])
@pytest.mark.require("root")  # to bound the bomb by a user's process limit
def test_bomb_is_put_out(shim: Shim, bomb: str) -> None:
    shim.launch(1, shim.python(BOUND + {"TREE": TREE, "CHAIN": CHAIN}[bomb]))
    shim.await_output()
    shim.stop(grace_s=0.3)
    shim.until("empty", 30)  # before it ends by itself


@pytest.mark.require("root")
def test_what_outlives_kill_is_reported_until_it_is_gone(shim: Shim) -> None:
    shim.launch(1, shim.sh("echo up; exec sleep 600"))
    pid = shim.expect("started")["pid"]
    shim.await_output()
    # A debugger keeps what it traces from its parent until it has looked at it, and this one never looks.
    tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdout=subprocess.PIPE, text=True)
    try:
        assert tracer.stdout is not None and tracer.stdout.readline() == "attached\n"
        shim.stop(grace_s=0.1)
        shim.expect("stopping")
        first = shim.expect("stuck")
        assert first["generation"] == 1 and first["pids"] == [pid]
        assert first["message"].startswith(f"outlive KILL: {pid} (")
        began = time.monotonic()
        shim.expect("stuck")
        assert 3 < time.monotonic() - began < 30, "each five seconds"
    finally:
        tracer.kill()
        tracer.wait()
    shim.until("empty")
