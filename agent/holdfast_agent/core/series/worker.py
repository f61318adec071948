"""The time series of one worker, from its samples: blocks of one minute, and a flight recording.

Theory of operation. Counters of two samples give rates; a figure that a sample lacks is NaN and never 0. Samples go
into the minute that the host's clock is in. When that is another minute than before, forward or back, or another
generation, the minute is over: a clock that steps gives short minutes and gaps, and the controller joins what has the
same minute. The recording keeps the newest samples whatever their generation, by the monotonic clock.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Mapping

from holdfast._series.block import Block, Track
from holdfast._series.figures import Figure, Join
from holdfast.hang.pipeline.samples import GpuSample, RankSample
from holdfast.hang.records.recording import WorkerSample

MINUTE_S = 60
FLIGHT_STEP_S = 2
FLIGHT_S = 900
FLIGHT_CELLS = FLIGHT_S // FLIGHT_STEP_S * 64
"""Samples of ranks in a recording, 100 bytes each: a worker of more than 64 ranks has a shorter one."""
_OF_FLIGHT = tuple(figure for figure in Figure if figure is not Figure.SAMPLES)

Values = dict[Figure, float]
Looks = tuple[tuple[float, dict[int, int], "array[float]"], ...]
"""Of each sample: its time on the monotonic clock, where each rank's values begin, and the values."""


class RankMeter:
    """Makes figures of one rank's samples: what a counter says, only together with the sample before."""

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._cpu_s: float | None = None
        self._gpu: GpuSample | None = None
        self._rates: Values = {}

    def take(self, sample: RankSample) -> Values:
        """The figures that are known of it."""
        found: Values = {}
        if sample.process is not None:
            cpu_s = sample.process.cpu_s + sample.children.cpu_s + sample.helpers.cpu_s
            if self._at_s is not None and self._cpu_s is not None:
                found[Figure.CPU] = _rate(self._cpu_s, cpu_s, sample.at_s - self._at_s)
            self._cpu_s = cpu_s
        else:
            self._cpu_s = None
        self._at_s = sample.at_s
        if sample.gpu is None:
            self._gpu, self._rates = None, {}
        else:
            found |= self._of_gpu(sample.gpu)
        return {figure: value for figure, value in found.items() if math.isfinite(value) and value >= 0}

    def _of_gpu(self, gpu: GpuSample) -> Values:
        found: Values = {}
        for figure, value in (
            (Figure.GPU_UTIL, gpu.util_pct),
            (Figure.SM_UTIL, gpu.sm_pct),
            (Figure.MEMORY_UTIL, gpu.memory_util_pct),
            (Figure.MEMORY_USED, gpu.memory_used_bytes),
            (Figure.TEMPERATURE, gpu.temperature_c),
            (Figure.SM_CLOCK, gpu.sm_clock_mhz),
            (Figure.THROTTLE, gpu.throttle),
        ):
            if value is not None:
                found[figure] = value
        before = self._gpu
        if before is None or before.at_s != gpu.at_s:
            self._rates = {}
            if before is not None:
                elapsed_s = gpu.at_s - before.at_s
                for figure, was, now in (
                    (Figure.POWER, before.energy_j, gpu.energy_j),
                    (Figure.PCIE, before.pcie_bytes, gpu.pcie_bytes),
                    (Figure.NVLINK, before.nvlink_bytes, gpu.nvlink_bytes),
                ):
                    if was is not None and now is not None:
                        self._rates[figure] = _rate(was, now, elapsed_s)
            self._gpu = gpu
        return found | self._rates


