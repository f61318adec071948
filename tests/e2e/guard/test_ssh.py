"""``holdfast guard --hosts`` on hosts with addresses of their own, each with its own sshd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import (
    GUARD,
    PATIENCE_S,
    RANKS,
    WAITS,
    environment,
    nothing_is_left,
    processes,
    wait_for,
)
from tests.support import ssh_hosts
from tests.support.ssh_hosts import Hosts

pytestmark = [pytest.mark.require("netns"), pytest.mark.require("sshd")]
ANOTHER_PYTHON = """\
import sys
from holdfast.__main__ import main
sys.executable = "/nowhere/python"
main()
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("ssh")
    (folder / "scratch").mkdir()
    with ssh_hosts.logged_in_to(("n1", "n2", "n3"), folder, folder / "scratch") as found:
        yield found


@pytest.fixture
def env(hosts: Hosts) -> dict[str, str]:
    return hosts.environment(environment(hosts.folder))


def start(hosts: Hosts, folder: Path, env: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        hosts.command(*GUARD, *arguments),
        cwd=folder,
        env=env,
        umask=0o077,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_rank_on_each_host_restarts_in_place_and_the_status_is_the_guilty_ranks(
    hosts: Hosts, env: dict[str, str], tmp_path: Path
) -> None:
    command = ("--hosts", "n1,n2", "--max-restarts", "1", "--record", "rec", "--", sys.executable, "-c", RANKS)

    guard = start(hosts, tmp_path, env | {"FAILS": "3,255", "GUILTY": "1"}, *command)
    out, err = guard.communicate(timeout=PATIENCE_S)

    assert guard.returncode == 255, err
    ranks = [f"rank {rank} of 2 local 0 generation 2" for rank in (0, 1)]
    assert sorted(line for line in out.splitlines() if line.endswith("generation 2")) == ranks
    assert "restarting in place as generation 2: workerpool1-0 rank 1" in err
    assert f"see n1:{tmp_path}/rec" in err
    assert (tmp_path / "rec/job.json").exists()
    nothing_is_left(env)


@pytest.mark.parametrize("variable", ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS"])
def test_in_the_script_of_a_pbs_or_lsf_job_the_hosts_are_the_jobs_own(
    hosts: Hosts, env: dict[str, str], tmp_path: Path, variable: str
) -> None:
    (tmp_path / "hosts").write_text("n1\nn1\nn2\nn2\n")
    given = {variable: "n1 2 n2 2" if variable == "LSB_MCPU_HOSTS" else str(tmp_path / "hosts")}
    command = ("--record", "rec", "--", sys.executable, "-c", RANKS)

    guard = start(hosts, tmp_path, env | {"FAILS": "3,0", "GUILTY": "1"} | given, *command)
    out, err = guard.communicate(timeout=PATIENCE_S)

    assert guard.returncode == 0, err
    assert f"{variable} names 2 hosts, which are logged in to by ssh" in err
    ranks = [f"rank {rank} of 2 local 0 generation 2" for rank in (0, 1)]
    assert sorted(line for line in out.splitlines() if line.endswith("generation 2")) == ranks
    nothing_is_left(env)


def test_output_and_environment_are_those_of_one_command(hosts: Hosts, env: dict[str, str], tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['KEPT'], os.getcwd(), os.umask(0)); sys.stderr.write('no line end')"

    guard = start(
        hosts, tmp_path, env | {"KEPT": "it's\ntwo"}, "--hosts", "n2", "--", sys.executable, "-c", program
    )

    assert guard.communicate(timeout=PATIENCE_S) == (f"it's\ntwo {tmp_path} {0o077}\n", "no line end")
    assert guard.returncode == 0
    nothing_is_left(env)


def test_sigusr1_reaches_the_ranks_on_all_hosts_and_ctrl_c_ends_them(
    hosts: Hosts, env: dict[str, str], tmp_path: Path
) -> None:
    guard = start(hosts, tmp_path, env, "--hosts", "n1,n2", "--", sys.executable, "-c", WAITS)
    wait_for(lambda: all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)), "both ranks run")

    guard.send_signal(signal.SIGUSR1)
    wait_for(lambda: all((tmp_path / f"caught-{rank}").read_text() == "USR1\n" for rank in (0, 1)), "both get USR1")
    guard.send_signal(signal.SIGINT)

    guard.communicate(timeout=PATIENCE_S)
    assert guard.returncode == 128 + signal.SIGINT
    nothing_is_left(env)


