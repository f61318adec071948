"""How long a silence a job has earned by the gaps it has survived."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.tuning import HangSettings, Tuning, tuned

T = Tuning()


def after(gaps_s: Iterable[float], tuning: Tuning = T) -> ProgressRate:
    rate, at_s = ProgressRate.begin(100.0), 100.0
    for gap_s in gaps_s:
        at_s += gap_s
        rate = rate.observe(at_s, tuning)
    return rate


def test_before_any_progress_only_the_startup_limit_counts() -> None:
    assert after([]).notice_after_s(T) == T.startup_s
    assert after([]).act_after_s(T) == T.startup_ceiling_s


def test_a_burst_of_lines_is_no_rhythm() -> None:
    burst = after([0.1] * 50 + [1.0, 2.0, 0.5])
    assert not burst.settled(T)
    assert burst.notice_after_s(T) == T.startup_s


def test_three_gaps_of_one_size_end_startup() -> None:
    assert not after([0.1, 20.0, 18.0]).settled(T)
    assert after([0.1, 20.0, 18.0, 15.0]).settled(T)


def test_gaps_much_shorter_than_the_longest_do_not_end_startup() -> None:
    assert not after([90.0, 8.0, 7.0, 6.0]).settled(T)


def test_minutes_of_progress_end_startup() -> None:
    assert not after([1.0] * 240).settled(T)
    assert after([1.0] * 241).settled(T)
    assert after([1.0] * 241).notice_after_s(T) == T.silence_floor_s


def test_a_regular_long_gap_is_learned_at_first_sight() -> None:
    assert after([1.0] * 400 + [500.0]).notice_after_s(T) == 1000.0


def test_a_long_gap_early_counts_for_the_output_alone_and_not_where_two_families_agree() -> None:
    rate = after([100.0] + [10.0] * 40)
    assert rate.notice_after_s(T) == 200.0
    assert rate.agree_after_s(T) == T.still_floor_s


def test_repeated_gaps_count_where_two_families_agree() -> None:
    assert after([100.0, 100.0, 100.0]).agree_after_s(T) == 300.0


def test_the_ceiling_grows_with_what_was_survived() -> None:
    assert after([1.0] * 400).act_after_s(T) == T.ceiling_s
    assert after([1.0] * 400 + [1700.0]).act_after_s(T) == 3400.0


def test_an_event_older_than_the_last_changes_nothing() -> None:
    rate = after([10.0, 10.0])
    assert rate.observe(105.0, T) == rate


def test_forgiven_time_is_neither_silence_nor_survived() -> None:
    rate = after([10.0, 10.0]).forgive(3600.0)
    assert rate.silent_s(100.0 + 20.0 + 3600.0) == 0.0
    assert rate.observe(100.0 + 20.0 + 3600.0 + 5.0, T).longest_s == 10.0


def test_an_explicit_timeout_governs_once_started() -> None:
    tuning = tuned(HangSettings(timeout_s=60.0))
    rate = after([1.0] * 400, tuning)
    assert (rate.notice_after_s(tuning), rate.act_after_s(tuning)) == (60.0, 60.0)
    assert after([], tuning).notice_after_s(tuning) == T.startup_s


def test_an_explicit_ceiling_and_floor_govern() -> None:
    tuning = tuned(HangSettings(floor_s=20.0, ceiling_s=600.0))
    rate = after([1.0] * 400, tuning)
    assert (rate.notice_after_s(tuning), rate.act_after_s(tuning)) == (20.0, 600.0)


@given(st.lists(st.floats(0.0, 5000.0), max_size=60))
def test_no_threshold_sits_below_what_was_survived(gaps_s: list[float]) -> None:
    rate = after(gaps_s)
    survived = max(gaps_s, default=0.0)
    assert rate.notice_after_s(T) >= survived * 0.999999
    assert rate.act_after_s(T) >= rate.notice_after_s(T)
