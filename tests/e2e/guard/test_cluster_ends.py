"""The Slurm of the tests leaves nothing behind, whatever ends the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import PATIENCE_S, wait_for

pytestmark = pytest.mark.require("slurm")
ROOT = Path(__file__).parents[3]
TESTS = """\
import pathlib, sys, time
from tests.support import slurm_cluster
folder = pathlib.Path(sys.argv[1])
with slurm_cluster.running(folder) as slurm:
    step = slurm.srun("-N2", "sh", "-c", "echo $SLURM_PROCID >> steps; sleep 1000", cwd=folder)
    if "killed" in sys.argv:
        time.sleep(1000)
    while not (folder / "steps").exists():
        time.sleep(0.1)
step.communicate()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="slurm-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def processes(folder: Path) -> dict[int, str]:
    """What belongs to the cluster in the folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.fsencode(folder) in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def test_after_sigkill_of_the_tests_neither_daemons_nor_jobs_are_left(folder: Path) -> None:
    tests = subprocess.Popen([sys.executable, "-c", TESTS, str(folder), "killed"], cwd=ROOT)
    try:
        wait_for(
            lambda: (folder / "steps").exists() and (folder / "steps").read_text().count("\n") == 2, "the step"
        )
        running = " ".join(processes(folder).values())
        assert all(each in running for each in ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "sleep"))
    finally:
        tests.kill()
        tests.wait()

    wait_for(lambda: not processes(folder), "no process of the cluster is left")
    wait_for(lambda: not folder.exists(), "nor its folder")


def test_at_their_end_it_is_ended_in_order(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TESTS, str(folder)], cwd=ROOT, timeout=PATIENCE_S, check=False)

    assert done.returncode == 0
    assert not processes(folder)
    assert (folder / "slurmctld.log").exists(), "what is left of it is its user's to look at"
