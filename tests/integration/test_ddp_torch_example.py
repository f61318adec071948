"""The PyTorch DDP example: two ranks by env:// over gloo, a crash, a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rank_gang import Ended, run_gang

TRAIN = Path(__file__).parents[2] / "examples" / "ddp_torch" / "train.py"

pytestmark = pytest.mark.require("torch")


def train(directory: Path, *arguments: str, **env: str) -> list[Ended]:
    """Four epochs, 176 steps, a checkpoint each 50, on CPUs."""
    options = ("--epochs", "4", "--log-every", "44", "--checkpoint-dir", str(directory))
    return run_gang(TRAIN, *options, *arguments, world_size=2, env={"CUDA_VISIBLE_DEVICES": "", **env})


def final_weights(directory: Path) -> dict[str, Any]:
    import torch  # where it is missing, these tests never get here

    state: dict[str, Any] = torch.load(directory / "latest.pt", weights_only=True)
    assert state["step"] == 176
    return {name: tensor.tolist() for name, tensor in state["model"].items()}


@pytest.mark.parametrize(("fault", "code"), [([], 1), (["--crash-signal", "11"], -11)])
def test_a_run_that_crashed_and_resumed_ends_with_the_weights_of_an_unbroken_one(
    tmp_path: Path, fault: list[str], code: int
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    ranks = train(unbroken)
    assert [rank.code for rank in ranks] == [0, 0], ranks
    first, *steps, last = ranks[0].out.splitlines()
    assert first == "rank=0 world_size=2 device=cpu from step 0"
    assert [line.split(" loss=")[0] for line in steps] == [
        f"step={44 * epoch} epoch={epoch}/4" for epoch in (1, 2, 3, 4)
    ]
    assert float(last.removeprefix("done step=176 accuracy=")) > 0.9

    fault = ["--crash-rank", "1", "--crash-step", "117", *fault]
    ranks = train(broken, *fault)
    assert [rank.code for rank in ranks] == [1, code], ranks
    assert code < 0 or "RuntimeError: rank 1 was told to crash at step 117" in ranks[1].err

    ranks = train(broken, *fault, HOLDFAST_RESTART_COUNT="1")
    assert [rank.code for rank in ranks] == [0, 0], ranks
    assert ranks[0].out.startswith("rank=0 world_size=2 device=cpu from step 100\n")
    assert final_weights(broken) == final_weights(unbroken)
