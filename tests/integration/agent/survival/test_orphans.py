"""Only what is surely a dead shim's is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.leaderless import LEADERLESS

from holdfast._session.reports import WorkerId
from holdfast_agent.shell.shims.orphans import Mark, clear
from holdfast_agent.shell.shims.shim_files import start_ticks

KEY = WorkerId(f"job-of-{os.getpid()}", "workerpool0-0")
MARK = Mark(KEY, "host-0", generation=3)
ENV = {
    "HOLDFAST_JOB": KEY.job,
    "HOLDFAST_WORKER": KEY.worker,
    "HOLDFAST_HOST": "host-0",
    "HOLDFAST_GENERATION": "3",
}
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts sleepers and ends those that are left."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(env: dict[str, str], code: str = SLEEPS, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, **options)
        assert process.stdout is not None
        assert process.stdout.readline() in (b"up\n", b"%d\n" % process.pid)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_marked_processes_are_killed_wherever_they_hide(start: Start) -> None:
    strays = [start(ENV), start(ENV | {"HOLDFAST_GENERATION": "2"}, start_new_session=True)]
    assert clear(MARK) == (2, "")
    assert [stray.wait(timeout=180) for stray in strays] == [-9, -9]
    assert clear(MARK) == (0, "")


def test_process_whose_main_thread_has_ended_is_killed(start: Start) -> None:
    stray = start(ENV, LEADERLESS)
    assert clear(MARK) == (1, "")
    assert stray.wait(timeout=180) == -9


def test_nothing_is_proven_empty_while_no_process_can_be_looked_at(start: Start) -> None:
    stray = start(ENV)
    code = (
        "import os, resource, sys\n"
        "from holdfast._session.reports import WorkerId\n"
        "from holdfast_agent.shell.shims import orphans\n"
        "orphans.ROUNDS, orphans.ROUND_S = 3, 0.01\n"
        "mark = orphans.Mark(WorkerId(sys.argv[1], 'workerpool0-0'), 'host-0', 3)\n"
        "listed, held = os.listdir, []\n"
        "def listdir(path):\n"
        "    held.clear()\n"
        "    names = listed(path)\n"
        "    held.append(open('/dev/null'))\n"  # somebody else takes the last descriptor
        "    return names\n"
        "os.listdir = listdir\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\n"
        "print(orphans.clear(mark))"
    )
    command = [sys.executable, "-c", code, KEY.job]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert result.stdout == '(0, "can\'t look for what is left: Too many open files")\n'
    assert stray.poll() is None


@pytest.mark.parametrize(
    "other",
    [
        {"HOLDFAST_JOB": "another"},
        {"HOLDFAST_WORKER": "workerpool0-1"},
        {"HOLDFAST_HOST": "host-1"},
        {"HOLDFAST_GENERATION": "4"},
        {"HOLDFAST_GENERATION": "x"},
    ],
)
def test_whatever_differs_in_one_mark_is_left_alone(start: Start, other: dict[str, str]) -> None:
    bystander = start(ENV | other)
    assert clear(MARK) == (0, "")
    assert bystander.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("within", [[], ["unshare", "--user", "--map-root-user"]])
def test_another_account_can_t_pass_its_processes_off_as_a_worker_s(within: list[str]) -> None:
    """It would start the next as fast as they are killed, and keep the worker from starting."""
    command = [*within, "sh", "-c", "echo up; exec sleep 600"]
    options: dict[str, Any] = {"env": ENV | {"PATH": os.defpath}, "cwd": "/", "stdout": subprocess.PIPE}
    with subprocess.Popen(command, user=65534, group=65534, extra_groups=[], **options) as other:
        try:
            assert other.stdout is not None
            if other.stdout.readline() != b"up\n":
                pytest.skip("this host gives no user namespaces")
            assert clear(replace(MARK, uid=65533)) == (0, "")
            assert other.poll() is None
            assert clear(replace(MARK, uid=65534)) == (1, "")
            assert other.wait(timeout=180) == -9
        finally:
            other.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_is_root_s_counts_whatever_the_account(start: Start) -> None:
    stray = start(ENV)
    assert clear(replace(MARK, uid=65533)) == (1, "")
    assert stray.wait(timeout=180) == -9


def test_unmarked_process_in_the_dead_shims_session_is_killed(start: Start) -> None:
    shim = start({}, start_new_session=True)
    ticks = start_ticks(shim.pid)
    assert ticks is not None
    assert clear(replace(MARK, shim_pid=shim.pid, shim_start_ticks=ticks)) == (1, "")
    assert shim.wait(timeout=180) == -9


def test_session_whose_number_was_given_to_others_is_left_alone(start: Start) -> None:
    other = start({}, start_new_session=True)
    ticks = start_ticks(other.pid)
    assert ticks is not None
    assert clear(replace(MARK, shim_pid=other.pid, shim_start_ticks=ticks - 1)) == (0, "")
    assert clear(replace(MARK, shim_pid=other.pid, shim_start_ticks=ticks + 1)) == (0, "")
    assert other.poll() is None


def test_all_cgroups_of_a_worker_are_looked_through() -> None:
    mark = replace(MARK, cgroup="/sys/fs/cgroup/holdfast/job-g1/w0/g3")
    folder = "/sys/fs/cgroup/holdfast/job-g1/w0/"
    names = ("g3", "g3-shells", "w3", "w4", "s3", "s4")
    assert mark.cgroups == tuple(folder + name for name in names)
    assert MARK.cgroups == ()
