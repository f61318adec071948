"""The time of a step of late, beside the job's best hour."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from holdfast_controller.core.goodput.pace import HOUR, duration, note_pace, pace_in_words
from holdfast_controller.core.model.goodput import ProgressWatch, Reached


def trained(*minutes: float, watch: ProgressWatch | None = None) -> ProgressWatch:
    """A watch after so many steps in each minute."""
    watch = watch or ProgressWatch(1)
    at, step = (watch.pace[-1].at, watch.pace[-1].step) if watch.pace else (0, 0.0)
    note_pace(watch, Reached(at, step))
    for number, steps in enumerate(minutes, 1):
        step += steps
        note_pace(watch, Reached(at + 60_000 * number, step))
    return watch


def test_nothing_is_said_before_ten_minutes_and_nothing_is_compared_before_an_hour() -> None:
    assert pace_in_words(None) == pace_in_words(trained(*[40] * 9)) == ""
    assert pace_in_words(trained(*[40] * 10)) == pace_in_words(trained(*[40] * 59)) == "1.50 s a step"
    assert pace_in_words(trained(*[40] * 60)) == "1.50 s a step, as usual"


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (37.0, "1.62 s a step, as usual"),
        (30.0, "2.00 s a step, 33 % slower than in its best hour"),
        (60.0, "1.00 s a step, as usual"),
    ],
)
def test_the_last_ten_minutes_are_beside_the_best_hour(later: float, words: str) -> None:
    assert pace_in_words(trained(*[40] * 60, *[later] * 10)) == words


def test_an_evaluation_between_steps_does_not_make_the_training_slow() -> None:
    assert pace_in_words(trained(*[40] * 66, 5, 40, 2, 40)) == "1.50 s a step, as usual"


def test_what_is_kept_is_an_hour_of_points_and_a_best_hour_is_never_forgotten() -> None:
    watch = trained(*[40] * 60, *[20] * 300)
    assert len(watch.pace) == HOUR + 1
    assert pace_in_words(watch) == "3.00 s a step, 100 % slower than in its best hour"


def test_steps_that_fall_or_come_within_a_minute_are_no_points() -> None:
    watch = trained(40, 40)
    for at, step in ((121_000, 81.0), (240_000, 80.0), (240_000, 10.0), (100_000, 90.0)):
        note_pace(watch, Reached(at, step))
    assert [point.step for point in watch.pace] == [0.0, 40.0, 80.0]


def test_it_is_kept_across_a_restart_and_a_watch_of_before_has_none() -> None:
    watch, stored = trained(*[40] * 70), TypeAdapter(ProgressWatch)
    assert stored.validate_json(stored.dump_json(watch)) == watch
    assert pace_in_words(stored.validate_json(b'{"generation": 1, "newest": 5}')) == ""


@pytest.mark.parametrize(
    ("ms", "words"), [(0.4, "0.4 ms"), (48.2, "48 ms"), (999.6, "1.00 s"), (1420, "1.42 s"), (210_000, "3.5 min")]
)
def test_times_of_steps_are_short(ms: float, words: str) -> None:
    assert duration(ms) == words


@pytest.mark.parametrize("step", [5e-324, 1e-300, 1.0, 1e300])
@pytest.mark.parametrize("best_ms", [5e-324, 1.0, 1.7e308])
def test_a_pace_of_any_steps_is_told_in_few_words(step: float, best_ms: float) -> None:
    watch = ProgressWatch(1, best_hour_ms=best_ms)
    watch.pace = [Reached(60_000 * number, step * number) for number in range(12)]
    assert len(pace_in_words(watch)) < 80