class WorkerSeries:
    """One worker's series while its agent lives."""

    def __init__(self) -> None:
        self._generation = 0
        self._minute: int | None = None
        self._meters: dict[int, RankMeter] = {}
        self._held: dict[tuple[int, Figure], _Held] = {}
        self._flight: deque[tuple[float, dict[int, int], array[float]]] = deque()
        self._cells = 0

    @property
    def generation(self) -> int:
        """Generation of the newest sample."""
        return self._generation

    def take(self, sample: WorkerSample, wall_s: float, step: float | None) -> list[tuple[int, Block]]:
        """Take in a sample; (generation, block) of each minute that is over by it, as ``close`` gives it.

        ``step`` is the worker's newest, for ranks that report none of their own.
        """
        minute = int(wall_s // MINUTE_S) if math.isfinite(wall_s) and wall_s >= 0 else None
        over: list[tuple[int, Block]] = []
        if minute != self._minute or sample.generation != self._generation:
            over = self.close()
            if sample.generation != self._generation:
                self._meters.clear()
            self._minute, self._generation = minute, sample.generation
        steps = {said.rank: said.step for said in sample.progress if said.step is not None}
        looks: dict[int, Values] = {}
        for rank in sample.ranks:
            if rank.exit_code is not None:
                self._meters.pop(rank.rank, None)
                continue
            meter = self._meters.get(rank.rank)
            if meter is None:
                meter = self._meters[rank.rank] = RankMeter()
            values = meter.take(rank)
            at = steps.get(rank.rank, step)
            if at is not None and math.isfinite(at) and at >= 0:
                values[Figure.STEP] = at
            looks[rank.rank] = values
        self._record(sample.at_s, looks)
        if minute is not None:
            for number, values in looks.items():
                for figure, value in (*values.items(), (Figure.SAMPLES, 1.0)):
                    held = self._held.get((number, figure))
                    if held is None:
                        held = self._held[number, figure] = _Held()
                    held.take(figure.form.join, value)
        return over

    def close(self) -> list[tuple[int, Block]]:
        """End the current minute: its block with its generation, or nothing where there was no rank to see."""
        held, self._held = self._held, {}
        minute, self._minute = self._minute, None
        if not held or minute is None:
            return []
        tracks = {key: each.track(key[1].form.join) for key, each in held.items()}
        return [(self._generation, Block(minute * MINUTE_S, MINUTE_S, 1, tracks))]

    def over(self, wall_s: float) -> bool:
        """Whether the minute that samples were taken in has passed."""
        return self._minute is not None and int(wall_s // MINUTE_S) != self._minute

    @property
    def looks(self) -> Looks:
        """The newest samples, for ``recording``. Cheap: what makes a block of them is another matter."""
        return tuple(self._flight)

    def _record(self, at_s: float, looks: Mapping[int, Values]) -> None:
        values = array("d")
        places: dict[int, int] = {}
        for rank, found in looks.items():
            places[rank] = len(values)
            values.extend(found.get(figure, math.nan) for figure in _OF_FLIGHT)
        if self._flight and self._flight[-1][1] == places:
            places = self._flight[-1][1]  # one object for all of them
        self._flight.append((at_s, places, values))
        self._cells += len(places)
        while self._flight and (self._cells > FLIGHT_CELLS or not 0 <= at_s - self._flight[0][0] < FLIGHT_S):
            self._cells -= len(self._flight.popleft()[1])


def recording(looks: Looks, now_s: float, wall_s: float) -> Block | None:
    """The last quarter of an hour at two seconds, or what there is of it; both clocks' times are those of now."""
    kept = [look for look in looks if 0 <= now_s - look[0] < FLIGHT_S]
    if not kept or not math.isfinite(wall_s):
        return None
    began_s = kept[0][0]
    slots = min(int((kept[-1][0] - began_s) // FLIGHT_STEP_S) + 1, FLIGHT_S // FLIGHT_STEP_S)
    start = max(0, int(wall_s - (now_s - began_s)))
    tracks: dict[tuple[int, Figure], list[float]] = {}
    for at_s, places, values in kept:
        slot = min(int((at_s - began_s) // FLIGHT_STEP_S), slots - 1)
        for rank, place in places.items():
            for offset, figure in enumerate(_OF_FLIGHT):
                value = values[place + offset]
                if not math.isnan(value):
                    track = tracks.get((rank, figure))
                    if track is None:
                        track = tracks[rank, figure] = [math.nan] * slots
                    track[slot] = value
    return Block(start, FLIGHT_STEP_S, slots, {key: Track.flat(track) for key, track in tracks.items()})


class _Held:
    """One figure of one rank within a minute."""

    __slots__ = ("count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least, self.most = math.inf, -math.inf

    def take(self, join: Join, value: float) -> None:
        self.count += 1
        match join:
            case Join.MEAN:
                self.total += value
                self.least, self.most = min(self.least, value), max(self.most, value)
            case Join.SUM:
                self.total += value
            case Join.ANY:
                self.total = int(self.total) | int(value)
            case Join.LAST:
                self.total = value

    def track(self, join: Join) -> Track:
        if join is Join.MEAN:
            return Track([self.total / self.count], [self.least], [self.most])
        return Track.flat([self.total])


def _rate(before: float, now: float, elapsed_s: float) -> float:
    """Growth a second; NaN where the counter fell or no time passed."""
    return (now - before) / elapsed_s if elapsed_s > 0 and now >= before else math.nan
