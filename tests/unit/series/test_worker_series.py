"""An agent's minutes and recordings: gaps for what isn't known, and no more, whatever the clocks do."""

from __future__ import annotations

import math
from collections.abc import Iterable

import anyio
import pytest

from holdfast._series.block import Block, unpack
from holdfast._series.figures import Figure
from holdfast._session.reports import Exit, ExitReason, WorkerId
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, TreeSample
from holdfast.hang.records.recording import WorkerSample
from holdfast.training.rank_progress import RankProgress
from holdfast.v1 import agent_pb2
from holdfast_agent.core.series.worker import FLIGHT_S, WorkerSeries, recording
from holdfast_agent.shell.sampling.series import SeriesKeeper, SeriesReports

START = 1_790_000_040 // 60 * 60
KEY = WorkerId("train-1", "workerpool0-0")


def rank(
    at_s: float, number: int = 0, cpu_s: float | None = None, gpu: GpuSample | None = None, code: int | None = None
) -> RankSample:
    process = None if cpu_s is None else ProcessSample(cpu_s=cpu_s / 2)
    return RankSample(at_s, number, process, code, children=TreeSample(cpu_s=(cpu_s or 0) / 2), gpu=gpu)


def sample(
    at_s: float, *ranks: RankSample, generation: int = 1, steps: Iterable[RankProgress] = ()
) -> WorkerSample:
    return WorkerSample("train-1", "workerpool0-0", generation, at_s, ranks, progress=tuple(steps))


def gpu(at_s: float, joules: float | None = None, **figures: float) -> GpuSample:
    return GpuSample(at_s, energy_j=joules, **figures)  # type: ignore[arg-type]


def blocks(over: list[tuple[int, Block]]) -> list[Block]:
    return [block for _, block in over]


def test_a_minute_has_mean_and_extremes_of_rates_and_levels() -> None:
    series = WorkerSeries()
    over = []
    for tick in range(31):
        at_s = 100.0 + 2 * tick
        device = gpu(at_s, joules=300.0 * tick * (2 if tick > 10 else 1), util_pct=float(tick), temperature_c=60)
        over += series.take(sample(at_s, rank(at_s, cpu_s=3.0 * tick, gpu=device)), START + 2 * tick, step=tick)
    (block,) = blocks(over)
    tracks = block.tracks
    assert (block.start, block.step, block.slots) == (START, 60, 1)
    assert tracks[0, Figure.CPU].mean == [1.5]
    assert tracks[0, Figure.GPU_UTIL].mean == [14.5]
    assert (tracks[0, Figure.GPU_UTIL].least, tracks[0, Figure.GPU_UTIL].most) == ([0], [29])
    assert (tracks[0, Figure.POWER].least, tracks[0, Figure.POWER].most) == ([150], [1800])
    assert tracks[0, Figure.STEP].mean == [29]
    assert tracks[0, Figure.SAMPLES].mean == [30]
    assert (0, Figure.SM_UTIL) not in tracks


def test_what_is_not_read_is_absent_and_not_0() -> None:
    series = WorkerSeries()
    series.take(sample(1.0, rank(1.0), rank(1.0, 1, cpu_s=5)), START, None)
    series.take(sample(3.0, rank(3.0), rank(3.0, 1, cpu_s=7)), START + 2, None)
    (block,) = blocks(series.close())
    assert {key for key in block.tracks if key[0] == 0} == {(0, Figure.SAMPLES)}
    assert block.tracks[1, Figure.CPU].mean == [1]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -3.0])
def test_impossible_figures_are_unknown(wrong: float) -> None:
    series = WorkerSeries()
    for tick, util in enumerate([50.0, wrong, 60.0]):
        device = gpu(float(2 * tick), joules=wrong if tick == 1 else 5.0 * tick, util_pct=util, throttle=4)
        series.take(sample(2.0 * tick, rank(2.0 * tick, cpu_s=wrong, gpu=device)), START + tick, step=wrong)
    (block,) = blocks(series.close())
    assert block.tracks[0, Figure.GPU_UTIL].mean == [55]
    assert (0, Figure.STEP) not in block.tracks
    assert (0, Figure.CPU) not in block.tracks or math.isfinite(block.tracks[0, Figure.CPU].mean[0])


def test_a_counter_that_starts_over_makes_no_rate() -> None:
    series = WorkerSeries()
    for tick, cpu_s in enumerate([100.0, 102.0, 1.0, 3.0]):
        series.take(sample(2.0 * tick, rank(2.0 * tick, cpu_s=cpu_s)), START + 2 * tick, None)
    (block,) = blocks(series.close())
    assert block.tracks[0, Figure.CPU].most == [1]
    assert block.tracks[0, Figure.CPU].mean == [1]


