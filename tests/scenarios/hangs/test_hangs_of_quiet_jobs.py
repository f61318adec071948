"""Jobs that print nothing, and jobs whose work is done beside their GPUs, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.hangs.scenarios import CULPRITS, REMOTE
from bench.hangs.world import (
    IMPORTING,
    SLEEPS,
    TRAINING,
    WAITING,
    WAITING_IDLY,
    Doing,
    Result,
    Scenario,
    Signals,
    World,
    steady_lines,
)

from holdfast.hang.pipeline.waits import Wait, WaitKind

GPUS = pytest.mark.parametrize("gpu", ["all", "utilisation", "none"])
HOURS_S = 9000.0


def run(
    doing: Callable[[float, int], Doing],
    gpu: str,
    ends_s: float,
    lines: Callable[[float, float], list[str]] = lambda _a, _b: [],
) -> Result:
    return World(Scenario("quiet", doing, ends_s=ends_s, lines=lines), signals=Signals(gpu=gpu)).run()


def _waits(at_s: float, rank: int, gpu: str) -> Doing:
    return REMOTE if rank == 0 else WAITING_IDLY if gpu == "none" else WAITING


@GPUS
def test_a_job_that_never_prints_may_wait_for_a_service_after_hours_of_work(gpu: str) -> None:
    """Its silence is as old as itself, and is none of the wait's."""

    def doing(at_s: float, rank: int) -> Doing:
        if at_s < 60:
            return IMPORTING
        return _waits(at_s, rank, gpu) if HOURS_S < at_s <= HOURS_S + 300 else TRAINING

    result = run(doing, gpu, HOURS_S + 900)
    assert result.acted_s is None, result.sentence
    assert result.noticed_s is not None and HOURS_S < result.noticed_s < HOURS_S + 75


@GPUS
def test_the_second_hang_of_a_job_that_never_prints_is_told_of_and_has_the_usual_time(gpu: str) -> None:
    def doing(at_s: float, rank: int) -> Doing:
        if at_s < 60:
            return IMPORTING
        return _waits(at_s, rank, gpu) if 700 < at_s <= 800 or at_s > HOURS_S else TRAINING

    result = run(doing, gpu, HOURS_S + 1200)
    assert result.notices == 2
    assert result.acted_s is not None and HOURS_S + 590 < result.acted_s < HOURS_S + 640


@pytest.mark.parametrize("after_s", [200.0, 500.0, 800.0, 1100.0])
def test_that_its_stacks_changed_before_it_hung_hides_no_hang(after_s: float) -> None:
    """Of a job that burns the CPU and prints nothing they are taken each quarter of an hour."""
    fault_s = 5000.0 + after_s

    def doing(at_s: float, rank: int) -> Doing:
        if at_s < 60:
            return IMPORTING
        return TRAINING if at_s < fault_s else WAITING_IDLY if rank else CULPRITS["endless sleep"]

    result = run(doing, "none", fault_s + 600)
    assert result.noticed_s is not None and result.noticed_s < fault_s + 75
    assert result.acted_s is not None and result.acted_s < fault_s + 105
    assert result.suspects == ("workerpool0-0 rank 0",)
    assert "rank 0 is in train.py:41 `nap`" in result.sentence, "its stacks were taken before it was acted on"


POOL = Doing(
    switches=0.1,
    helper_cpu=8.0,
    changing=False,
    frames=SLEEPS,
    wait=Wait(WaitKind.CHILD, "pid 7 `python`", place="prepare.py:3 `map`"),
)


@GPUS
@pytest.mark.parametrize("starts_s", [60.0, 1300.0])
def test_a_pool_that_prints_what_it_has_done_is_left_alone_though_the_gpus_are_idle(
    gpu: str, starts_s: float
) -> None:
    def doing(at_s: float, rank: int) -> Doing:
        if at_s < 60:
            return IMPORTING
        return TRAINING if at_s < starts_s else WAITING_IDLY if rank else POOL

    result = run(doing, gpu, 7200.0, steady_lines(10.0))
    assert result.notices == 0, result.sentence


@GPUS
def test_a_pool_that_prints_nothing_more_is_noticed(gpu: str) -> None:
    def doing(at_s: float, rank: int) -> Doing:
        if at_s < 60:
            return IMPORTING
        return TRAINING if at_s < 700 else WAITING_IDLY if rank else POOL

    result = run(doing, gpu, 7200.0, steady_lines(10.0, until_s=2000.0))
    assert result.noticed_s is not None and 2170 < result.noticed_s < 2330
    assert result.acted_s is not None and 3790 < result.acted_s < 3840
