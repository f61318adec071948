"""The end of a training as an interval: its bounds, what widens it, and when nothing is said."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter

from holdfast_controller.core.goodput.end_time import (
    EARLIER,
    LATER,
    LEAST_STRETCHES,
    UNEVEN,
    Interruptions,
    ms_left,
    pace_of,
)
from holdfast_controller.core.goodput.stretches import MOST, note_stretch, thinned
from holdfast_controller.core.model.goodput import ProgressWatch, Reached, Stretch

EVEN = [Stretch(10_000, 10.0)] * 10


def test_an_even_pace_gives_a_narrow_interval_around_what_is_left() -> None:
    pace = pace_of(EVEN, 100.0)
    assert pace is not None and pace.step_ms == 1000.0
    earliest, latest = ms_left(pace, 100.0, Interruptions())
    scale = UNEVEN * 1.3**0.4
    assert earliest == pytest.approx(100_000 * math.exp(EARLIER * scale))
    assert latest == pytest.approx(100_000 * math.exp(LATER * scale))
    assert 0.97 < earliest / 100_000 < 1 < latest / 100_000 < 1.15


def test_the_newest_third_of_the_time_tells_the_pace() -> None:
    pace = pace_of([Stretch(10_000, 20.0)] * 6 + [Stretch(10_000, 10.0)] * 3, 50.0)
    assert pace is not None and (pace.step_ms, pace.ms) == (800.0, 40_000)
    pace = pace_of([Stretch(10_000, 20.0)] * 6 + [Stretch(10_000, 10.0)] * 4, 50.0)
    assert pace is not None and (pace.step_ms, pace.ms) == (1000.0, 40_000)


def test_a_training_that_gets_steadily_faster_is_taken_to_get_faster_on() -> None:
    """Each twentieth of its steps takes 2 % less than the one before: the rest takes as long as if that goes on."""
    times = [round(100_000 * 0.98**n) for n in range(20)]
    for seen in (10, 12, 14):
        pace = pace_of([Stretch(ms, 10.0) for ms in times[:seen]], 10.0 * (20 - seen))
        assert pace is not None
        earliest, latest = ms_left(pace, 10.0 * (20 - seen), Interruptions())
        plain, true = sum(times[seen - 4 : seen]) / 4 * (20 - seen), sum(times[seen:])
        assert earliest - true < 0.4 * (plain - true)
        assert true < latest


def test_one_that_got_faster_and_slower_is_not() -> None:
    times = [10_000, 9_000, 8_000, 7_000, 12_000, 7_000, 10_000, 10_000, 10_000]
    pace = pace_of([Stretch(ms, 10.0) for ms in times], 90.0)
    assert pace is not None and pace.step_ms == 1000.0


def test_how_wrong_it_would_have_been_before_widens_the_interval() -> None:
    jumped = [Stretch(10_000, 10.0)] * 5 + [Stretch(20_000, 10.0)] * 5
    mixed = [Stretch(10_000, 10.0), Stretch(20_000, 10.0)] * 5
    one, other = pace_of(jumped, 100.0), pace_of(mixed, 100.0)
    assert one is not None and other is not None and one.scale > 1.5 * other.scale


def test_an_uneven_pace_and_a_longer_way_widen_the_interval() -> None:
    uneven = [Stretch(10_000, 5.0), Stretch(10_000, 15.0)] * 5
    even, rough, far = pace_of(EVEN, 100.0), pace_of(uneven, 100.0), pace_of(EVEN, 1000.0)
    assert even is not None and rough is not None and far is not None
    assert even.scale < far.scale < rough.scale


@pytest.mark.parametrize(
    "stretches",
    [
        [],
        EVEN[: LEAST_STRETCHES - 1],
        [Stretch(10_000, 1.0)] * 5,
        [Stretch(0, 10.0)] * 10,
        [Stretch(10_000, math.inf)] * 10,
        [Stretch(10_000, 1e308)] * 10,
    ],
    ids=["nothing", "few", "under-a-tenth", "no-time", "endless", "huge"],
)
def test_too_little_or_nonsense_gives_no_pace(stretches: list[Stretch]) -> None:
    assert pace_of(stretches, 100.0) is None


@pytest.mark.parametrize("steps", [1e-300, 1e-9, 1e12, 1e300])
def test_whatever_steps_an_agent_reports_the_bounds_are_finite_and_in_order(steps: float) -> None:
    pace = pace_of([Stretch(10_000, steps), Stretch(1, steps * 1e5)] * 5, steps)
    if pace is not None and not pace.is_too_uneven:
        earliest, latest = ms_left(pace, steps, Interruptions())
        assert 0 <= earliest <= latest < math.inf


def quantile(shape: float, share: float, chance: float) -> int:
    """Of the negative binomial distribution, by its definition."""
    mass, number = 0.0, -1
    while mass < chance:
        number += 1
        log_choose = math.lgamma(number + shape) - math.lgamma(shape) - math.lgamma(number + 1)
        mass += math.exp(log_choose + shape * math.log(1 - share) + number * math.log(share))
    return number


def test_interruptions_so_far_move_and_widen_the_interval() -> None:
    pace = pace_of(EVEN, 100.0)
    assert pace is not None
    alone = ms_left(pace, 100.0, Interruptions())
    few, many = (ms_left(pace, 100.0, Interruptions(number, 100_000, 5_000.0)) for number in (1, 8))
    assert few[1] > alone[1] and many[1] > few[1] and many[0] > few[0] >= alone[0]
    assert few[0] == alone[0], "with one so far there may well be none to come"
    assert many[1] - alone[1] == pytest.approx(5_000 * quantile(8.5, alone[1] / (alone[1] + 100_000), 0.9))
    assert ms_left(pace, 100.0, Interruptions(10**9, 1, 1.0))[1] < math.inf


def watched(*steps: tuple[int, float]) -> ProgressWatch:
    watch = ProgressWatch(1)
    for at, step in steps:
        note_stretch(watch, Reached(at, step))
    return watch


def test_steps_that_take_two_seconds_make_a_stretch() -> None:
    watch = watched((0, 5.0), (1_000, 6.0), (2_500, 8.0), (12_500, 9.0))
    assert watch.stretches == [Stretch(2_500, 3.0), Stretch(10_000, 1.0)]


def test_a_long_training_keeps_its_whole_history_in_bounded_memory() -> None:
    watch = watched(*((2_000 * n, float(n)) for n in range(50_000)))
    assert MOST // 4 < len(watch.stretches) <= MOST
    steps, ms = sum(each.steps for each in watch.stretches), sum(each.ms for each in watch.stretches)
    assert ms == 2_000 * steps and steps > 48_000
    assert max(each.ms for each in watch.stretches) < 8 * min(each.ms for each in watch.stretches)


def test_thinned_stretches_have_the_same_steps_and_time() -> None:
    many = [Stretch(n, float(n)) for n in range(1, 200)]
    few = thinned(many)
    assert len(few) <= MOST and sum(each.ms for each in few) == sum(each.ms for each in many) == 19_900


def test_a_watch_stored_by_an_earlier_release_has_no_stretches() -> None:
    stored = TypeAdapter(ProgressWatch)
    assert stored.validate_json(b'{"generation": 1, "newest": 5}').stretches == []
    watch = watched(*((2_000 * n, float(n)) for n in range(200)))
    assert stored.validate_json(stored.dump_json(watch)) == watch


def test_stretches_of_next_to_no_steps_weigh_as_little() -> None:
    pace = pace_of([Stretch(2_000, 1e-300), *EVEN], 100.0)
    assert pace is not None and pace.step_ms == 1000.0
