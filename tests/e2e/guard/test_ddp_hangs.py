"""PyTorch DDP under ``holdfast guard``: a rank that no longer takes part is noticed, and the training goes on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.e2e.guard.guarding import GUARD, PATIENCE_S, environment, guard, nothing_is_left
from tests.support.slurm_cluster import Slurm

pytestmark = pytest.mark.require("torch")
# Longer than busy cores keep a rank that is well from its next step.
OPTIONS = ("--restart-on-hang", "--hang-timeout", "15s", "--record", "rec")
EXAMPLES = Path(__file__).parents[3] / "examples"
SIZES = "--epochs 2 --log-every 20 --checkpoint-every 25 --checkpoint-dir saved"


def training(kind: str) -> tuple[str, ...]:
    """DDP on gloo, of which rank 1 no longer calls the collective at step 60 of the first generation."""
    fault = f"--hang-rank 1 --hang-step 60 --hang-kind {kind}"
    return (sys.executable, str(EXAMPLES / "ddp_torch/train.py"), *SIZES.split(), *fault.split())


def ddp_environment(folder: Path, **more: str) -> dict[str, str]:
    # torch's cache would lie in the scratch folder.
    return environment(folder, OMP_NUM_THREADS="1", TORCHINDUCTOR_CACHE_DIR=str(folder / "compiled"), **more)


def check_story(folder: Path, out: str, err: str) -> None:
    """One hang, with its evidence beside the output; one relaunch in place, on from the save; no more than that."""
    begun = re.findall(r"rank=0 world_size=2 device=cpu from step (\d+)", out)
    assert begun == ["0", "50"], out
    assert re.search(r"done step=\d+", out), out
    assert "guard: 1 recovery" in err and "1 hang noticed; see rec" in err, err
    assert [path.name for path in (folder / "rec").glob("hang-*.txt")] == ["hang-1.txt"]
    evidence = (folder / "rec/hang-1.txt").read_text()
    assert re.match(
        r"workerpool\d-0 rank 1 is in train.py:\d+ `hang`; workerpool0-0 rank 0 waits in backward", evidence
    )
    assert "_engine_run_backward" in evidence, "the stack of the rank that waits"


def test_a_rank_that_leaves_the_others_in_a_collective_is_named_and_the_training_goes_on(tmp_path: Path) -> None:
    env = ddp_environment(tmp_path)

    done = guard(tmp_path, "--nproc", "2", *OPTIONS, "--", *training("sleep"), env=env)

    assert done.returncode == 0, done.stderr
    check_story(tmp_path, done.stdout, done.stderr)
    nothing_is_left(env)


@pytest.mark.require("slurm")
def test_a_rank_that_is_stopped_in_a_step_is_named_and_the_step_ends_well(slurm: Slurm, tmp_path: Path) -> None:
    env = ddp_environment(tmp_path, SLURM_CONF=slurm.environment["SLURM_CONF"])

    step = slurm.srun("-N2", *GUARD, *OPTIONS, "--", *training("stop"), cwd=tmp_path, env=env)
    out, err = step.communicate(timeout=PATIENCE_S)

    assert step.returncode == 0, err
    check_story(tmp_path, out, err)
    nothing_is_left(env)
