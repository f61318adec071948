"""What can be wrong with the hosts of a step of a real Slurm: a sentence names the host and the cure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import (
    GOES_ON,
    GUARD,
    PATIENCE_S,
    WAITS,
    environment,
    guard_of,
    nothing_is_left,
    processes,
    wait_for,
)
from tests.support.fake_clock.library import FakeClock
from tests.support.machine_parts import ROOT, other_pythons
from tests.support.slurm_cluster import Slurm

pytestmark = pytest.mark.require("slurm")
BARE = ("--", "sh", "-c", "echo ran $SLURM_PROCID")
# Task 1 has another release.
RELEASE = """\
import os
from holdfast._base import version
if os.environ["SLURM_PROCID"] == "1":
    version.__version__ = "9.9.9"
from holdfast.cli import main
main()
"""
# Task 1 is at something else.
LATE = '[ "$SLURM_PROCID" = 0 ] || { sleep 20; exit 0; }; exec "$@"'
# Task 1 has another Python.
PYTHON = '[ "$SLURM_PROCID" = 0 ] || { shift; set -- "$OTHER" "$@"; export PYTHONPATH="$CLIENT"; }; exec "$@"'
# Task 1 lives by another clock.
CLOCK = '[ "$SLURM_PROCID" = 0 ] || export LD_PRELOAD="$CLOCK"; exec "$@"'


def said(slurm: Slurm, folder: Path, *command: str, **more: str) -> tuple[str, str]:
    """What a step prints, once nothing of it is left."""
    env = environment(folder, SLURM_CONF=slurm.environment["SLURM_CONF"], **more)
    step = slurm.srun("-N2", *command, cwd=folder, env=env)
    out, err = step.communicate(timeout=PATIENCE_S)
    nothing_is_left(env)
    return out, err


def test_a_script_that_forgot_srun_hears_that_its_guard_is_on_one_host(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    line = f"{' '.join(GUARD)} -- echo ran"
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n#SBATCH -N2 -o out\n{line}\n")

    job = slurm.run("sbatch", "--parsable", "--chdir", str(tmp_path), "job.sh", cwd=tmp_path, env=env).strip()

    wait_for(lambda: "JobState=COMPLETED" in slurm.run("scontrol", "show", "job", job), "it has ended")
    out = (tmp_path / "out").read_text()
    assert "Slurm has given this job 2 hosts, and the guard runs one rank, on this host alone." in out, out
    assert "srun holdfast guard -- …" in out
    assert "ran\n" in out
    nothing_is_left(env)


def test_another_release_on_a_host_is_named_and_the_command_may_run_bare(slurm: Slurm, tmp_path: Path) -> None:
    out, err = said(slurm, tmp_path, sys.executable, "-c", RELEASE, "guard", "--or-run", *BARE)

    assert re.search(
        r"Task 1 on \w*n\d has Holdfast 9.9.9, and task 0 on \w*n\d has .*: install one release", err
    ), err
    assert err.count("the command runs without a guard") == 2 and "Traceback" not in err, err
    assert sorted(out.splitlines()) == ["ran 0", "ran 1"]


def test_a_host_that_does_not_start_is_named(slurm: Slurm, tmp_path: Path) -> None:
    options = ("--or-run", "--start-timeout", "6s")

    out, err = said(slurm, tmp_path, "sh", "-c", LATE, "-", *GUARD, *options, *BARE)

    assert re.search(
        r"tasks 1 have not come; there was no word from \w*n\d\. See what those tasks have printed", err
    ), err
    assert out == "ran 0\n"


@pytest.mark.require("cc")
def test_a_host_whose_clock_is_apart_is_named(slurm: Slurm, tmp_path: Path) -> None:
    clock = FakeClock(tmp_path)
    clock.jump(600)
    more = {"CLOCK": clock.env["LD_PRELOAD"], "FAKE_CLOCK_OFFSET": clock.env["FAKE_CLOCK_OFFSET"]}

    out, err = said(slurm, tmp_path, "sh", "-c", CLOCK, "-", *GUARD, "--or-run", *BARE, **more)

    assert re.search(r"The clock of \w*n\d is \d+ s ahead of that of \w*n\d: .* Set the clocks", err), err
    assert sorted(out.splitlines()) == ["ran 0", "ran 1"]


@pytest.mark.require("old_python")
def test_a_host_with_an_old_python_is_named(slurm: Slurm, tmp_path: Path) -> None:
    other = next(path for version, path in other_pythons().items() if version < (3, 11))
    more = {"OTHER": other, "CLIENT": str(ROOT / "client"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("--or-run", "--start-timeout", "8s")

    out, err = said(slurm, tmp_path, "sh", "-c", PYTHON, "-", *GUARD, *options, *BARE, **more)

    assert re.search(rf"{other} on \S+ is Python 3\.\d+, and Holdfast needs 3.11 or later\. Run it by", err), err
    assert re.search(r"tasks 1 have not come; there was no word from \w*n\d", err), err
    assert sorted(out.splitlines()) == ["ran 0", "ran 1"]


def test_gpus_that_a_task_does_not_see_are_named_and_the_program_runs(slurm: Slurm, tmp_path: Path) -> None:
    out, err = said(slurm, tmp_path, *GUARD, *BARE, SLURM_STEP_GPUS="0,1", CUDA_VISIBLE_DEVICES="NoDevFiles")

    # Of the three nodes any two may be free.
    named = re.findall(r"Slurm has given GPU 0,1 of (\S+) to this step, and the program sees none", err)
    assert len(set(named)) == 2, err
    for node in named:
        assert f"See --gpus-per-task and --gpu-bind of srun, or --exclude={node}." in err
    assert sorted(out.splitlines()) == ["ran 0", "ran 1"]


def said_to(env: dict[str, str], task: int, name: str) -> str:
    """A variable of Slurm's, as a task whose guard runs has it."""
    words = Path(f"/proc/{guard_of(env, task)}/environ").read_text().split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


