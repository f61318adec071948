"""``holdfast job shell`` on a real cluster: a person and a script beside a rank, whatever ends it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, until
from tests.support.typist import Typist, typing

SLEEPS = "import time; print('training', flush=True); time.sleep(600)"
SCREEN = """
import os, signal, tty
tty.setraw(0)
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"size %d %d;" % tuple(os.get_terminal_size())))
os.write(1, b"\\x1b[?1049h" + b"screen %d %d;" % tuple(os.get_terminal_size()))
while (key := os.read(0, 1)) != b"q":
    os.write(1, b"key %r;" % key)
os.write(1, b"\\x1b[?1049l")
"""


@pytest.fixture(scope="module")
def job(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two ranks on two hosts that do nothing, with shells allowed that read nobody's own settings."""
    home = f"HOME={tmp_path_factory.mktemp('home')}"
    made = cluster.detach(
        "--enable-web-access", "--env", home, "--replicas", "2", "--gpus", "2", "--", sys.executable, "-c", SLEEPS
    )
    cluster.reach(made, "RUNNING")
    yield made
    cluster.end(made)


@contextmanager
def at_terminal(cluster: DevCluster, *words: str, rows: int = 24, columns: int = 80) -> Iterator[Typist]:
    env = {"TERM": "xterm", **cluster.env}
    with typing(["-m", "holdfast", "job", "shell", *words], env, rows=rows, columns=columns) as typist:
        yield typist


def shell(cluster: DevCluster, *words: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    return cluster.holdfast("job", "shell", *words, check=False, **options)


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_command_runs_beside_the_rank_that_was_named(cluster: DevCluster, job: str) -> None:
    done = shell(
        cluster, job, "--rank", "1", "--", "sh", "-c", "echo rank $RANK of $HOLDFAST_JOB; echo no >&2; exit 7"
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"rank 1 of {job}\n", "no\n", 7)
    assert shell(cluster, job, "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = shell(cluster, job, "--", "no-such-program")
    assert missing.returncode == 125 and "no-such-program: no such file on PATH" in missing.stderr


def test_what_a_script_gives_it_comes_through_whole(cluster: DevCluster, job: str) -> None:
    given = os.urandom(10 << 20)
    done = shell(cluster, job, "--", "cat", input=given, text=False, timeout=120)
    assert done.returncode == 0 and hashlib.sha256(done.stdout).digest() == hashlib.sha256(given).digest()
    said = shell(cluster, job, input="echo $((6 * 7))\nexit 3\n")
    assert (said.stdout, said.returncode) == ("42\n", 3)


def test_a_full_screen_program_has_keys_and_window(cluster: DevCluster, job: str) -> None:
    with at_terminal(cluster, job, "--", sys.executable, "-c", SCREEN, rows=30, columns=100) as typist:
        typist.sees("screen 100 30;")
        typist.resizes(50, 132)
        typist.sees("size 132 50;")
        typist.types("\x03\x1b[A")
        typist.sees("key b'\\x03';key b'\\x1b';")
        typist.types("q")
        assert typist.ends() == 0


def test_ctrl_c_ends_what_is_in_the_foreground_and_the_status_is_passed_on(
    cluster: DevCluster, job: str, tmp_path: Path
) -> None:
    program = tmp_path / "foreground.py"
    program.write_text(
        "import time\ntry:\n    print('it', 'waits', flush=True)\n    time.sleep(300)\n"
        "except KeyboardInterrupt:\n    print('it', 'hears')\n"
    )
    with at_terminal(cluster, job) as typist:
        typist.types(f"{sys.executable} {program}\r")
        typist.sees("it waits")
        typist.types("\x03")
        typist.sees("it hears")
        typist.types("echo go''es on; exit 5\r")
        typist.sees("goes on")
        assert typist.ends() == 5
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"


def test_only_a_job_that_allows_them_has_shells(cluster: DevCluster) -> None:
    plain = cluster.detach("--", "sleep", "600")
    cluster.reach(plain, "RUNNING")
    refused = shell(cluster, plain, "--", "true")
    assert refused.returncode == 125
    assert "allows no shells" in refused.stderr and "enableWebAccess" in refused.stderr
    cluster.end(plain)


@pytest.mark.parametrize("victim", ["controller", "host-0"])
def test_it_ends_with_the_daemons_that_carry_it_and_leaves_nothing(
    cluster: DevCluster, victim: str, job: str
) -> None:
    with at_terminal(cluster, job) as typist:
        typist.types("trap '' HUP TERM INT; setsid sleep 300 & echo pi''d $! $$ end''ed\r")
        typist.sees("ended")
        pids = [int(word) for word in typist.said.split("pid ")[1].split()[:2]]
        rank = cluster.job(job)["workers"][0]["ranks"][0]["pid"]
        cluster.kill(victim)
        typist.sees("the shell has ended: ")
        assert typist.ends() == 125
    until(lambda: not any(map(lives, pids)), what="for the shell's processes to be gone")
    assert lives(rank)
    cluster.restart()
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"
    until(lambda: shell(cluster, job, "--", "true").returncode == 0, what="for a shell afterwards")


def test_a_user_who_leaves_leaves_nothing(cluster: DevCluster, job: str) -> None:
    with at_terminal(cluster, job) as typist:
        typist.types("trap '' HUP TERM; setsid sleep 300 & echo pi''d $! $$ end''ed\r")
        typist.sees("ended")
        pids = [int(word) for word in typist.said.split("pid ")[1].split()[:2]]
        typist.types("\r~.")
        typist.sees("you left it")
        typist.ends()
    until(lambda: not any(map(lives, pids)), what="for the shell's processes to be gone")


def test_a_restart_does_not_wait_for_it_and_says_so_to_its_user(cluster: DevCluster, job: str) -> None:
    before = cluster.job(job)
    with at_terminal(cluster, job) as typist:
        typist.types("trap '' HUP TERM INT; while :; do :; done & echo st''uck; while :; do sleep 1; done\r")
        typist.sees("stuck")
        rank = before["workers"][0]["ranks"][0]["pid"]
        os.kill(rank, signal.SIGKILL)
        typist.sees("the shell has ended: the ranks beside it were stopped")
        until(lambda: cluster.job(job)["generation"] > before["generation"], what="for the next generation")
        cluster.reach(job, "RUNNING")
        assert typist.ends() == 125


def test_it_is_on_record_from_when_to_when_and_with_what(cluster: DevCluster, job: str) -> None:
    shell(cluster, job, "--rank", "1", "--", "echo", "on record")
    entries = json.loads(cluster.holdfast("audit", "-o", "json").stdout)
    said = [each["message"] for each in entries if each["call"] == "JobService/OpenShell"]
    assert re.fullmatch(r"over after \d+ s beside rank 1: echo .on record.", said[-1])
    assert said[-2] == "begins beside rank 1: echo 'on record'"
