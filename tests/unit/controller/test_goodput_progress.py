"""Progress of a generation from its workers' vectors, which agents send every two seconds."""

from __future__ import annotations

from typing import Any

from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast_controller.core.goodput.progress import MOST_INTERVALS, MOST_SAVES, observe, recorded
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.goodput import Category, Progress, ProgressWatch, Reached

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
    assert spans == [
        (4_000, 8_000, Category.SAVE),
        (10_000, 20_000, Category.PAUSE),
        (20_000, 30_000, Category.EVALUATE),
    ]
    assert [saved.step for saved in found.saved] == [2.0]


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


def test_nothing_seen_is_nothing_recorded() -> None:
    assert recorded(fed((2.0, {}), (4.0, {})), ms(0), ms(5)) is None
