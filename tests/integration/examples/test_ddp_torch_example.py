"""The PyTorch DDP example: two ranks by env:// over gloo, a crash, a resume."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.rank_gang import Ended, run_gang

TRAIN = Path(__file__).parents[3] / "examples" / "ddp_torch" / "train.py"

pytestmark = pytest.mark.require("torch")


def train(directory: Path, *arguments: str, **env: str) -> list[Ended]:
    """Four epochs, 176 steps, a checkpoint each 50, on CPUs."""
    options = ("--epochs", "4", "--log-every", "44", "--checkpoint-dir", str(directory))
    return run_gang(TRAIN, *options, *arguments, world_size=2, env={"CUDA_VISIBLE_DEVICES": "", **env})


def weights(directory: Path, step: int) -> dict[str, Any]:
    """Those of the newest checkpoint, which is that of ``step``."""
    import torch  # where it is missing, these tests never get here

    state: dict[str, Any] = torch.load(directory / "latest.pt", weights_only=True)
    assert state["step"] == step
    return {name: tensor.tolist() for name, tensor in state["model"].items()}


def assert_left(rank: Ended) -> None:
    """This rank's peer has gone: it ends with the exception of that.

    On its way out it may be aborted instead, by a thread of gloo that throws while Python is being taken down.
    """
    assert rank.code in (1, -signal.SIGABRT), rank
    assert "Traceback" in rank.err, rank


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The weights that a run ends with that nothing happens to."""
    directory = tmp_path_factory.mktemp("unbroken")
    ranks = train(directory)
    assert [rank.code for rank in ranks] == [0, 0], ranks
    first, *steps, last = ranks[0].out.splitlines()
    assert first == "rank=0 world_size=2 device=cpu from step 0"
    assert [line.split(" loss=")[0] for line in steps] == [
        f"step={44 * epoch} epoch={epoch}/4" for epoch in (1, 2, 3, 4)
    ]
    assert float(last.removeprefix("done step=176 accuracy=")) > 0.9
    return weights(directory, step=176)


def test_a_run_that_crashed_and_resumed_ends_with_the_weights_of_an_unbroken_one(
    tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    fault = ("--crash-rank", "1", "--crash-step", "117")
    ranks = train(tmp_path, *fault)
    assert_left(ranks[0])
    assert ranks[1].code == 1, ranks
    assert "RuntimeError: rank 1 was told to crash at step 117" in ranks[1].err
    weights(tmp_path, step=100)

    ranks = train(tmp_path, *fault, HOLDFAST_RESTART_COUNT="1")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert ranks[0].out.startswith("rank=0 world_size=2 device=cpu from step 100\n")
    assert weights(tmp_path, step=176) == unbroken


def test_a_rank_that_dies_of_a_signal_leaves_its_last_checkpoint(tmp_path: Path) -> None:
    """What follows is the same as after an exception: a run from that checkpoint."""
    ranks = train(tmp_path, "--crash-rank", "1", "--crash-step", "59", "--crash-signal", "11")
    assert_left(ranks[0])
    assert ranks[1].code == -signal.SIGSEGV, ranks
    weights(tmp_path, step=50)
