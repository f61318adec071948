"""``run --pty`` on a real cluster: a terminal from the user's keys to rank 0, and back."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.support.typist import Typist, typing

from holdfast.client import Client
from holdfast.errors import WrongState

ASKS = """
import os
print("tty", [os.isatty(each) for each in range(3)], flush=True)
name = input("name? ")
x = 41
breakpoint()
print(name, "has", x)
"""
COUNTS = """
import time
while True:
    try:
        while True:
            print("tick", flush=True)
            time.sleep(0.2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        if input("stop? ") == "yes":
            break
"""
SIZES = """
import os, signal
signal.signal(signal.SIGWINCH, lambda *_: print("size", tuple(os.get_terminal_size()), flush=True))
print("size", tuple(os.get_terminal_size()), flush=True)
while input() != "end":
    pass
"""


@contextmanager
def run(cluster: DevCluster, *words: str, rows: int = 24, columns: int = 80) -> Iterator[Typist]:
    env = {"TERM": "xterm", **cluster.env}
    with typing(["-m", "holdfast", *words], env, rows=rows, columns=columns) as typist:
        yield typist


def program(text: str) -> tuple[str, ...]:
    return ("run", "--pty", "--", sys.executable, "-c", text)


def job_of(said: str) -> str:
    return str(re.findall(r"job (\S+): ", said)[0])


def can_type(cluster: DevCluster, job: str) -> bool:
    try:
        cluster.ask(lambda client: client.write_terminal(job, b""))
    except WrongState:
        return False  # its host is not connected yet
    return True


def test_input_and_breakpoint_work(cluster: DevCluster) -> None:
    with run(cluster, *program(ASKS)) as typist:
        typist.sees("tty [True, True, True]")
        typist.sees("name? ")
        typist.types("ann\r")
        typist.sees("(Pdb) ")
        typist.types("x = 42\r")
        typist.sees("(Pdb) ")
        typist.types("c\r")
        assert typist.ends() == 0
    assert "ann has 42" in typist.said
    logged = cluster.holdfast("logs", job_of(typist.said)).stdout
    assert "(Pdb) x = 42" in logged and "ann has 42" in logged, "the transcript is the job's output"


def test_ctrl_c_goes_to_the_program(cluster: DevCluster) -> None:
    with run(cluster, *program(COUNTS)) as typist:
        typist.sees("tick")
        typist.types("\x03")
        typist.sees("interrupted")
        typist.types("no\r")
        typist.sees("tick")
        typist.types("\x03")
        typist.sees("stop? ")
        typist.types("yes\r")
        assert typist.ends() == 0


def test_end_of_input_and_exit_codes_come_through(cluster: DevCluster) -> None:
    with run(cluster, *program("import sys; sys.stdin.read(); sys.exit(7)")) as typist:
        typist.sees("is running")
        typist.types("some\r\x04")
        assert typist.ends() == 7
    assert "restarting" not in typist.said, "a program at a terminal is not started again by itself"


def test_the_window_has_the_size_of_the_users(cluster: DevCluster) -> None:
    with run(cluster, *program(SIZES), rows=30, columns=100) as typist:
        typist.sees("size (100, 30)")
        typist.resizes(40, 120)
        typist.sees("size (120, 40)")
        typist.types("end\r")
        assert typist.ends() == 0


@pytest.mark.parametrize("how", ["keys", "window"])
def test_a_user_who_leaves_ends_nothing_and_may_come_back(cluster: DevCluster, how: str) -> None:
    with run(cluster, *program(ASKS)) as typist:
        typist.sees("name? ")
        job = job_of(typist.said)
        if how == "keys":
            typist.types("an\r~.")
            typist.sees(f"holdfast job attach {job}")
            assert typist.ends() == 0
        else:
            assert typist.hangs_up() == 129
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"
    with run(cluster, "job", "attach", job) as typist:
        typist.sees("name? ")
        if how == "window":
            typist.types("an\r")
        typist.sees("(Pdb) ")
        typist.types("c\r")
        assert typist.ends() == 0
    assert "an has 41" in typist.said


def test_it_outlives_the_agent_and_the_controller(cluster: DevCluster) -> None:
    with run(cluster, *program(ASKS)) as typist:
        typist.sees("name? ")
        cluster.kill("controller", *(f"host-{number}" for number in (0, 1)))
        typist.sees("waiting for the controller")
        cluster.restart()
        typist.sees("the controller is back")

        job = job_of(typist.said)
        until(lambda: can_type(cluster, job), what="for the host to be back")
        typist.types("bob\r")
        typist.sees("(Pdb) ")
        typist.types("c\r")
        assert typist.ends() == 0
    assert "bob has 41" in typist.said


def test_each_rank_has_a_terminal_and_only_of_a_job_that_asked(cluster: DevCluster) -> None:
    show = "import os, sys; print('tty', os.environ['RANK'], os.isatty(0), os.isatty(1), flush=True)"
    job = cluster.detach("--pty", "--replicas", "2", "--", sys.executable, "-c", show)
    cluster.reach(job, "SUCCEEDED")
    said = cluster.holdfast("logs", job).stdout
    assert "tty 0 True True" in said and "tty 1 True True" in said
    plain = cluster.detach("--", "sleep", "600")
    cluster.reach(plain, "RUNNING")
    with pytest.raises(WrongState, match="has no terminal"):
        cluster.ask(lambda client: client.write_terminal(plain, b"x"))
    with run(cluster, "job", "attach", plain) as typist:
        assert typist.ends() == 125
    assert "has no terminal" in typist.said
    cluster.end(plain)


def test_without_a_terminal_of_the_users_it_is_refused(cluster: DevCluster) -> None:
    refused = cluster.holdfast("run", "--pty", "--", "true", check=False)
    assert refused.returncode == 2 and "needs a terminal" in refused.stderr


def test_what_the_program_does_not_read_is_not_taken(cluster: DevCluster) -> None:
    deaf = "import sys, time, tty; tty.setraw(0); print('ready', flush=True); time.sleep(600)"
    job = cluster.detach("--pty", "--", sys.executable, "-c", deaf)
    until(lambda: "ready" in cluster.holdfast("logs", job).stdout, what="for the program")

    async def fill(client: Client) -> int:
        given = 0
        for _ in range(100):
            taken = await client.write_terminal(job, b"x" * 4_000)
            given += taken
            if not taken:
                return given
        return -1

    assert 0 < cluster.ask(fill) < 300_000, "no more waits anywhere than a FIFO and a terminal hold"
    cluster.end(job)


def test_a_job_that_waits_at_its_terminal_is_stopped_as_others_are(cluster: DevCluster) -> None:
    with run(cluster, *program(ASKS)) as typist:
        typist.sees("name? ")
        cluster.holdfast("cancel", job_of(typist.said))
        assert typist.ends() == 130
    assert cluster.ranks(job_of(typist.said)) == {}


def test_a_breakpoint_on_another_rank_waits_at_its_own_terminal(cluster: DevCluster) -> None:
    asks = "import os; rank = os.environ['RANK']; rank == '1' and breakpoint()\nprint('rank', rank, 'goes on')"
    with run(cluster, "run", "--pty", "--replicas", "2", "--", sys.executable, "-c", asks) as typist:
        typist.sees("holdfast job attach ")
        job = job_of(typist.said)
        with run(cluster, "job", "attach", job, "--rank", "1") as other:
            other.sees("(Pdb) ")
            other.types("c\r")
            assert other.ends() == 0
        assert typist.ends() == 0
    assert "rank 1 goes on" in other.said and "rank 0 goes on" in typist.said
    with run(cluster, "job", "attach", job, "--rank", "2") as wrong:
        wrong.sees("--rank: 2 is no rank of this job")


def test_a_breakpoint_without_a_terminal_says_how_to_have_one(cluster: DevCluster) -> None:
    told = cluster.holdfast("run", "--", sys.executable, "-c", "breakpoint()\n1", check=False).stderr
    assert "breakpoint() takes a terminal, which each rank has by: holdfast run --pty" in told
