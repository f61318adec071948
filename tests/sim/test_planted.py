"""Every planted bug is noticed, by the oracle and at the seed that the table names."""

from __future__ import annotations

import functools
import json

import pytest
from tests.sim import planted
from tests.sim.plan import Plan
from tests.sim.planted import PLANTED

KNOWN = json.loads(planted.SEEDS.read_text())


def test_every_bug_has_a_seed() -> None:
    assert list(KNOWN) == list(PLANTED)
    assert all(seed < planted.MOST_SEEDS for seed, _ in KNOWN.values())


@functools.cache
def is_well(plan: Plan) -> bool:
    """Whether nothing is found in a world without a bug; several bugs are found in the same one."""
    return planted.run(planted.Planted("none"), plan) is None


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    seed, oracle = KNOWN[name]
    plan = PLANTED[name].draw(seed)
    found = planted.run(PLANTED[name], plan)
    assert found is not None and found.oracle == oracle
    assert is_well(plan), "the same world without the bug"


def test_the_page_has_what_was_found() -> None:
    assert planted.PAGE.read_text() == planted.page(KNOWN), "run: python -m tests.sim.planted"
