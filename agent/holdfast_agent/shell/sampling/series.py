"""The series of one host's workers: minutes that wait for the controller, and recordings of what just happened.

Reports wait in memory, at most ``WAITING_BYTES`` of them: about a day of eight ranks. Beyond that the oldest go, and
the next report says how many. They are kept until the controller has dealt with them, over any number of connections.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

import anyio
import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast._series import block
from holdfast._series.block import Block
from holdfast._session.reports import Exit, ExitReason, WorkerId
from holdfast.hang.records.recording import WorkerSample
from holdfast.v1 import agent_pb2
from holdfast_agent.core.series.worker import Looks, WorkerSeries, recording

WAITING_BYTES = 1 << 20
LOOK_EVERY_S = 10.0
KEPT_S = 900.0
"""How long a worker without samples is remembered: a failing exit may become known after its last sample."""
RECORDED_AFTER_S = 2.0
"""Packing takes some hundredths of a second, which a relaunch needn't wait for."""
_FAILURES = frozenset({ExitReason.NONZERO_EXIT, ExitReason.SIGNALED, ExitReason.OUT_OF_MEMORY})
"""What went before a hang is recorded with it; what no process did has nothing before it."""


class SeriesReports:
    """Reports that wait to be sent, oldest first; every one has a number."""

    def __init__(self, most_bytes: int = WAITING_BYTES) -> None:
        self.added = asyncio.Event()
        self._most_bytes = most_bytes
        self._waiting: deque[agent_pb2.SeriesReport] = deque()
        self._bytes = 0
        self._number = 0
        self._dropped = 0

    def add(self, report: agent_pb2.SeriesReport) -> None:
        """Have it sent; makes space for it where there is none."""
        self._number += 1
        report.number, report.dropped = self._number, self._dropped
        self._dropped = 0
        self._waiting.append(report)
        self._bytes += len(report.block)
        while self._bytes > self._most_bytes and len(self._waiting) > 1:
            gone = self._waiting.popleft()
            self._bytes -= len(gone.block)
            self._waiting[0].dropped += 1 + gone.dropped
        self.added.set()

    def taken(self, number: int) -> None:
        """The controller has dealt with all reports up to a number."""
        while self._waiting and self._waiting[0].number <= number:
            self._bytes -= len(self._waiting.popleft().block)

    def after(self, number: int) -> agent_pb2.SeriesReport | None:
        """The oldest report beyond a number; None where there is none."""
        if not self._waiting or self._waiting[-1].number <= number:
            return None
        first = self._waiting[0].number
        return self._waiting[max(0, number + 1 - first)]

    def __len__(self) -> int:
        return len(self._waiting)


@dataclass(frozen=True, slots=True)
class Recording:
    """Samples of a worker, with the times of both clocks then."""

    key: WorkerId
    generation: int
    rank: int
    looks: Looks
    now_s: float
    wall_s: float

    def packed(self) -> bytes:
        """Packed; empty where there is nothing."""
        found = recording(self.looks, self.now_s, self.wall_s)
        return _packed(self.key, found) if found is not None else b""


class SeriesKeeper:
    """Folds samples into series. Calls come from the event loop; ``wall`` and ``monotonic`` are clocks."""

    def __init__(
        self,
        reports: SeriesReports,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reports = reports
        self._wall = wall
        self._monotonic = monotonic
        self._workers: dict[WorkerId, WorkerSeries] = {}
        self._seen_s: dict[WorkerId, float] = {}
        self._recorded: dict[WorkerId, int] = {}
        """The generation that has a recording of its failing exit, by worker."""

    def on_sample(self, sample: WorkerSample, step: float | None) -> None:
        """Take in a sample; ``step`` is the newest that the worker is known to have reached."""
        key = WorkerId(sample.job, sample.worker)
        series = self._workers.get(key)
        if series is None:
            series = self._workers[key] = WorkerSeries()
        self._seen_s[key] = sample.at_s
        self._report(key, series.take(sample, self._wall(), step))

    def on_exit(self, key: WorkerId, ended: Exit) -> Recording | None:
        """Samples to be recorded of the first failing exit of a worker's generation; None for any other."""
        series = self._workers.get(key)
        if series is None or ended.reason not in _FAILURES or ended.generation != series.generation:
            return None
        if self._recorded.get(key) == ended.generation:
            return None
        self._recorded[key] = ended.generation
        return Recording(key, ended.generation, ended.rank, series.looks, self._monotonic(), self._wall())

    async def keep(self, recording: Recording) -> None:
        """Pack a recording, a little later, and have it sent."""
        await anyio.sleep(RECORDED_AFTER_S)
        content = await anyio.to_thread.run_sync(recording.packed)
        if content:
            report = self._made(recording.key, recording.generation, content)
            report.exited_rank = recording.rank
            self.reports.add(report)

    async def recording(self, key: WorkerId) -> bytes:
        """The last quarter of an hour of a worker, packed; empty where nothing is known."""
        series = self._workers.get(key)
        if series is None:
            return b""
        found = Recording(key, series.generation, 0, series.looks, self._monotonic(), self._wall())
        return await anyio.to_thread.run_sync(found.packed)

    async def run(self) -> None:
        """End the minutes of workers that have no more samples, until cancelled."""
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """End minutes that are over, and forget workers that have been gone for long."""
        now_s, wall_s = self._monotonic(), self._wall()
        for key, series in list(self._workers.items()):
            if series.over(wall_s):
                self._report(key, series.close())
            if now_s - self._seen_s[key] > KEPT_S:
                self._report(key, series.close())
                del self._workers[key], self._seen_s[key]
                self._recorded.pop(key, None)

    def _report(self, key: WorkerId, over: Iterable[tuple[int, Block]]) -> None:
        for generation, minute in over:
            content = _packed(key, minute)
            if content:
                self.reports.add(self._made(key, generation, content))

    def _made(self, key: WorkerId, generation: int, content: bytes) -> agent_pb2.SeriesReport:
        return agent_pb2.SeriesReport(job_id=key.job, worker=key.worker, generation=generation, block=content)


def _packed(key: WorkerId, found: Block) -> bytes:
    try:
        return block.pack(found)
    except ValueError as error:
        log.warning("series.unpackable", worker=str(key), error=str(error))
        return b""