def test_after_sigkill_here_nothing_is_left_on_the_hosts(hosts: Hosts, env: dict[str, str], tmp_path: Path) -> None:
    guard = start(hosts, tmp_path, env, "--hosts", "n1,n2", "--", sys.executable, "-c", WAITS)
    wait_for(lambda: all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)), "both ranks run")

    guard.kill()

    guard.communicate(timeout=PATIENCE_S)
    nothing_is_left(env)


def test_a_connection_that_is_lost_ends_the_job_and_names_the_host(
    hosts: Hosts, env: dict[str, str], tmp_path: Path
) -> None:
    guard = start(hosts, tmp_path, env, "--hosts", "n1,n2", "--", sys.executable, "-c", WAITS)
    wait_for(lambda: all((tmp_path / f"up-{rank}").exists() for rank in (0, 1)), "both ranks run")
    (second,) = [
        pid
        for pid, line in processes(env).items()
        if line.startswith("ssh ") or "/ssh " in line
        if "-- n2 exec" in line
    ]

    os.kill(second, signal.SIGKILL)

    _, err = guard.communicate(timeout=PATIENCE_S)
    assert "the connection to n2 is lost" in err
    assert guard.returncode == 125
    nothing_is_left(env)


def test_a_host_without_holdfast_is_named_and_the_command_may_run_bare(
    hosts: Hosts, env: dict[str, str], tmp_path: Path
) -> None:
    # The hosts have no Python at the path of this one, and that of their PATH has no Holdfast.
    program = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK, $MASTER_ADDR, $KEPT"; exit "$RANK"'
    bare = (sys.executable, "-c", ANOTHER_PYTHON, "guard", "--or-run", "--hosts", "n1,n2", "--nproc", "2", "--")
    env = env | {"KEPT": "it's"}

    guard = subprocess.run(
        hosts.command(*bare, "sh", "-c", program),
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert "has no Holdfast" in guard.stderr, guard.stderr
    assert "-m pip install" in guard.stderr
    assert "runs without a guard" in guard.stderr
    address = hosts.network.address("n1")
    assert sorted(guard.stdout.splitlines()) == [f"{rank} of 4, {rank % 2}, {address}, it's" for rank in range(4)]
    assert guard.returncode == 1
    nothing_is_left(env)


def test_hosts_that_cannot_be_logged_in_to_are_named(hosts: Hosts, env: dict[str, str], tmp_path: Path) -> None:
    guard = start(hosts, tmp_path, env, "--hosts", "n1,nowhere.invalid", "--", "echo", "ran")

    out, err = guard.communicate(timeout=PATIENCE_S)

    assert (guard.returncode, out) == (125, "")
    assert "nowhere.invalid can't be logged in to: ssh: Could not resolve hostname nowhere.invalid" in err
    assert "Try it by hand: ssh -o BatchMode=yes nowhere.invalid true" in err
    nothing_is_left(env)


def test_a_host_that_is_silent_is_named(hosts: Hosts, env: dict[str, str], tmp_path: Path) -> None:
    hosts.network.unplug("n3")
    try:
        guard = start(hosts, tmp_path, env, "--start-timeout", "3s", "--hosts", "n1,n3", "--", "echo", "ran")
        out, err = guard.communicate(timeout=PATIENCE_S)
    finally:
        hosts.network.plug("n3")

    assert (guard.returncode, out) == (125, "")
    assert "guard: n3" in err
    nothing_is_left(env)


def test_hosts_that_do_not_reach_each_other_are_named(hosts: Hosts, env: dict[str, str], tmp_path: Path) -> None:
    hosts.network.cut("n2", "n1")
    try:
        guard = start(hosts, tmp_path, env, "--start-timeout", "20s", "--hosts", "n1,n2", "--", "echo", "ran")
        out, err = guard.communicate(timeout=PATIENCE_S)
    finally:
        hosts.network.mend("n2", "n1")

    assert (guard.returncode, out) == (125, "")
    assert "there was no word from n2" in err or "Task 1 on n2 has not found task 0 on n1" in err
    nothing_is_left(env)
