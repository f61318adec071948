"""Reads the Python frames of ranks that have stood still for a while, sparingly, to learn what they wait for.

One rank at a time on a host, first those whose system call says least; a pause after each that bounds what it costs;
and longer and longer between two reads of the same wait. Reading doesn't stop a rank. What a diagnosis has read is
used as well.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import Dump, Evidence
from holdfast.hang.pipeline import frame_waits
from holdfast.hang.pipeline.features import Motion, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.frame_waits import StackWait
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.records.recording import WorkerSample

STILL_S = 10.0
SURVIVED_FACTOR = 1.2
"""Of a rank that has stood still for longer before, and moved again."""
SILENT_S = 30.0
"""A rank that moves without evidence of work is looked at once its worker has printed nothing new for so long."""
AGAIN_S: tuple[float, ...] = (20.0, 60.0, 300.0)
"""Pauses between reads of one wait; the last one is repeated."""
LEAST_PAUSE_S = 0.2
MOST_PAUSE_S = 3.0
PAUSE_FACTOR = 20.0
"""After a read that took so much CPU time, this many times as long nothing is read: 5 % of a core at most."""
_MOVES = (Motion.BURNING, Motion.STIRRING)
_STANDS = (Motion.BLOCKED, Motion.SPINNING)


@dataclass
class _Rank:
    """One rank that may be read. ``identity`` changes when a still one has moved, or waits for something else."""

    pid: int
    identity: tuple[object, ...]
    due_s: float
    ambiguous: bool
    # When this process was first seen so, and when it was last read.
    began_s: float
    read_s: float
    reads: int = 0
    found: StackWait | None = None


def _cpu_of_children_s() -> float:
    """CPU seconds of the tools that have ended, and of whatever else this process has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class StackWatch:
    """The stacks of one host's ranks. ``dump`` reads one process; it never raises for what that does."""

    def __init__(
        self,
        dump: Callable[[int], Awaitable[Dump]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = _cpu_of_children_s,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._dump = dump
        self._monotonic = monotonic
        self._cpu = cpu
        self._sleep = sleep
        self._ranks: dict[tuple[WorkerId, int], _Rank] = {}

    def note(self, key: WorkerId, sample: WorkerSample, vector: WorkerFeatures) -> None:
        """Take in a worker's newest sample: which of its ranks should be read, and when."""
        present = set()
        for taken, rank in zip(sample.ranks, vector.ranks, strict=True):
            known, identity = self._ranks.get((key, rank.rank)), _identity(taken, rank)
            same = known is not None and known.pid == taken.pid
            began_s, read_s = (known.began_s, known.read_s) if known and same else (sample.at_s, -math.inf)
            due_s = _due_s(rank, vector, began_s)
            if due_s is None or not taken.pid:
                continue
            present.add(rank.rank)
            if known is None or known.identity != identity:
                # However often a rank goes from one wait to another, it is read now and then only.
                due_s = max(due_s, read_s + AGAIN_S[0])
                ambiguous = taken.wait is None or taken.wait.kind in frame_waits.BY_CALL
                self._ranks[key, rank.rank] = _Rank(taken.pid, identity, due_s, ambiguous, began_s, read_s)
            elif due_s > sample.at_s:
                known.due_s, known.reads, known.found = max(known.due_s, due_s), 0, None
        for gone in [one for one in self._ranks if one[0] == key and one[1] not in present]:
            del self._ranks[gone]

    def forget(self, key: WorkerId) -> None:
        """Drop all that is known of a worker."""
        for gone in [one for one in self._ranks if one[0] == key]:
            del self._ranks[gone]

    def found(self, key: WorkerId) -> Mapping[int, StackWait]:
        """Rank to the wait by its frames, for ranks of a worker that still wait for the same."""
        return {
            rank: one.found
            for (worker, rank), one in self._ranks.items()
            if worker == key and one.found is not None
        }

    def on_evidence(self, key: WorkerId, evidence: Evidence, began_s: float) -> None:
        """Use what a diagnosis has read, which began at that time."""
        for rank in evidence.ranks:
            known, last = self._ranks.get((key, rank.rank)), rank.process.last
            if known is not None and last is not None and known.pid == rank.process.pid and last.python.threads:
                self._take(known, frame_waits.read(last.python.threads, began_s + last.at_s))

    async def run(self) -> None:
        """Read what is due until cancelled."""
        while True:
            await self._sleep(LEAST_PAUSE_S)
            now_s = self._monotonic()
            due = [one for one in self._ranks.values() if one.due_s <= now_s]
            if not due:
                continue
            rank = min(due, key=lambda one: (one.reads, not one.ambiguous, one.due_s))
            before_s = self._cpu()
            dump = await self._dump(rank.pid)
            # The read took place between the two; the earlier time makes no older stack look newer.
            self._take(rank, frame_waits.read(dump.threads, now_s))
            await self._sleep(min(MOST_PAUSE_S, PAUSE_FACTOR * (self._cpu() - before_s)))

    def _take(self, rank: _Rank, found: StackWait) -> None:
        if found.place or rank.found is None:
            rank.found = found
        rank.read_s = self._monotonic()
        rank.due_s = rank.read_s + AGAIN_S[min(rank.reads, len(AGAIN_S) - 1)]
        rank.reads += 1


def _identity(sample: RankSample, rank: RankFeatures) -> tuple[object, ...]:
    if rank.motion in _MOVES:
        return (sample.pid,)
    return sample.pid, rank.still_since_s, sample.wait.since_s if sample.wait else None


def _due_s(rank: RankFeatures, vector: WorkerFeatures, began_s: float) -> float | None:
    """When the frames of a rank are worth reading; None while it works or can't be read."""
    if rank.traced:
        return None
    if rank.motion in _STANDS:
        return rank.still_since_s + max(STILL_S, SURVIVED_FACTOR * rank.still_longest_s)
    if rank.motion in _MOVES:
        return max(vector.output.last_progress_s or began_s, rank.last_work_s or began_s, began_s) + SILENT_S
    return None
