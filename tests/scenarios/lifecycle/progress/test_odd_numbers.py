"""A program that prints any number as its step, and an agent that sends any number: no one else is troubled by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenarios.training import Training, training

from holdfast._base.job_file.choices import HangAction
from holdfast._session import hang_wire
from holdfast.hang.pipeline.features import GpuUse, Motion
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.slowness import Slowdown, SlowWatch
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.slowness.judge import judge
from holdfast_controller.core.slowness.pace import Look
from holdfast_controller.shell.convert.features_from_proto import features
from holdfast_controller.shell.convert.job_to_proto import job_to_proto

EVERY_S = 31.0
"""Each vector ends a slot."""
ODD = st.sampled_from(
    [0.0, 5e-324, 1e-300, 31e3 / 1.2e308, 31e3 / 1.7e308, 1e-6, 1.0, 1e15, 1e300, 1.2e308, 1.7e308]
)
NUMBERS = st.fixed_dictionaries({}, optional=dict.fromkeys(("step", "step_total", "saved_step", "bar_step"), ODD))
TIMES = st.builds(
    RankTimes,
    seen_s=ODD,
    ran_s=st.none() | ODD,
    queued_s=st.none() | ODD,
    looks=st.integers(0, 2**40),
    step=st.none() | ODD,
    step_s=st.none() | ODD,
    gpu_looks=st.integers(0, 2**40),
    clock_mhz=ODD,
    util_pct=ODD,
    gpu_s=ODD,
    energy_j=ODD,
)


def says(program: Training, numbers: dict[str, Any], times: RankTimes | None, ago: float) -> None:
    """The job's vectors with these numbers, as they come in over the wire."""
    world = program.world
    world.wait(EVERY_S, beating=program.beating)
    for vector in program.vectors(Motion.WORKING):
        ranks = tuple(replace(rank, times=times, last_work_s=-ago) for rank in vector.ranks)
        output = replace(vector.output, last_progress_s=vector.at_s - ago, step_s=-ago, **numbers)
        said = replace(vector, ranks=ranks, output=output, gpus=(GpuUse(True, -ago),))
        message = hang_wire.to_proto(program.job, 1, said, world.mono)
        world.step(features(vector.host, world.sessions[vector.host], message))


def shown(program: Training) -> job_pb2.CustomJob:
    """The job as its page has it."""
    world = program.world
    queue = QueueView(world.cluster, schedulable_hosts(world.cluster), world.policies.quotas)
    job, now = world.cluster.jobs[program.job], Now(Mono(world.mono), Wall(world.wall))
    return job_to_proto(world.cluster, job, spec_pb2.CustomJobSpec(), queue, now)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.none() | TIMES, ODD), min_size=8, max_size=30))
def test_any_numbers_are_judged_told_and_shown(said: list[tuple[dict[str, float], Any, float]]) -> None:
    program = training(action=HangAction.OFF)
    for numbers, times, ago in said:
        says(program, numbers, times, ago)
        assert len(shown(program).summary.headline) < 400


def test_a_step_that_is_huge_first_and_tiny_later() -> None:
    program = training(action=HangAction.OFF)
    for number in range(1, 15):
        says(program, {"step": number * 1e300}, None, 0.0)
    assert not shown(program).HasField("step")
    for number in range(1, 15):
        says(program, {"step": number * 1e-20}, None, 0.0)
    assert shown(program).step == 0


LOOKS = st.lists(st.tuples(ODD, st.lists(st.none() | TIMES, max_size=3)), min_size=8, max_size=40)


@settings(max_examples=200, deadline=None)
@given(LOOKS)
def test_the_judge_takes_any_numbers(looks: list[tuple[float, list[RankTimes | None]]]) -> None:
    watch, at_s = SlowWatch(), 0.0
    for step, times in looks:
        at_s += EVERY_S
        ranks = {n: (f"h{n}", at_s, each) for n, each in enumerate(times) if each is not None}
        found = judge(watch, Look(at_s, step, False, ranks), 1)
        if found.slow is not None:
            told = Slowdown(Wall(1.0), found.slow.best_ms, found.slow.recent_ms)
            assert 0 <= told.slower_pct <= 1e6
            assert 0 <= told.lost <= 1


def test_steps_of_ranks_so_small_that_their_times_overflow_end_no_slot() -> None:
    watch = SlowWatch()
    for at_s, step, own in ((100.0, 1.0, (0.0, 0.0)), (131.0, 2.0, (31e3 / 1.2e308, 31e3 / 1.7e308))):
        counters = [RankTimes(at_s, looks=int(at_s), step=each, step_s=at_s) for each in own]
        times = {rank: (f"h{rank}", at_s, each) for rank, each in enumerate(counters)}
        judge(watch, Look(at_s, step, False, times), 1)
    assert all(slot.step_ms == EVERY_S * 1000 for slot in watch.slots)


@pytest.mark.parametrize("now_ms", [0.0, 5e-324, 1.0, 1e300, 1.7e308, float("inf"), float("nan")])
@pytest.mark.parametrize("best_ms", [0.0, 5e-324, 1e-300, 1.0, 1.7e308, float("inf")])
def test_how_much_slower_is_a_number_of_few_digits(best_ms: float, now_ms: float) -> None:
    """Earlier releases have stored any."""
    assert 0 <= Slowdown(Wall(1.0), best_ms, now_ms).slower_pct <= 1_000_000
