"""Vectors that an agent sends: what can't be true is refused or put right, and never makes a rank overlooked."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from holdfast._session import hang_wire
from holdfast.errors import InvalidInput
from holdfast.hang.pipeline.features import (
    GpuFeatures,
    GpuLook,
    GpuUse,
    Motion,
    OutputFeatures,
    RankFeatures,
    WorkerFeatures,
)
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast_controller.shell.convert.features_from_proto import OLDEST_S, features

TIMES = RankTimes(60.0, 20.0, 5.0, 30, 1, 2, 3, 7.0, 98.0, 12, 20_000.0, 1_100.0, 2, 60.0, 9_000.0)
RANK = RankFeatures(0, Motion.BLOCKED, 90.0, last_work_s=80.0, helpers_s=70.0, times=TIMES)
IDLE = GpuUse(known=True, idle_since_s=20.0)
VECTOR = WorkerFeatures(
    "workerpool0-0", "h1", 99.0, (RANK,), OutputFeatures(60.0, 7.0, 50.0), gpus=(IDLE, GpuUse(known=True), GpuUse())
)


def taken(vector: WorkerFeatures, sent_s: float = 100.0) -> WorkerFeatures:
    return features("h1", 1, hang_wire.to_proto("a", 1, vector, sent_s)).features


def test_vector_comes_through_as_it_was_sent() -> None:
    found = features("h1", 3, hang_wire.to_proto("a", 2, VECTOR, 100.0))
    assert (found.host, found.session, found.job_id, found.generation, found.sent_s) == ("h1", 3, "a", 2, 100.0)
    assert found.features == VECTOR


WHOLE = RankFeatures(
    *(5, Motion.SPINNING, 91.0, 4.0, 81.0, "reads", 71.0, 0.5, 12.0, 0.75, State.DISK, "futex_wait"),
    *(GpuFeatures(GpuLook.SPIN, 99.0, 1.0, 300.0, 0.5, 0.25), 7, True, True, "/data"),
    *(Wait(WaitKind.FILE, "sleep", 60.0, "loop", 120.0), "Xid 79", True, TIMES),
)
"""Each field differs from its default."""


def test_each_field_of_a_rank_travels_and_is_on_the_readers_clock() -> None:
    plain = RankFeatures(0, Motion.WORKING, 0.0)
    assert not [each.name for each in fields(plain) if getattr(plain, each.name) == getattr(WHOLE, each.name)]
    vector = replace(VECTOR, ranks=(WHOLE,), output=replace(VECTOR.output, step_s=97.0, first_step_s=30.0))
    assert taken(vector).ranks == (WHOLE,)
    assert WHOLE.wait is not None
    later = replace(
        WHOLE,
        still_since_s=96.0,
        last_work_s=86.0,
        helpers_s=76.0,
        wait=replace(WHOLE.wait, since_s=65.0, until_s=125.0),
        times=replace(TIMES, step_s=103.0),
    )
    shifted = vector.shifted(5.0)
    assert shifted.ranks == (later,)
    assert shifted.output == replace(
        vector.output, last_progress_s=65.0, last_checkpoint_s=55.0, step_s=102.0, first_step_s=35.0
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_times_that_are_no_numbers_are_refused(wrong: float) -> None:
    for vector in (
        replace(VECTOR, at_s=wrong),
        replace(VECTOR, ranks=(replace(RANK, still_since_s=wrong),)),
        replace(VECTOR, ranks=(replace(RANK, helpers_s=wrong),)),
        replace(VECTOR, gpus=(replace(IDLE, idle_since_s=wrong),)),
        replace(VECTOR, output=OutputFeatures(wrong)),
        replace(VECTOR, output=OutputFeatures(None, None, wrong)),
        replace(VECTOR, output=OutputFeatures(None, step_s=wrong)),
        replace(VECTOR, output=OutputFeatures(None, first_step_s=wrong)),
    ):
        with pytest.raises(InvalidInput, match="times of workerpool0-0 are no numbers"):
            taken(vector)
    with pytest.raises(InvalidInput):
        taken(VECTOR, sent_s=wrong)


@pytest.mark.parametrize("wrong", [1e11, -1.7e308, 1.7e308])
def test_a_host_that_runs_for_longer_than_any_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidInput):
        taken(VECTOR, sent_s=wrong)


def test_step_that_is_no_number_is_left_out() -> None:
    assert taken(replace(VECTOR, output=OutputFeatures(60.0, math.nan))).output == OutputFeatures(60.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 2.0**53 + 2, 1e300])
def test_what_is_no_step_is_unknown(wrong: float) -> None:
    lies = OutputFeatures(60.0, wrong, step_total=wrong, saved_step=wrong, resumed_step=wrong, bar_step=wrong)
    lies = replace(lies, first_step=wrong)
    assert taken(replace(VECTOR, output=lies)).output == OutputFeatures(60.0)


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        (OutputFeatures(60.0, 7.0, step_total=6.0), None),
        (OutputFeatures(60.0, 7.0, step_total=7.0), 7.0),
        (OutputFeatures(60.0, 0.0, step_total=0.0), None),
        (OutputFeatures(60.0, None, step_total=9.0), None),
        (OutputFeatures(60.0, None, step_total=9.0, bar_step=3.0), 9.0),
    ],
)
def test_a_total_is_one_of_a_known_step_that_is_not_above_it(sent: OutputFeatures, known: float | None) -> None:
    assert taken(replace(VECTOR, output=sent)).output == replace(sent, step_total=known)


def test_nothing_lies_after_its_sending() -> None:
    ahead = replace(RANK, still_since_s=200.0, last_work_s=200.0, helpers_s=None)
    output = OutputFeatures(1e9, 7.0, 150.0, step_s=1e9, first_step_s=1e9)
    found = taken(WorkerFeatures("workerpool0-0", "h1", 200.0, (ahead,), output))
    expected = replace(RANK, still_since_s=100.0, last_work_s=100.0, helpers_s=None)
    output = OutputFeatures(100.0, 7.0, 100.0, step_s=100.0, first_step_s=100.0)
    assert found == WorkerFeatures("workerpool0-0", "h1", 100.0, (expected,), output)


@pytest.mark.parametrize("ago", [-1.7e308, -1e12])
def test_nothing_lies_ages_before_its_sending(ago: float) -> None:
    """Programs write the time of a report themselves."""
    long_still = replace(RANK, still_since_s=ago, last_work_s=ago, helpers_s=ago)
    output = OutputFeatures(ago, 7.0, ago, step_s=ago, first_step_s=ago)
    found = taken(WorkerFeatures("workerpool0-0", "h1", ago, (long_still,), output, gpus=(GpuUse(True, ago),)))
    oldest = 100.0 - OLDEST_S
    expected = replace(RANK, still_since_s=oldest, last_work_s=oldest, helpers_s=oldest)
    output = OutputFeatures(oldest, 7.0, oldest, step_s=oldest, first_step_s=oldest)
    gpus = (GpuUse(True, oldest),)
    assert found == WorkerFeatures("workerpool0-0", "h1", oldest, (expected,), output, gpus=gpus)


def test_steps_are_known_to_a_millionth() -> None:
    found = taken(replace(VECTOR, output=OutputFeatures(60.0, 5e-324, saved_step=0.25)))
    assert (found.output.step, found.output.saved_step) == (0.0, 0.25)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1.7e308])
def test_readings_that_can_be_none_are_unknown(wrong: float) -> None:
    gpu, wait = GpuFeatures(GpuLook.WORK, util_pct=wrong, power_w=700.0), Wait(WaitKind.SLEEP, since_s=wrong)
    lies = replace(RANK, still_longest_s=wrong, cpu_share=wrong, switches_s=wrong, switch_share=wrong)
    found = taken(replace(VECTOR, ranks=(replace(lies, gpu=gpu, wait=wait),)))
    expected = replace(RANK, gpu=GpuFeatures(GpuLook.WORK, power_w=700.0), wait=Wait(WaitKind.SLEEP))
    assert found.ranks == (expected,)


def test_a_sleep_may_be_without_an_end() -> None:
    endless = replace(RANK, wait=Wait(WaitKind.SLEEP, until_s=math.inf))
    assert taken(replace(VECTOR, ranks=(endless,))).ranks == (endless,)
    assert taken(replace(VECTOR, ranks=(replace(endless, wait=Wait(WaitKind.SLEEP, until_s=math.nan)),))).ranks == (
        replace(endless, wait=Wait(WaitKind.SLEEP)),
    )


def test_gpu_that_is_idle_only_from_later_on_is_idle_from_now_on() -> None:
    assert taken(replace(VECTOR, gpus=(replace(IDLE, idle_since_s=1e9),))).gpus == (GpuUse(True, 100.0),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seen_s": math.nan},
        {"energy_j": -1.0},
        {"looks": -1},
        {"step_s": math.inf},
        {"step": 1e300},
        {"gpu_s": 1e16},
    ],
)
def test_counters_that_can_be_none_are_unknown_and_hide_nothing_else(wrong: dict[str, Any]) -> None:
    found = taken(replace(VECTOR, ranks=(replace(RANK, times=replace(TIMES, **wrong)),)))
    assert found.ranks == (replace(RANK, times=None),)


def test_a_step_of_a_rank_is_not_reported_after_its_sending() -> None:
    found = taken(replace(VECTOR, ranks=(replace(RANK, times=replace(TIMES, step_s=500.0)),)))
    assert found.ranks[0].times == replace(TIMES, step_s=100.0)