def test_a_node_that_is_set_down_ends_the_step(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N2", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists(), "both ranks run")
    node = said_to(env, 1, "SLURMD_NODENAME")

    slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    _, err = step.communicate(timeout=PATIENCE_S)
    assert step.returncode != 0, err
    assert f"Node failure on {node}" in err
    nothing_is_left(env)
    slurm.bring_up()


def next_guard(env: dict[str, str]) -> None:
    """Guard a command on the same machine: Slurm has killed all of a task at once, also what removes its scratch."""
    subprocess.run([*GUARD, "--", "true"], cwd=Path(env["TMPDIR"]).parent, env=env, timeout=PATIENCE_S, check=True)


def without(slurm: Slurm, env: dict[str, str], tasks: int, gone: int) -> str:
    """Take the node of one task away from the only job, whose tasks have a node each; returns its name."""
    nodes = [said_to(env, task, "SLURMD_NODENAME") for task in range(tasks)]
    node = nodes.pop(gone)
    job = said_to(env, 0, "SLURM_JOB_ID")
    # It writes a script for the shell that has resized its own job, where it is started.
    slurm.run("scontrol", "update", f"JobId={job}", f"NodeList={','.join(nodes)}", cwd=Path(env["TMPDIR"]).parent)
    return node


@pytest.mark.parametrize("gone", [0, 2])
def test_an_allocation_that_shrinks_ends_the_step_and_the_lost_node_is_named(
    slurm: Slurm, tmp_path: Path, gone: int
) -> None:
    slurm.bring_up()
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N4", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: len(list(tmp_path.glob("up-*"))) == 4, "all ranks run")

    node = without(slurm, env, 4, gone)

    _, err = step.communicate(timeout=PATIENCE_S)
    assert step.returncode != 0, err
    assert f"Task {gone} on {node} is gone before its time, so the job has ended." in err
    wait_for(lambda: not processes(env), "no process is left")
    next_guard(env)
    nothing_is_left(env)


def test_a_spare_takes_the_place_of_a_node_that_the_allocation_loses(slurm: Slurm, tmp_path: Path) -> None:
    slurm.bring_up()
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"], NUMBERS="SLURM_PROCID SLURM_NTASKS")
    options = ("-N3", "--label", *GUARD, "--spares=1")
    step = slurm.srun(*options, "--", sys.executable, "-c", GOES_ON, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0-1").exists() and (tmp_path / "up-1-1").exists(), "both ranks run")

    node = without(slurm, env, 3, 1)

    wait_for(lambda: any((tmp_path / f"up-1-{each}").exists() for each in (2, 3)), "it runs again")
    (tmp_path / "over").touch()
    out, err = step.communicate(timeout=PATIENCE_S)
    assert re.search("2: rank 1 of 2 as 1 2 generation [23]", out), out
    assert f"task 1 on {node} is gone: no spares are left" in err
    (record,) = tmp_path.glob("holdfast-*")
    assert json.loads((record / "job.json").read_text())["state"] == "JOB_STATE_SUCCEEDED"
    wait_for(lambda: not processes(env), "no process is left")
    next_guard(env)
    nothing_is_left(env)
