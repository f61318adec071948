"""What a process says of itself in its environment is a number, or nothing."""

from __future__ import annotations

import pytest

from holdfast_agent.shell.evidence.processes import rank_in
from holdfast_agent.shell.shims.orphans import _generation


@pytest.mark.parametrize(
    ("said", "rank"), [("3", 3), ("", None), ("²", None), ("9" * 5000, None), ("-1", None), ("٣", None)]
)
def test_the_rank_that_a_process_says_it_is(said: str, rank: int | None) -> None:
    assert rank_in({"RANK": said}) == rank


@pytest.mark.parametrize(
    ("variable", "generation"),
    [(b"HOLDFAST_GENERATION=7", 7), (b"HOLDFAST_GENERATION=" + b"9" * 5000, float("inf")), (b"A=7", float("inf"))],
)
def test_the_generation_that_a_process_says_it_is_of(variable: bytes, generation: float) -> None:
    assert _generation(variable) == generation
