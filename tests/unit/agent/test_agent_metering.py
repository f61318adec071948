"""What an agent counts, and how it tells where its places and GPUs stand."""

from __future__ import annotations

import pytest

from holdfast._daemon.metrics.series import Histogram
from holdfast._session.reports import WorkerId
from holdfast_agent.core.gpu.signals import STALE_S, GpuSignals, HostGpus
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.metrics import families as fam
from holdfast_agent.core.metrics.metering import Meter, gauges
from holdfast_agent.core.model.gpus import Blind, Gpu
from holdfast_agent.core.model.launch import RankLaunch
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.states import Running, Stuck
from holdfast_agent.core.worker.worker import Worker

KEY = WorkerId("train-x", "workerpool0-0")
FACTS = HostFacts("h1", "/logs", "/scratch", WorkerUser("w", "/", "/bin/sh"), 8)
GPUS = (Gpu("GPU-1", 0, "H100", 80 << 30), Gpu("GPU-2", 1, "H100", 80 << 30, "fell off the bus"))


def order(generation: int = 1) -> act.LaunchRanks:
    return act.LaunchRanks(KEY, generation, tuple(RankLaunch(rank, (), {}, "", "", "") for rank in (0, 1)))


def started(rank: int, generation: int = 1) -> ev.RankStarted:
    return ev.RankStarted(KEY, generation, rank, 100 + rank)


def launches(meter: Meter) -> tuple[int, float]:
    found = meter.series.of(fam.LAUNCH)[()]
    assert isinstance(found, Histogram)
    return sum(found.counts), round(found.sum, 6)


WELCOME = ev.Welcomed(1)


def test_launch_takes_until_the_last_rank_was_started() -> None:
    meter = Meter()
    meter.take(WELCOME, [order()], 10.0)
    meter.take(started(0), [], 10.1)
    assert launches(meter) == (0, 0.0)
    meter.take(started(1), [], 10.25)
    assert launches(meter) == (1, 0.25)


def test_order_that_is_repeated_counts_from_the_first_time_and_a_replay_not_at_all() -> None:
    meter = Meter()
    meter.take(WELCOME, [order()], 10.0)
    meter.take(WELCOME, [order()], 11.0)
    for rank in (0, 1, 0, 1):
        meter.take(started(rank), [], 12.0)
    assert launches(meter) == (1, 2.0)


@pytest.mark.parametrize(
    "end",
    [ev.LaunchRefused(KEY, 1, "no"), ev.ShimLost(KEY), ev.WorkerEmptied(KEY, 1)],
    ids=("no", "lost", "empty"),
)
def test_launch_that_came_to_nothing_is_none(end: ev.Event) -> None:
    meter = Meter()
    meter.take(WELCOME, [order()], 10.0)
    meter.take(end, [], 11.0)
    meter.take(started(0), [], 12.0)
    meter.take(started(1), [], 12.0)
    assert launches(meter) == (0, 0.0)


def test_failures_are_told_by_whose_fault_they_are() -> None:
    meter = Meter()
    meter.take(ev.PreparationFailed(KEY, 1, "disk", host_fault=True), [], 1.0)
    meter.take(ev.PreparationFailed(KEY, 2, "no such command"), [], 2.0)
    meter.take(ev.PreparationFailed(KEY, 3, "no such command"), [], 3.0)
    assert meter.series.of(fam.PREPARATION_FAILURES) == {("host",): 1.0, ("program",): 2.0}


def test_looks_of_the_detector_are_counted_and_the_late_ones_again() -> None:
    meter = Meter()
    meter.sampled(0.004, late=False)
    meter.sampled(1.0, late=True)
    assert meter.series.of(fam.SAMPLING_LATE) == {(): 1.0}


def test_places_are_told_by_where_they_stand() -> None:
    reactor = Reactor(FACTS)
    reactor.workers[KEY] = Worker(KEY, Running(1))
    reactor.workers[WorkerId("b", "w")] = Worker(WorkerId("b", "w"), Stuck(1, "pid 8"))
    series = gauges(reactor, (), "", HostGpus(), 0.0)
    assert {state for (state,), value in series.of(fam.WORKERS).items() if value} == {"RUNNING", "STUCK"}
    assert series.of(fam.CONNECTED) == {(): 0.0} and series.of(fam.OUTBOX) == {(): 0.0}


def test_gpu_without_a_fresh_reading_has_no_figures_but_its_health() -> None:
    signals = HostGpus()
    series = gauges(Reactor(FACTS), GPUS, "", signals, 100.0)
    assert series.of(fam.GPU_HEALTHY) == {("0", "GPU-1"): 1.0, ("1", "GPU-2"): 0.0}
    assert series.of(fam.GPU_UTILIZATION) == {}
    signals.at_s, signals.blind = 100.0, ""
    signals.reading = {"GPU-1": GpuSignals("GPU-1", energy_mj=5000, util_pct=87.0)}
    series = gauges(Reactor(FACTS), GPUS, "", signals, 101.0)
    assert series.of(fam.GPU_UTILIZATION) == {("0", "GPU-1"): 0.87}
    assert series.of(fam.GPU_ENERGY) == {("0", "GPU-1"): 5.0}
    assert series.of(fam.GPU_MEMORY_BUSY) == {}
    assert gauges(Reactor(FACTS), GPUS, "", signals, 101.0 + STALE_S).of(fam.GPU_UTILIZATION) == {}


def test_driver_that_does_not_answer_makes_all_gpus_unhealthy() -> None:
    signals = HostGpus()
    signals.take(Blind("no answer"), 1.0)
    series = gauges(Reactor(FACTS), GPUS, "no answer", signals, 2.0)
    assert set(series.of(fam.GPU_HEALTHY).values()) == {0.0}
    assert series.of(fam.GPUS_READABLE) == {(): 0.0}
