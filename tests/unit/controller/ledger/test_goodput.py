"""The goodput ledger: every millisecond of every share is in one category, and late knowledge moves only names."""

from __future__ import annotations

import pytest
from tests.unit.controller.ledger.goodput_stories import STORIES
from tests.unit.controller.ledger.goodput_story import Story

from holdfast_controller.core.goodput.causes import PAYERS
from holdfast_controller.core.goodput.progress import MOST_SAVES
from holdfast_controller.core.model.goodput import Reached
from holdfast_controller.core.model.recovery import EndReason


@pytest.mark.parametrize("name", STORIES)
def test_story_adds_up(name: str) -> None:
    STORIES[name]()


def test_every_reason_has_a_payer() -> None:
    assert {reason.value for reason in EndReason} <= PAYERS.keys()


def saved(story: Story) -> list[Reached]:
    ledger = story.oracle.cluster.jobs["a"].ledger
    assert ledger is not None
    return ledger.saved


def test_saves_of_all_generations_are_kept_once_and_none_of_a_clock_that_is_ahead() -> None:
    story = Story()
    story.run()
    first = [(45, 30.0), (75, 60.0)]
    story.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=first)
    story.progress(116, 15, first=(15, 0.0), last=(115, 100.0), saved=[*first, (1e6, 90.0)])
    story.restart(116, EndReason.NONZERO_EXIT)
    story.launch(120)
    story.start(121)
    story.progress(200, 121, first=(125, 61.0), last=(199, 130.0), saved=[(150, -1.0)])
    assert saved(story) == [Reached(story.ms(at), step) for at, step in [*first, (150, -1.0)]]


def test_saves_stay_bounded_and_the_newest_is_among_them() -> None:
    story = Story()
    story.run()
    for turn in range(10):
        many = [(100 * turn + 20 + n, 100.0 * turn + n) for n in range(20)]
        story.progress(100 * turn + 90, 15, first=(15, 0.0), last=(100 * turn + 80, 1000.0), saved=many)
    found = saved(story)
    assert MOST_SAVES // 2 < len(found) <= MOST_SAVES
    assert found[-1] == Reached(story.ms(939), 919.0) and found[0].step == 0.0
    assert found == sorted(found, key=lambda each: each.at)


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        (Reached(0, 1_234_567.0), "step 1234567"),
        (Reached(0, 12.5), "step 12.5"),
        (Reached(0, 0.1 + 0.2), "step 0.3"),
        (Reached(0, 10_000_001.0, 50_000_000.0), "10000001 of 50000000"),
    ],
)
def test_a_step_is_written_out_however_large(reached: Reached, words: str) -> None:
    assert reached.in_words == words
