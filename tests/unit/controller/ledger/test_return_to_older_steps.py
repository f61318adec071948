"""A program that goes back to an older step within one launch: what it had done above that is lost."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.controller.ledger.goodput_story import Story

from holdfast._session.reports import ExitReason
from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast_controller.core import events as ev
from holdfast_controller.core.goodput.causes import OLDER_SAVE, WORK
from holdfast_controller.core.goodput.pace import pace_in_words
from holdfast_controller.core.goodput.progress import MOST_INTERVALS, MOST_SAVES, observe, recorded
from holdfast_controller.core.model.clock import Mono, Now
from holdfast_controller.core.model.goodput import Category, Progress, ProgressWatch, Reached
from holdfast_controller.core.model.recovery import EndReason, Related


def look(
    story: Story, watch: ProgressWatch, at_s: float, *, worker: int = 0, idle: str = "", **output: Any
) -> None:
    """The agent of a worker reports it at this second of the story."""
    vector = WorkerFeatures(f"workerpool0-{worker}", "h1", at_s, (), OutputFeatures(**output), idle)
    observe(watch, worker, vector, Now(Mono(at_s), story.wall(at_s)))


def told(story: Story, watch: ProgressWatch, at_s: float, since_s: float = 15) -> Progress:
    found = recorded(watch, story.ms(since_s), story.ms(at_s))
    assert found is not None
    story.of_job(at_s, ev.ProgressRecorded, generation=story.generation, progress=found)
    return found


def trained(story: Story, watch: ProgressWatch, *steps: tuple[int, int, int], **output: Any) -> None:
    """A step a second: (from, to, first step)."""
    for begin, end, step in steps:
        for at in range(begin, end + 1, 2):
            look(story, watch, at, step=float(step + at - begin), last_progress_s=float(at), **output)


@pytest.mark.parametrize("saved", [None, 40.0, 20.0])
def test_steps_above_the_one_that_was_resumed_are_lost(saved: float | None) -> None:
    story, watch = Story(), ProgressWatch(1)
    story.run()
    trained(story, watch, (16, 114, 2))
    if saved is not None:  # another one is of no use by then
        watch.saved = [Reached(story.ms(14 + saved), saved), Reached(story.ms(104), 90.0)]
    trained(story, watch, (116, 176, 41), resumed_step=40.0)
    found = told(story, watch, 176)
    assert (found.last, found.resumed) == (Reached(story.ms(176), 101.0), 40.0)
    assert [each.step for each in found.saved] == ([] if saved is None else [saved])
    story.end(177)
    sums = story.sums()
    assert sums["lost", OLDER_SAVE] == pytest.approx(8 * 62, abs=8)
    assert sums["train", WORK] == pytest.approx(8 * 100, abs=20)


def test_a_worker_that_has_not_yet_gone_back_tells_of_no_new_steps() -> None:
    story, watch = Story(), ProgressWatch(1)
    story.run()
    for at in range(16, 100, 2):
        for worker in (0, 1):
            look(story, watch, at, worker=worker, step=float(at), last_progress_s=float(at))
    look(story, watch, 100, worker=0, step=41.0, resumed_step=40.0, last_progress_s=100.0)
    look(story, watch, 101, worker=1, step=99.0, last_progress_s=98.0)
    assert watch.last is not None and watch.last.step == 41.0
    look(story, watch, 103, worker=1, step=43.0, resumed_step=40.0, last_progress_s=103.0)
    assert watch.last.step == 43.0 and not watch.ahead
    assert [each.category for each in watch.apart] == [Category.LOST]


def test_work_of_the_launch_before_is_lost_down_to_where_this_one_went_back_to() -> None:
    story, watch = Story(), ProgressWatch(2)
    story.run()
    story.progress(115, 15, first=(15, 0.0), last=(115, 100.0), saved=[(65, 50.0), (105, 90.0)])
    story.of_job(115, ev.RestartDecided, **restarted(story))
    story.generation = 2
    story.launch(116)
    story.start(117)
    trained(story, watch, (120, 140, 91), resumed_step=90.0)
    trained(story, watch, (142, 202, 51), resumed_step=50.0)
    told(story, watch, 202, 117)
    story.end(203)
    sums = story.sums()
    assert sums["lost", OLDER_SAVE] == pytest.approx(8 * (40 + 22), abs=16)
    assert sums["lost", "NONZERO_EXIT"] == pytest.approx(8 * 10, abs=8)


def restarted(story: Story) -> dict[str, Any]:
    decided: dict[str, Any] = {"end_reason": EndReason.NONZERO_EXIT, "related": Related()}
    return {**decided, "generation": 2, "stop_reason": ExitReason.STOPPED, "failed_at": story.wall(115)}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_program_says_its_time_is_told_once_and_none_is_made_up(seed: int) -> None:
    """Steps that fall, huge ones, saves that never end, phases that are not closed, workers that disagree."""
    dice, watch, steps = random.Random(seed), ProgressWatch(1), [0.0, 0.0]
    resumed: list[float | None] = [None, None]
    story, at = Story(snapshot_every=5), 16.0
    story.run()
    for _ in range(300):
        worker = dice.randrange(2)
        at += dice.choice((0.0, 0.5, 2.0, 2.0, 8.0, 60.0))
        if dice.random() < 0.05:
            resumed[worker] = back = dice.choice((0.0, steps[worker] / 2, 1e15, -5.0))
            steps[worker] = min(steps[worker], back)
        steps[worker] = dice.choice((steps[worker] + 1, steps[worker] + 30, steps[worker], 1e15, 0.25, -3.0))
        fields: dict[str, Any] = {"resumed_step": resumed[worker], "step_fell": dice.random() < 0.05}
        if dice.random() < 0.8:
            fields["step"] = steps[worker]
        else:
            fields["bar_step"] = dice.random() * 50
        fields["step_total"] = dice.choice((None, 10.0, 0.0, 1e15))
        fields["phase"] = dice.choice(("", "", "", "save", "evaluate"))
        fields["saved_step"] = dice.choice((None, None, steps[worker], 1e12, 7.0))
        fields["checkpoint_open"] = dice.random() < 0.2
        fields["last_checkpoint_s"] = dice.choice((None, at - 5, at + 1e6))
        fields["last_progress_s"] = dice.choice((at, at - 10, at + 5))
        look(story, watch, at, worker=worker, idle=dice.choice(("", "", "sleeps")), **fields)
        assert len(watch.apart) <= MOST_INTERVALS and len(watch.saved) <= MOST_SAVES
        assert all(each.start < each.end for each in watch.apart)
        assert all(one.end <= two.start for one, two in pairwise(watch.apart)), watch.apart
        pace_in_words(watch)
    at += 1
    if recorded(watch, story.ms(15), story.ms(at)) is not None:
        told(story, watch, at)
    story.end(at)
    whole_s = sum(story.sums().values())
    assert whole_s == pytest.approx(4 * (2 * (at - 10) + 3))
