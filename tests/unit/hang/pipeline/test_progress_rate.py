"""How long a silence a job has earned by the gaps it has survived."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from holdfast._base.codec import from_plain, to_plain
from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.thresholds import HangSettings, Tuning, tuned

T = Tuning()


def after(gaps_s: Iterable[float], tuning: Tuning = T) -> ProgressRate:
    rate, at_s = ProgressRate.begin(100.0), 100.0
    for gap_s in gaps_s:
        at_s += gap_s
        rate = rate.observe(at_s, tuning)
    return rate


def test_before_any_progress_only_the_ceiling_of_startup_counts() -> None:
    assert after([]).notice_after_s(T) == after([]).act_after_s(T) == T.startup_ceiling_s
    assert after([]).agree_after_s(T) == T.startup_s


def test_a_burst_of_lines_is_no_rate() -> None:
    burst = after([0.1] * 50 + [1.0, 2.0, 0.5])
    assert not burst.settled(T)
    assert burst.notice_after_s(T) == T.startup_ceiling_s


def test_three_gaps_of_one_size_end_startup() -> None:
    assert not after([0.1, 20.0, 18.0]).settled(T)
    assert after([0.1, 20.0, 18.0, 15.0]).settled(T)


def test_gaps_of_one_size_within_seconds_do_not_end_startup() -> None:
    assert not after([9.0, 8.0, 8.0, 8.0]).settled(T)
    assert after([9.0, 8.0, 8.0, 8.0, 8.0]).settled(T)


def test_gaps_of_different_sizes_do_not_end_startup() -> None:
    assert not after([90.0, 8.0, 40.0, 20.0]).settled(T)


def test_a_minute_and_a_half_of_progress_ends_startup() -> None:
    assert not after([1.0] * 90).settled(T)
    assert after([1.0] * 91).settled(T)
    assert after([1.0] * 91).notice_after_s(T) == T.silence_floor_s


def test_after_a_long_gap_a_quarter_of_it_is_needed() -> None:
    assert not after([1000.0] + [1.0] * 250).settled(T)
    assert after([1000.0] + [1.0] * 251).settled(T)


def test_once_startup_is_over_it_stays_over() -> None:
    rate = after([30.0] * 3)
    assert rate.settled(T)
    assert rate.observe(rate.last_s + 900.0, T).settled(T)


def test_the_startup_gap_says_nothing_of_the_gaps_to_come() -> None:
    rate = after([600.0] + [10.0] * 40)
    assert rate.notice_after_s(T) == T.silence_floor_s
    assert rate.agree_after_s(T) == T.still_floor_s
    assert rate.longest_s == 600.0


def test_a_gap_that_breaks_the_cadence_announces_something_new() -> None:
    # An evaluation that begins with a save: 110 s after steps of 50 s, then 1,100 s.
    steady = after([50.0] * 80)
    broken = steady.observe(steady.last_s + 110.0, T)
    assert steady.notice_after_s(T) == T.silence_floor_s
    assert (broken.notice_after_s(T), broken.act_after_s(T)) == (T.ceiling_s, T.startup_ceiling_s)


def test_gaps_that_vary_break_no_cadence() -> None:
    steady = after([50.0] * 80)
    assert steady.observe(steady.last_s + 64.0, T).notice_after_s(T) == T.silence_floor_s
    quick = after([8.0] * 80)
    assert quick.observe(quick.last_s + 29.0, T).notice_after_s(T) == T.silence_floor_s


def test_a_new_cadence_is_learned_as_the_first_one_was() -> None:
    rate = after([50.0] * 80 + [110.0])
    for gap_s in (70.0, 75.0):
        rate = rate.observe(rate.last_s + gap_s, T)
    assert rate.notice_after_s(T) == T.silence_floor_s
    rate = rate.observe(rate.last_s + 100.0, T)
    assert rate.notice_after_s(T) == 200.0


def test_a_regular_line_may_be_left_out_once() -> None:
    assert after([212.0] * 6).notice_after_s(T) == 424.0


def test_what_was_survived_is_not_noticed_again() -> None:
    rate = after([1.0] * 400 + [500.0] + [1.0] * 400)
    assert rate.notice_after_s(T) == 650.0


def test_cycles_of_short_and_long_gaps_are_learned() -> None:
    rate = after([68.0, 700.0] * 4)
    assert rate.notice_after_s(T) == 1400.0
    assert rate.observe(rate.last_s + 800.0, T).notice_after_s(T) == 1600.0


def test_repeated_gaps_count_where_two_families_agree() -> None:
    assert after([100.0, 100.0, 100.0]).agree_after_s(T) == 300.0


def test_the_ceiling_grows_with_what_was_survived_up_to_that_of_startup() -> None:
    assert after([1.0] * 400).act_after_s(T) == T.ceiling_s
    assert after([240.0] * 10).act_after_s(T) == 2400.0
    assert after([480.0] * 10).act_after_s(T) == T.startup_ceiling_s
    assert after([2000.0] * 10).act_after_s(T) == 4000.0


def test_an_event_older_than_the_last_changes_nothing() -> None:
    rate = after([10.0, 10.0])
    assert rate.observe(105.0, T) == rate


def test_forgiven_time_is_neither_silence_nor_survived() -> None:
    rate = after([10.0, 10.0]).forgive(3600.0)
    assert rate.silent_s(100.0 + 20.0 + 3600.0) == 0.0
    assert rate.observe(100.0 + 20.0 + 3600.0 + 5.0, T).longest_s == 10.0


def test_an_explicit_timeout_governs_from_the_first_moment() -> None:
    tuning = tuned(HangSettings(timeout_s=60.0))
    for gaps_s in ([], [0.1], [500.0], [1.0] * 400, [1.0] * 400 + [90.0]):
        rate = after(gaps_s, tuning)
        limits_s = (rate.notice_after_s(tuning), rate.agree_after_s(tuning), rate.act_after_s(tuning))
        assert limits_s == (60.0, 60.0, 60.0), gaps_s


def test_an_explicit_timeout_governs_the_start_of_later_generations() -> None:
    tuning = tuned(HangSettings(timeout_s=3000.0))
    assert tuning.startup_s == tuning.restart_min_s == 3000.0


def test_beside_a_timeout_an_explicit_startup_timeout_governs_startup() -> None:
    tuning = tuned(HangSettings(timeout_s=60.0, startup_timeout_s=400.0))
    assert (after([], tuning).notice_after_s(tuning), after([], tuning).act_after_s(tuning)) == (400.0, 400.0)
    assert after([1.0] * 400, tuning).notice_after_s(tuning) == 60.0


def test_an_explicit_startup_timeout_is_not_moved_by_what_was_survived() -> None:
    tuning = tuned(HangSettings(startup_timeout_s=60.0))
    assert after([100.0], tuning).notice_after_s(tuning) == 60.0


def test_an_explicit_ceiling_and_floor_govern() -> None:
    tuning = tuned(HangSettings(floor_s=20.0, ceiling_s=600.0))
    rate = after([1.0] * 400, tuning)
    assert (rate.notice_after_s(tuning), rate.act_after_s(tuning)) == (20.0, 600.0)


def test_an_explicit_ceiling_is_not_moved_by_what_was_survived() -> None:
    tuning = tuned(HangSettings(ceiling_s=600.0))
    for gaps_s in ([400.0] * 6, [1.0] * 400 + [500.0], [1.0] * 400 + [900.0] + [1.0] * 900):
        rate = after(gaps_s, tuning)
        assert (rate.notice_after_s(tuning), rate.act_after_s(tuning)) == (600.0, 600.0)


def test_a_rate_that_an_older_release_stored_is_read() -> None:
    stored = {"began_s": -900.0, "last_s": -5.0, "longest_s": 80.0, "second_s": 61.0, "third_s": 60.0}
    rate = from_plain(ProgressRate, {**stored, "steady_s": 61.0, "events": 40})
    assert rate.settled(T)
    assert rate.shifted(1000.0).notice_after_s(T) == T.silence_floor_s
    assert rate.observe(0.0, T).events == 41


@given(st.lists(st.floats(0.0, 5000.0), max_size=60))
def test_what_is_stored_is_what_is_read(gaps_s: list[float]) -> None:
    rate = after(gaps_s)
    assert from_plain(ProgressRate, json.loads(json.dumps(to_plain(rate)))) == rate


@given(st.lists(st.floats(0.0, 5000.0), max_size=60))
def test_once_started_no_threshold_sits_below_what_was_survived(gaps_s: list[float]) -> None:
    rate, at_s, survived = ProgressRate.begin(100.0), 100.0, 0.0
    for gap_s in gaps_s:
        survived = max(survived, gap_s) if rate.settled(T) else 0.0
        at_s += gap_s
        rate = rate.observe(at_s, T)
    assert rate.notice_after_s(T) >= survived * 0.999999
    assert rate.act_after_s(T) >= rate.notice_after_s(T)


def test_limits_do_not_depend_on_the_clock() -> None:
    rate = after([600.0] + [10.0] * 3 + [90.0] * 8 + [200.0, 30.0])
    moved = rate.shifted(-5000.0)
    assert moved.has_cadence(T) == rate.has_cadence(T)
    assert (moved.notice_after_s(T), moved.act_after_s(T)) == (rate.notice_after_s(T), rate.act_after_s(T))
    assert moved.observe(moved.last_s + 250.0, T).shifted(5000.0) == rate.observe(rate.last_s + 250.0, T)
