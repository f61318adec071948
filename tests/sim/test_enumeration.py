"""Crashes before every single effect of twelve stories, and before pairs of them."""

from __future__ import annotations

import pytest
from tests.sim import enumeration, run
from tests.sim.stories import STORIES

PAIRS_OF_A_STORY = 60
ENDS = {
    "exit": "FAILED",
    "cancel": "CANCELLED",
}


@pytest.mark.parametrize("name", STORIES)
def test_story_ends_as_it_should(name: str) -> None:
    world = enumeration.run(STORIES[name], ())
    ends = {job.ended for job in world.oracles.ledger.jobs.values()}
    assert ends == {ENDS.get(name, "SUCCEEDED")}


@pytest.mark.parametrize("name", STORIES)
def test_story_survives_a_crash_before_any_effect(name: str) -> None:
    plan = STORIES[name]
    effects = enumeration.effects(plan)
    assert len(effects) > 50
    for number in range(1, len(effects) + 1):
        world = enumeration.run(plan, (number,))
        assert any("crash before" in line for _, line in world.story), f"nothing crashed at {effects[number - 1]}"


@pytest.mark.parametrize("name", STORIES)
def test_story_survives_two_crashes(name: str) -> None:
    plan = STORIES[name]
    count = len(enumeration.effects(plan))
    stride = count * (count - 1) // 2 // PAIRS_OF_A_STORY
    for crash_at in enumeration.pairs(count, stride):
        enumeration.run(plan, crash_at)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_stories_survive_every_pair_of_crashes() -> None:
    assert run.all_pairs() == 0