def test_a_reading_of_the_gpus_that_is_seen_again_gives_the_same_rate() -> None:
    series = WorkerSeries()
    for tick, (read_s, joules) in enumerate([(0.0, 0.0), (0.0, 0.0), (5.0, 1000.0), (5.0, 1000.0), (5.0, 1000.0)]):
        at_s = 2.0 * tick
        series.take(sample(at_s, rank(at_s, gpu=gpu(read_s, joules))), START + at_s, None)
    (block,) = blocks(series.close())
    assert (block.tracks[0, Figure.POWER].least, block.tracks[0, Figure.POWER].most) == ([200], [200])


@pytest.mark.parametrize("walls", [[10, 12, -3600, -3598, 14, 16], [58, 62, 58, 62], [10, 3610, 7210]])
def test_a_clock_that_steps_loses_no_sample_and_changes_no_mean(walls: list[int]) -> None:
    series = WorkerSeries()
    over: list[tuple[int, Block]] = []
    for tick, wall in enumerate(walls):
        over += series.take(sample(2.0 * tick, rank(2.0 * tick, cpu_s=2.0 * tick)), START + wall, None)
    over += series.close()
    looks = sum(block.tracks[0, Figure.SAMPLES].mean[0] for block in blocks(over))
    assert looks == len(walls)
    assert all(block.tracks[0, Figure.CPU].mean == [1] for block in blocks(over) if (0, Figure.CPU) in block.tracks)
    assert {block.start for block in blocks(over)} == {(START + wall) // 60 * 60 for wall in walls}


@pytest.mark.parametrize("wall", [math.nan, math.inf, -5.0])
def test_without_a_time_there_is_no_minute(wall: float) -> None:
    series = WorkerSeries()
    assert series.take(sample(1.0, rank(1.0, cpu_s=1)), wall, 3) == []
    assert series.close() == []


def test_a_minute_without_samples_is_missing() -> None:
    series = WorkerSeries()
    over = series.take(sample(0.0, rank(0.0, cpu_s=0)), START, None)
    over += series.take(sample(200.0, rank(200.0, cpu_s=10)), START + 200, None)
    over += series.close()
    assert [block.start for block in blocks(over)] == [START, START + 180]


def test_a_new_generation_in_a_minute_is_a_minute_of_its_own() -> None:
    series = WorkerSeries()
    over = series.take(sample(0.0, rank(0.0, cpu_s=50)), START, 900)
    over += series.take(sample(2.0, rank(2.0, cpu_s=1), generation=2), START + 2, 4)
    over += series.close()
    assert [(generation, block.start) for generation, block in over] == [(1, START), (2, START)]
    assert [block.tracks[0, Figure.STEP].mean for block in blocks(over)] == [[900], [4]]
    assert (0, Figure.CPU) not in over[1][1].tracks  # no rate between two processes


def test_a_rank_reports_its_own_step_and_an_ended_one_nothing() -> None:
    series = WorkerSeries()
    ranks = rank(0.0, 0, cpu_s=1), rank(0.0, 1, cpu_s=1), rank(0.0, 2, code=1)
    series.take(sample(0.0, *ranks, steps=[RankProgress(1, 1, step=17)]), START, 12)
    (block,) = blocks(series.close())
    assert block.tracks[0, Figure.STEP].mean == [12]
    assert block.tracks[1, Figure.STEP].mean == [17]
    assert block.ranks == [0, 1]


# --- recordings ---------------------------------------------------------------------------------------------------


def test_a_recording_has_the_last_quarter_of_an_hour_across_generations() -> None:
    series = WorkerSeries()
    for tick in range(600):
        at_s = 2.0 * tick
        device = gpu(at_s, util_pct=float(tick % 100))
        series.take(sample(at_s, rank(at_s, gpu=device), generation=1 + tick // 500), START + at_s, tick)
    block = recording(series.looks, 1198.5, START + 1198.5)
    assert block is not None
    assert (block.step, block.slots) == (2, 450)
    assert abs(block.start - (START + 1198 - FLIGHT_S)) <= 3
    assert block.tracks[0, Figure.STEP].mean[-1] == 599
    assert block.tracks[0, Figure.GPU_UTIL].mean[-100:] == [float(tick % 100) for tick in range(500, 600)]


def test_a_recording_of_many_ranks_is_bounded() -> None:
    series = WorkerSeries()
    for tick in range(200):
        at_s = 2.0 * tick
        series.take(sample(at_s, *(rank(at_s, number, cpu_s=1) for number in range(512))), START + at_s, None)
    assert sum(len(look[1]) for look in series.looks) <= 450 * 64
    assert recording(series.looks, 398.0, START) is not None


def test_nothing_is_recorded_of_what_was_not_seen() -> None:
    assert recording((), 0.0, START) is None


# --- reports ------------------------------------------------------------------------------------------------------


class Clocks:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall(self) -> float:
        return START + self.now_s - 1000.0

    def mono(self) -> float:
        return self.now_s


def kept(reports: SeriesReports) -> list[agent_pb2.SeriesReport]:
    found, number = [], 0
    while report := reports.after(number):
        found.append(report)
        number = report.number
    return found


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def reports() -> SeriesReports:
    return SeriesReports()


@pytest.fixture
def keeper(reports: SeriesReports, clocks: Clocks) -> SeriesKeeper:
    return SeriesKeeper(reports, clocks.wall, clocks.mono)


def look(keeper: SeriesKeeper, clocks: Clocks, seconds: int, generation: int = 1) -> None:
    for _ in range(seconds // 2):
        at_s = clocks.mono()
        keeper.on_sample(sample(at_s, rank(at_s, cpu_s=at_s), generation=generation), 1.0)
        clocks.now_s += 2


def test_the_last_minute_of_a_worker_that_is_gone_is_reported(
    keeper: SeriesKeeper, reports: SeriesReports, clocks: Clocks
) -> None:
    look(keeper, clocks, 30)
    keeper.look()
    assert kept(reports) == []
    clocks.now_s += 60
    keeper.look()
    (report,) = kept(reports)
    assert (report.number, report.job_id, report.worker, report.generation) == (1, "train-1", "workerpool0-0", 1)
    assert unpack(report.block).tracks[0, Figure.SAMPLES].mean == [15]
    assert not report.HasField("exited_rank")


def test_a_failing_exit_is_recorded_once_for_each_generation(
    keeper: SeriesKeeper, reports: SeriesReports, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_agent.shell.sampling.series.RECORDED_AFTER_S", 0.0)
    look(keeper, clocks, 40)
    failed = Exit(1, 1, 3, ExitReason.NONZERO_EXIT, 1)
    due = keeper.on_exit(KEY, failed)
    assert due is not None
    assert keeper.on_exit(KEY, Exit(1, 1, 4, ExitReason.SIGNALED, None, 6)) is None
    anyio.run(keeper.keep, due)
    (report,) = [each for each in kept(reports) if each.HasField("exited_rank")]
    assert report.exited_rank == 3
    assert unpack(report.block).step == 2
    look(keeper, clocks, 10, generation=2)
    assert keeper.on_exit(KEY, Exit(1, 2, 3, ExitReason.OUT_OF_MEMORY, None, 9)) is not None


@pytest.mark.parametrize("reason", [ExitReason.COMPLETED, ExitReason.STOPPED, ExitReason.HANG_KILLED])
def test_an_end_that_is_no_failure_is_not_recorded(
    keeper: SeriesKeeper, clocks: Clocks, reason: ExitReason
) -> None:
    look(keeper, clocks, 40)
    assert keeper.on_exit(KEY, Exit(1, 1, 0, reason, 0)) is None
    assert keeper.on_exit(WorkerId("other-1", "workerpool0-0"), Exit(1, 1, 0, ExitReason.SIGNALED)) is None


def test_reports_that_wait_for_long_give_way_to_newer_ones_and_are_counted() -> None:
    reports = SeriesReports(most_bytes=1000)
    for _ in range(25):
        reports.add(agent_pb2.SeriesReport(block=bytes(100)))
    waiting = kept(reports)
    assert [report.number for report in waiting] == list(range(16, 26))
    assert waiting[0].dropped == 15
    assert sum(report.dropped for report in waiting) == 15
    reports.taken(20)
    assert [report.number for report in kept(reports)] == [21, 22, 23, 24, 25]
    assert reports.after(25) is None
    reports.taken(25)
    assert len(reports) == 0


def test_workers_are_forgotten_once_they_have_been_gone_for_long(
    keeper: SeriesKeeper, reports: SeriesReports, clocks: Clocks
) -> None:
    look(keeper, clocks, 10)
    clocks.now_s += 2000
    keeper.look()
    assert anyio.run(keeper.recording, KEY) == b""
    assert len(kept(reports)) == 1
