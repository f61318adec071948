"""Progress of a generation from its workers' vectors, which agents send every two seconds."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast_controller.core.goodput.progress import MOST_INTERVALS, MOST_SAVES, observe, recorded
from holdfast_controller.core.goodput.work import reached_at
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.goodput import Category, Interval, Progress, ProgressWatch, Reached

T0 = 1_700_000_000.0


def fed(*reports: tuple[float, dict[str, Any]], watch: ProgressWatch | None = None) -> ProgressWatch:
    """A watch after reports at these seconds; ``idle`` is the declared reason, all else is of the output."""
    watch = watch or ProgressWatch(1)
    for at_s, fields in reports:
        idle = fields.pop("idle", "")
        vector = WorkerFeatures("workerpool0-0", "h1", at_s, (), OutputFeatures(**fields), idle)
        observe(watch, 0, vector, Now(Mono(at_s), Wall(T0 + at_s)))
    return watch


def until(watch: ProgressWatch, end_s: float) -> Progress:
    found = recorded(watch, ms(0), ms(end_s))
    assert found is not None
    return found


def ms(at_s: float) -> int:
    return round((T0 + at_s) * 1000)


def test_first_step_is_found_between_two_looks() -> None:
    watch = fed(
        (4.0, {}), (6.0, {"step": 6.0, "last_progress_s": 6.0}), (16.0, {"step": 56.0, "last_progress_s": 16.0})
    )
    assert until(watch, 17).first == Reached(ms(5.0), 1.0)


def test_first_step_of_lines_that_were_understood_late_is_where_they_began() -> None:
    told: dict[str, Any] = {"bar_is_step": True, "first_step": 1.0, "first_step_s": 5.0}
    watch = fed(
        (4.0, {"last_progress_s": 3.0}),
        (24.0, {"last_progress_s": 24.0}),
        (26.0, {"bar_step": 40.0, "last_progress_s": 26.0, **told}),
        (28.0, {"bar_step": 44.0, "last_progress_s": 28.0, **told}),
    )
    found = until(watch, 30)
    assert (found.first, found.began, found.last) == (Reached(ms(5.0), 1.0), ms(5.0), Reached(ms(28.0), 44.0))


@pytest.mark.parametrize("first", [(60.0, 5.0), (1.0, 90.0), (None, 5.0), (1.0, None)])
def test_a_first_step_that_can_not_be_is_not_believed(first: tuple[float | None, float | None]) -> None:
    report: dict[str, Any] = {"bar_step": 40.0, "first_step": first[0], "first_step_s": first[1]}
    assert fed((26.0, report)).first == Reached(ms(26.0), 40.0)


def test_lines_of_a_start_are_no_work_and_nothing_is_known_after_the_last_line() -> None:
    starts: list[tuple[float, dict[str, Any]]] = [
        (2.0, {"last_progress_s": 2.0, "began_work": False}),
        (90.0, {"last_progress_s": 2.0, "began_work": False}),
    ]
    assert recorded(fed(*starts), ms(0), ms(100)) is None
    watch = fed((10.0, {"last_progress_s": 10.0, "began_work": True}), (90.0, {"last_progress_s": 40.0}))
    found = until(watch, 100)
    assert (found.began, found.until) == (ms(10.0), ms(40.0))


def test_first_step_of_a_resumed_program_counts_from_there() -> None:
    reports: list[tuple[float, dict[str, Any]]] = [
        (4.0, {"resumed_step": 100.0}),
        (6.0, {"step": 106.0, "last_progress_s": 6.0, "resumed_step": 100.0}),
        (16.0, {"step": 156.0, "last_progress_s": 16.0, "resumed_step": 100.0}),
    ]
    found = until(fed(*reports), 17)
    assert (found.first, found.began, found.resumed) == (Reached(ms(5.0), 101.0), ms(5.0), 100.0)


def test_unknown_first_step_lies_in_the_middle_of_what_is_possible() -> None:
    watch = fed((4.0, {}), (6.0, {"step": 900.0, "last_progress_s": 6.0}), (16.0, {"step": 950.0}))
    assert until(watch, 17).first == Reached(ms(5.0), 900.0)


def test_a_step_that_falls_is_not_believed() -> None:
    watch = fed((2.0, {"step": 50.0}), (4.0, {"step": 3.0}), (6.0, {"step": 51.0}))
    assert until(watch, 7).last == Reached(ms(6.0), 51.0)


def counted(step: float | None, **fields: Any) -> dict[str, Any]:
    return {"bar_step": step, "last_progress_s": 10.0, **fields}


def test_a_count_of_each_epoch_tells_of_no_steps() -> None:
    watch = fed((10.0, counted(1.0, step_total=50.0)), (500.0, counted(50.0, step_total=50.0)))
    assert until(watch, 501).last == Reached(ms(10.0), 50.0, 50.0)
    fed((510.0, counted(None, last_progress_s=510.0)), (900.0, counted(None, last_progress_s=900.0)), watch=watch)
    found = until(watch, 901)
    assert (found.first, found.last, found.stretches) == (None, None, ())
    assert (found.began, found.until) == (ms(10.0), ms(900.0))


def test_an_agent_that_is_restarted_leaves_a_count_what_it_was() -> None:
    counts: dict[str, Any] = {"step_total": 900.0}
    watch = fed((10.0, counted(1.0, **counts)), (500.0, counted(50.0, last_progress_s=500.0, **counts)))
    fed((504.0, counted(None)), (506.0, counted(49.0, **counts)), watch=watch)
    assert until(watch, 507).last == Reached(ms(500.0), 50.0, 900.0)
    fed((510.0, counted(51.0, last_progress_s=510.0, **counts)), watch=watch)
    found = until(watch, 511)
    assert (found.first, found.last) == (Reached(ms(10.0), 1.0, 900.0), Reached(ms(510.0), 51.0, 900.0))


def test_another_count_is_followed_from_where_it_begins() -> None:
    rows, steps = {"step_total": 10_000.0}, {"step_total": 900.0, "last_progress_s": 60.0}
    watch = fed((10.0, counted(1_000.0, **rows)), (20.0, counted(9_000.0, **rows)))
    fed((60.0, counted(1.0, **steps)), (90.0, counted(4.0, **steps)), watch=watch)
    found = until(watch, 91)
    assert found.first is not None and found.last is not None
    assert (found.first.step, found.last.step, found.last.of) == (1.0, 4.0, 900.0)
    assert found.began == ms(10.0)


def test_reported_steps_that_have_fallen_are_believed_again_once_they_are_exceeded() -> None:
    watch = fed((2.0, {"step": 5.0}), (4.0, {"step": 50.0}), (6.0, {"step": 50.0, "step_fell": True}))
    assert recorded(watch, ms(0), ms(7)) is None or until(watch, 7).last is None
    fed((8.0, {"step": 51.0}), watch=watch)
    assert until(watch, 9).last == Reached(ms(8.0), 51.0)


def test_steps_of_one_worker_that_fall_leave_those_of_the_others() -> None:
    watch = ProgressWatch(1)
    for at_s, worker, fields in (
        (10.0, 0, {"bar_step": 10.0, "bar_is_step": True}),
        (10.0, 1, counted(400.0, step_total=500.0)),
        (30.0, 0, {"bar_step": 30.0, "bar_is_step": True}),
        (32.0, 1, counted(None)),
        (40.0, 0, {"bar_step": 40.0, "bar_is_step": True}),
        (60.0, 0, {"bar_step": 60.0, "bar_is_step": True}),
    ):
        vector = WorkerFeatures(f"workerpool0-{worker}", "h1", at_s, (), OutputFeatures(**fields))
        observe(watch, worker, vector, Now(Mono(at_s), Wall(T0 + at_s)))
    assert until(watch, 61).last == Reached(ms(60.0), 60.0)


def test_an_epoch_that_is_counted_at_its_end_is_no_warm_up() -> None:
    counts: dict[str, Any] = {"step_total": 10.0, "began_work": True, "last_progress_s": 600.0}
    watch = fed((2.0, {}), (12.0, {"began_work": True}), (600.0, counted(1.0, **counts)))
    assert until(watch, 700).began == ms(12.0)


def test_idle_saving_and_evaluating_are_apart() -> None:
    watch = fed(
        (2.0, {"step": 1.0}),
        (4.0, {"step": 2.0, "phase": "save"}),
        (8.0, {"step": 2.0, "saved_step": 2.0}),
        (10.0, {"step": 3.0, "idle": "waits for data"}),
        (20.0, {"step": 3.0, "phase": "evaluate"}),
    )
    found = until(watch, 30)
    spans = [(each.start - ms(0), each.end - ms(0), each.category) for each in found.apart]
    # Nothing tells when between two looks a save ended, and the evaluation began.
    assert spans == [
        (4_000, 7_000, Category.SAVE),
        (10_000, 19_000, Category.PAUSE),
        (19_000, 30_000, Category.EVALUATE),
    ]
    assert [saved.step for saved in found.saved] == [2.0]


def test_a_save_that_is_declared_beside_the_steps_is_training() -> None:
    watch = fed((2.0, {"step": 1.0}))
    for look in range(4, 60, 2):  # a thread writes while the loop goes on
        fed((float(look), {"step": float(look), "last_progress_s": float(look), "phase": "save"}), watch=watch)
    assert sum(each.end - each.start for each in until(watch, 59).apart) <= 1_000, "what no look has seen"
    fed((62.0, {"step": 62.0, "last_progress_s": 62.0, "saved_step": 4.0}), watch=watch)
    assert sum(each.end - each.start for each in until(watch, 63).apart) <= 1_000


def test_saves_with_some_steps_between_them_are_saves() -> None:
    watch = fed((2.0, {"step": 1.0}))
    for turn in range(10):  # each look is within a save of eight seconds, with ten steps before the next
        for look in range(0, 10, 2):
            said: dict[str, Any] = {"step": 10.0 * turn + 10, "last_progress_s": 4.0 + 10 * turn, "phase": "save"}
            fed((4.0 + 10 * turn + look, said), watch=watch)
    assert sum(each.end - each.start for each in until(watch, 104).apart) == pytest.approx(82_000, abs=2_000)


def test_a_checkpoint_that_training_waits_for_is_a_save_and_one_beside_it_is_none() -> None:
    writing: dict[str, Any] = {"checkpoint_open": True, "last_progress_s": 10.0, "step": 10.0}
    waited = fed((10.0, dict(writing)), (40.0, {"step": 10.0, "last_progress_s": 10.0, "last_checkpoint_s": 38.0}))
    (save,) = until(waited, 41).apart
    assert (save.start, save.end, save.category) == (ms(10), ms(38), Category.SAVE)
    beside = fed((10.0, dict(writing)), (40.0, {"step": 40.0, "last_progress_s": 40.0, "last_checkpoint_s": 38.0}))
    found = until(beside, 41)
    assert not found.apart
    assert found.saved == (Reached(ms(10), 10.0),)


def test_what_is_gathered_stays_bounded_and_keeps_its_length() -> None:
    watch = ProgressWatch(1)
    for turn in range(1000):
        at = 10.0 * turn
        fed((at, {"step": float(turn), "saved_step": float(turn)}), watch=watch)
        fed((at + 4, {"step": float(turn), "idle": "x"}), (at + 7, {"step": float(turn)}), watch=watch)
    found = until(watch, 10_000)
    assert len(found.saved) <= MOST_SAVES
    assert len(found.apart) <= MOST_INTERVALS
    assert sum(each.end - each.start for each in found.apart) == 1000 * 3_000
    assert all(a.end <= b.start for a, b in zip(found.apart, found.apart[1:], strict=False))


def test_evaluations_and_saves_by_turns_keep_their_length_and_about_their_time() -> None:
    watch, done = ProgressWatch(1), {"save": 60.0, "evaluate": 120.0}
    for turn in range(500):
        at = 1000.0 * turn
        for what, takes_s in done.items():
            began: dict[str, Any] = {"step": 8.0 * turn, "step_s": at, "last_progress_s": at}
            fed((at, {**began, "phase": what}), (at + takes_s, {**began, "phase": "train"}), watch=watch)
            at += 300
    found = until(watch, 500_000).apart
    assert len(found) <= MOST_INTERVALS
    assert all(a.start < a.end <= b.start for a, b in pairwise(found))
    for category in (Category.SAVE, Category.EVALUATE):
        of_what = [each for each in found if each.category is category]
        whole = sum(each.end - each.start for each in of_what)
        # Looks so far apart have a second for where it ended.
        assert whole == pytest.approx(500_000 * done[category.value], rel=0.02)
        early = sum(each.end - each.start for each in of_what if each.end <= ms(250_000))
        assert early == pytest.approx(whole / 2, rel=0.15)


def test_saves_that_are_kept_are_spread_over_the_whole_time() -> None:
    watch = ProgressWatch(1)
    for turn in range(1000):
        fed((10.0 * turn, {"step": float(turn), "saved_step": float(turn)}), watch=watch)
    steps = [save.step for save in until(watch, 10_000).saved]
    assert (steps[0], steps[-1]) == (0.0, 999.0)
    assert max(b - a for a, b in pairwise(steps)) <= 3 * 1000 / MOST_SAVES


def test_nothing_seen_is_nothing_recorded() -> None:
    assert recorded(fed((2.0, {}), (4.0, {})), ms(0), ms(5)) is None


@pytest.mark.parametrize("seed", range(40))
def test_marks_agree_with_what_was_done_however_late_the_looks_come(seed: int) -> None:
    chance = random.Random(seed)
    step_s, found = chance.uniform(0.05, 1.5), ProgressWatch(1)
    done: list[tuple[float, float, str]] = []  # what is done instead of steps: from, to, what
    at, ends = chance.uniform(2.0, 9.0), []
    for step in range(1, 71):
        at += step_s
        ends.append(at)
        if step % 20 == 0:  # ten steps follow the last
            done.append((at, at + chance.uniform(5.0, 40.0), ("save", "evaluate", "idle")[step // 20 - 1]))
            at = done[-1][1]
    look = 0.0
    sent: tuple[float, dict[str, Any]] = (-9.0, {})
    while look < at:
        look += chance.uniform(1.9, 4.5)
        doing = next((what for start, end, what in done if start <= look < end), "")
        steps = sum(end <= look for end in ends)
        vector: dict[str, Any] = {"idle": "x"} if doing == "idle" else {"phase": doing}
        if steps:
            vector |= {"step": float(steps), "last_progress_s": look, "step_s": ends[steps - 1]}
        if sent[1].get("step") != vector.get("step") or sent[1].keys() != vector.keys() or look - sent[0] >= 8.0:
            sent = (look, dict(vector))
            fed((look, vector), watch=found)
    told = until(found, at + 5.0)
    assert len(told.apart) == len(done)
    for mark, (start, end, _) in zip(told.apart, done, strict=True):
        assert abs(mark.start - ms(start)) <= 10
        assert abs(mark.end - ms(end)) <= 1_510, (mark, ms(start), ms(end))
    assert told.began is not None
    assert abs(told.began - ms(ends[0])) <= 1_000
    length = sum(mark.end - mark.start for mark in told.apart) / 1000
    assert abs(length - sum(end - start for start, end, _ in done)) <= 2.0


def test_an_epoch_that_began_is_not_kept_by_a_restart_that_begins_it_again() -> None:
    told = Progress(since=ms(0), until=ms(90), first=Reached(ms(0), 1.0, 5.0), last=Reached(ms(50), 6.0, 5.0))
    assert [reached_at(told, step) for step in (6.0, 7.0)] == [ms(50), ms(90)]


def test_a_step_is_reached_by_work_not_by_pauses() -> None:
    apart = (Interval(ms(10), ms(90), Category.PAUSE),)
    told = Progress(since=ms(0), until=ms(101), first=Reached(ms(0), 0.0), last=Reached(ms(100), 20.0), apart=apart)
    assert [reached_at(told, step) for step in (5.0, 10.0, 15.0)] == [ms(5), ms(10), ms(95)]
