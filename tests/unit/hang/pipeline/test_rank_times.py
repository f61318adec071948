"""What a rank's time goes to: counters that only grow, and nothing where the kernel doesn't say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.hang.pipeline.rank_times import RankTimes, added
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, State

PROCESS = ProcessSample(ran_s=10.0, queued_s=1.0)
FIRST = RankSample(100.0, 0, PROCESS)


def later(seconds: float = 2.0, **process: Any) -> RankSample:
    return RankSample(100.0 + seconds, 0, replace(PROCESS, **process))


def test_the_time_between_two_samples_is_on_a_core_without_one_or_neither() -> None:
    found = added(RankTimes(), FIRST, later(ran_s=11.2, queued_s=1.3))
    assert (found.seen_s, found.ran_s, found.queued_s) == pytest.approx((2.0, 1.2, 0.3))


def test_what_the_kernel_does_not_say_is_unknown_and_not_nothing() -> None:
    found = added(RankTimes(), FIRST, later(ran_s=None, queued_s=None))
    assert (found.seen_s, found.ran_s, found.queued_s) == (2.0, None, None)


def test_a_counter_that_falls_is_another_process_and_counts_nothing() -> None:
    assert added(RankTimes(), FIRST, later(ran_s=0.1, queued_s=0.0)).ran_s is None


def test_time_without_samples_is_not_counted() -> None:
    assert added(RankTimes(), FIRST, later(300.0, ran_s=200.0, queued_s=5.0)).seen_s == 0.0


@pytest.mark.parametrize(
    ("process", "name"),
    [
        ({"state": State.STOPPED}, "stopped"),
        ({"state": State.DISK}, "storage"),
        ({"state": State.SLEEPING, "wchan": "hrtimer_nanosleep"}, "aside"),
        ({"state": State.SLEEPING, "wchan": "pipe_read"}, "aside"),
    ],
)
def test_a_look_finds_what_holds_a_rank(process: dict[str, Any], name: str) -> None:
    found = added(RankTimes(), FIRST, later(**process))
    assert {each: getattr(found, each) for each in ("stopped", "storage", "aside")} == {
        each: int(each == name) for each in ("stopped", "storage", "aside")
    }


def test_a_stop_by_our_own_dump_tool_is_none() -> None:
    assert added(RankTimes(), FIRST, replace(later(state=State.STOPPED), paused_by_us=True)).stopped == 0


def test_a_reading_of_a_gpu_counts_once() -> None:
    before = GpuSample(99.0, energy_j=1_000.0, util_pct=90.0, sm_clock_mhz=1_900.0)
    after = GpuSample(104.0, energy_j=3_000.0, util_pct=95.0, sm_clock_mhz=1_400.0, throttle=0x40)
    first, second = replace(FIRST, gpu=before), replace(later(5.0), gpu=after)
    found = added(added(RankTimes(), first, second), second, replace(later(7.0), gpu=after))
    assert (found.gpu_looks, found.clock_mhz, found.throttled, found.gpu_s, found.energy_j) == (
        1,
        1_400.0,
        1,
        5.0,
        2_000.0,
    )
