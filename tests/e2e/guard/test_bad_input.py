"""What can be wrong with what a guard is given, without Slurm: a sentence names the host and the cure.

With ``--or-run`` the program still runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import GUARD, PATIENCE_S, environment, nothing_is_left
from tests.faults import network
from tests.faults.network import Network
from tests.support.machine_parts import ROOT, other_pythons

HOST = os.uname().nodename
PACKAGES = [str(ROOT / name) for name in ("client", "controller", "agent")]
BARE = "the command runs without a guard: nothing is restarted, and no hang is seen"
TWO = {"PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
SLURM = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NODEID": "0"}


def ended(folder: Path, env: dict[str, str], *command: str) -> tuple[int, str, str]:
    """The status of a command and what it prints, once nothing of it is left."""
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )
    nothing_is_left(env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "PBS_NODEFILE names no host: its file is empty. To guard this host alone: PBS_NODEFILE= holdfast guard",
        ),
        (f"n1\n{HOST}\n", f"{HOST} is not the first of the 2 hosts in PBS_NODEFILE, which is n1. Start one guard"),
    ],
)
def test_a_list_of_a_batch_job_that_makes_no_sense_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "nodes").write_text(text)
    env = environment(tmp_path, PBS_NODEFILE=str(tmp_path / "nodes"))

    status, out, err = ended(tmp_path, env, *GUARD, "--or-run", "--", "echo", "ran")
    assert (status, out) == (0, "ran\n"), err
    assert said in err
    assert BARE in err
    status, out, err = ended(tmp_path, env, *GUARD, "--", "echo", "ran")
    assert (status, out) == (125, ""), err


def test_a_program_runs_within_limits_that_a_host_of_a_cluster_may_not_have(tmp_path: Path) -> None:
    env = environment(tmp_path)
    script = 'ulimit -n 512; ulimit -s 512; exec "$@"'

    command = ("sh", "-c", script, "sh", *GUARD, "--", "sh", "-c", "ulimit -n; ulimit -s")
    assert ended(tmp_path, env, *command) == (0, "512\n512\n", "")


def test_a_list_of_a_batch_job_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    env = environment(tmp_path, PBS_NODEFILE="/nowhere/nodes")

    status, out, err = ended(tmp_path, env, *GUARD, "--", "echo", "ran")
    assert (status, out) == (0, "ran\n"), err
    assert (
        "list of hosts /nowhere/nodes can't be read (No such file or directory): no host that only it names" in err
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "3", "FLUX_JOB_NNODES": "2", "FLUX_JOB_ID": "f1"},
            "FLUX_JOB_SIZE is 3 and FLUX_JOB_NNODES 2: how many tasks does this node have? Ask for as many on each",
        ),
        ({**TWO, "PMI_RANK": "2", "PBS_JOBID": "1"}, "PMI_RANK is 2, and PMI_SIZE 2: tasks count from 0"),
        ({**TWO, "PMI_RANK": "0"}, "One of 2 tasks by PMI_SIZE, but none of FLUX_JOB_ID"),
        ({**TWO, "PMI_RANK": "one", "PBS_JOBID": "1"}, "PMI_RANK is 'one', which is no number"),
        ({"HOLDFAST_GUARD_HOST": "n1"}, "HOLDFAST_GUARD_HOST is set, but no number of this task"),
        ({"HOLDFAST_GUARD_HOST": "n1", **TWO, "PMI_RANK": "0"}, "HOLDFAST_GUARD_SEED is not set"),
        ({**SLURM}, "SLURM_STEP_TASKS_PER_NODE is not set. The scheduler sets it: under Slurm srun"),
        (
            {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x3)"},
            "but SLURM_STEP_NODELIST names 2 hosts. Start it by srun",
        ),
        ({**SLURM, "SLURM_STEP_NODELIST": "n[1-x]"}, "'n[1-x]' is no host list"),
    ],
)
def test_numbers_that_make_no_sense_are_named_and_the_command_may_run_bare(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    status, out, err = ended(tmp_path, environment(tmp_path, **given), *GUARD, "--or-run", "--", "echo", "ran")

    assert (status, out) == (0, "ran\n")
    assert said in err and BARE in err


@pytest.mark.require("old_python")
@pytest.mark.parametrize("version", [(3, 8), (3, 9), (3, 10)])
def test_a_python_that_is_too_old_is_named_and_the_command_may_run_bare(
    tmp_path: Path, version: tuple[int, int]
) -> None:
    python = other_pythons().get(version)
    if python is None:
        pytest.skip(f"no Python {version}")
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join(PACKAGES), PYTHONDONTWRITEBYTECODE="1")

    status, out, err = ended(tmp_path, env, python, "-m", "holdfast", "guard", "--or-run", "--", "echo", "ran")
    assert (status, out) == (0, "ran\n")
    text = ".".join(map(str, version))
    assert (
        f"{python} on {HOST} is Python {text}, and Holdfast needs 3.11 or later. Run it by the Python that" in err
    )
    assert BARE in err

    status, out, err = ended(tmp_path, env, python, "-m", "holdfast", "guard", "--", "echo", "ran")
    assert (status, out) == (125, "")


@pytest.mark.require("newer_python")
@pytest.mark.parametrize("packages", [PACKAGES, [*PACKAGES, sysconfig.get_path("purelib")]], ids=["none", "others"])
def test_a_python_without_its_packages_or_with_those_of_another_is_named_and_the_command_may_run_bare(
    tmp_path: Path, packages: Sequence[str]
) -> None:
    newer = next(path for version, path in other_pythons().items() if version > sys.version_info[:2])
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join(packages), PYTHONDONTWRITEBYTECODE="1")

    status, out, err = ended(tmp_path, env, newer, "-m", "holdfast", "guard", "--or-run", "--", "echo", "ran")

    assert (status, out) == (0, "ran\n")
    assert (
        f"{newer} on {HOST} can't load Holdfast's packages" in err or f"can't be loaded by {newer}, Python 3" in err
    )
    assert "Run it by the Python that it was installed with" in err and BARE in err


def together(
    commands: Sequence[Sequence[str]], folders: Sequence[Path], envs: Sequence[dict[str, str]]
) -> list[str]:
    """What tasks that run at the same time print, once nothing of them is left; each ends with 0."""
    started = [
        subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, folder, env in zip(commands, folders, envs, strict=True)
    ]
    said = [each.communicate(timeout=PATIENCE_S)[0] for each in started]
    assert [each.returncode for each in started] == [0] * len(started), said
    for env in envs:
        nothing_is_left(env)
    return said


def test_hosts_that_share_no_folder_are_named_and_the_command_may_run_bare(tmp_path: Path) -> None:
    folders = [tmp_path / str(task) for task in range(2)]
    envs = []
    for task, folder in enumerate(folders):
        folder.mkdir()
        envs.append(environment(folder, **TWO, PMI_RANK=str(task), PBS_JOBID=f"{os.getpid()}.server"))
    command = (*GUARD, "--or-run", "--start-timeout", "8s", "--", "sh", "-c", "echo ran $PMI_RANK")

    said = together([command] * 2, folders, envs)

    assert f"Task 1 on {HOST}-1 has not seen {folders[1]}/.holdfast-guard-" in said[1]
    assert (
        "Start it from a folder that all hosts share, or set HOLDFAST_GUARD_HOST and HOLDFAST_GUARD_SEED" in said[1]
    )
    assert "tasks 1 have not come" in said[0]
    for task in range(2):
        assert BARE in said[task] and said[task].endswith(f"ran {task}\n")


@pytest.fixture
def walled() -> Iterator[Network]:
    """Two hosts, and a firewall before the first that lets in ssh alone."""
    with network.joined(["n1", "n2"]) as joined:
        for rule in ("-p tcp --dport 22 -j ACCEPT", "-i lo -j ACCEPT", "-j DROP"):
            line = joined.inside("n1", "iptables", "-A", "INPUT", *rule.split())
            subprocess.run(line, check=True, timeout=PATIENCE_S, capture_output=True)
        yield joined


@pytest.mark.require("netns")
@pytest.mark.require("iptables")
def test_a_firewall_between_tasks_is_named_with_the_ports_and_the_command_may_run_bare(
    walled: Network, tmp_path: Path
) -> None:
    first = walled.address("n1")
    job = {"HOLDFAST_GUARD_HOST": first, "HOLDFAST_GUARD_SEED": os.urandom(32).hex(), "HOLDFAST_GUARD_TASKS": "2"}
    command = (*GUARD, "--or-run", "--start-timeout", "8s", "--", "sh", "-c", "echo ran $HOLDFAST_GUARD_TASK")
    envs = []
    for task in range(2):
        (tmp_path / str(task)).mkdir()
        envs.append(environment(tmp_path / str(task), **job, HOLDFAST_GUARD_TASK=str(task)))
    commands = [walled.inside(name, *command) for name in ("n1", "n2")]

    said = together(commands, [tmp_path] * 2, envs)

    assert f"Task 1 on {HOST}-1 has not found task 0 on {first} ({first}) within 8 s: no answer" in said[1]
    assert "have TCP ports" in said[1] and "7000 to 9999 open between the hosts" in said[1]
    assert "tasks 1 have not come" in said[0]
    for task in range(2):
        assert BARE in said[task] and said[task].endswith(f"ran {task}\n")
