"""``srun holdfast guard`` on a real Slurm."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import PATIENCE_S, RANKS, WAITS, environment, nothing_is_left, processes, wait_for
from tests.support import slurm_cluster
from tests.support.slurm_cluster import Slurm

pytestmark = pytest.mark.require("slurm")
GUARD = (sys.executable, "-m", "holdfast", "guard")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # Slurm's sockets lie there, whose names can't be as long as a test's folder.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        with slurm_cluster.running(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_ranks_are_the_tasks_and_the_step_ends_as_the_guilty_rank_did(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, FAILS="3,7", GUILTY="1", SLURM_CONF=slurm.environment["SLURM_CONF"])
    command = (*GUARD, "--max-restarts", "1", "--record", "rec", "--", sys.executable, "-c", RANKS)

    step = slurm.srun("-N2", "--ntasks=3", "--label", *command, cwd=tmp_path, env=env)
    out, err = step.communicate(timeout=PATIENCE_S)

    assert step.returncode == 7, err
    assert "task 1: Exited with exit code 7" in err
    assert err.count("Exited with exit code") == 1, "the victims' tasks end well"
    # Two tasks on the first node, one on the second.
    ranks = [f"{rank}: rank {rank} of 3 local {local} generation 2" for rank, local in ((0, 0), (1, 1), (2, 0))]
    assert sorted(line for line in out.splitlines() if line.endswith("generation 2")) == ranks
    assert "guard: 1 recovery" in err
    assert (tmp_path / "rec/job.json").exists()
    nothing_is_left(env)


def test_a_cancelled_step_leaves_nothing(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N2", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists(), "both ranks run")

    slurm.run("scancel", "--me")

    step.communicate(timeout=PATIENCE_S)
    assert step.returncode != 0
    nothing_is_left(env)


def test_a_task_whose_guard_is_killed_ends_the_step(slurm: Slurm, tmp_path: Path) -> None:
    env = environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])
    step = slurm.srun("-N2", *GUARD, "--", sys.executable, "-c", WAITS, cwd=tmp_path, env=env)
    wait_for(lambda: (tmp_path / "up-0").exists() and (tmp_path / "up-1").exists(), "both ranks run")
    guards = [pid for pid, line in processes(env).items() if " -m holdfast guard " in line and "tied" not in line]
    (second,) = [pid for pid in guards if b"SLURM_PROCID=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]

    os.kill(second, signal.SIGKILL)

    _, err = step.communicate(timeout=PATIENCE_S)
    assert re.search("Task 1 on n[1-4] is gone before its time", err), err
    assert step.returncode != 0
    nothing_is_left(env)
