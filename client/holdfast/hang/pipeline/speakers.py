"""Speakers of a worker's lines: the main threads of its ranks, or something that goes on while they hang.

Theory of operation. A heartbeat's thread prints on whatever becomes of the training, and its numbers grow as a step
count does. But the kernel counts what each thread writes: a line that came while no main thread, and no program that
a rank has started, wrote anything is another thread's, or a forked process's. Such a line is talk where every rank
stands still with a main thread that hasn't woken, and where a main thread has run meanwhile that else prints a count of
its work itself. It may be progress where the main threads rest beside threads at work, where helpers are at work, and
where the main threads have never counted anything in print, as when a logging thread prints for them.

A line may be read just before what was written for it is counted, or while a process can't be seen for a moment, so the
next sample decides as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.hang.pipeline.features import Motion, RankFeatures
from holdfast.hang.pipeline.log_progress import WorkCount
from holdfast.hang.pipeline.rank_baseline import Baseline
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.thresholds import Tuning

_MOST = 4
_BESIDE = 256
"""What a main thread has written may be a line that is shorter, beside lines and other bytes of about as much."""

_AT_WORK = (Motion.WORKING, Motion.BURNING)


@dataclass(slots=True)
class _Did:
    """Movement of one rank since the worker's newest line; the newest sample that shows its process, or its end."""

    sample: RankSample
    woke: bool = False


class Speakers:
    """Follows one worker in one generation. ``counts`` survives a restart of the agent; the rest is of seconds."""

    def __init__(self) -> None:
        self.counts = False
        """Whether main threads print a count of their work themselves."""
        self._did: dict[int, _Did] = {}
        self._written = 0
        self._wrote = True
        self._hidden = False
        self._awaited = False
        self._count = WorkCount()

    def look(self, ranks: Sequence[RankSample], tuning: Tuning) -> None:
        """Take in what the processes have done since they were last seen."""
        self._written, self._hidden = 0, False
        for rank in ranks:
            did = self._did.get(rank.rank)
            if did is None:
                self._did[rank.rank], self._wrote = _Did(rank), True
                continue
            old = did.sample
            if rank.process is None and rank.exit_code is None:
                # What it has written shows once it is seen again, if that is soon.
                hidden_s = rank.at_s - old.at_s
                self._hidden, self._wrote = True, self._wrote or hidden_s > tuning.stale_s
                continue
            did.sample = rank
            if old.process is None or rank.process is None:
                self._wrote |= old.exit_code is None  # it may have ended with some last words
                continue
            was, now = old.process, rank.process
            if was.main_written is None or now.main_written is None:
                self._wrote = True
                continue
            self._written += now.main_written - was.main_written
            self._wrote |= now.main_written != was.main_written or rank.children.written > old.children.written
            if not (rank.paused_by_us or old.paused_by_us):
                did.woke |= (now.main_switches, now.ran_s) != (was.main_switches, was.ran_s)

    def is_progress(
        self,
        read: Sequence[tuple[int, str]],
        progress: bool,
        ranks: Sequence[RankFeatures],
        baselines: Mapping[int, Baseline],
        at_s: float,
        tuning: Tuning,
    ) -> bool:
        """Whether lines of which one looks like progress are, by who may have printed them; ``read`` may be empty."""
        late = self._awaited and self._wrote
        self._awaited &= self._hidden and not late
        if not read:
            return late
        speaks = self._wrote or self._others_work(ranks, baselines, at_s, tuning)
        self._note_count(read, at_s)
        self._awaited |= progress and not speaks
        self._wrote = False
        for did in self._did.values():
            did.woke = False
        return late or (progress and speaks)

    @property
    def wrote(self) -> bool:
        """Whether a main thread, or a program that a rank has started, has written since the newest line before."""
        return self._wrote

    def _others_work(
        self, ranks: Sequence[RankFeatures], baselines: Mapping[int, Baseline], at_s: float, tuning: Tuning
    ) -> bool:
        """Whether something may print in place of the main threads: threads or helpers at work, a logging thread."""
        for rank in ranks:
            base, did = baselines.get(rank.rank), self._did.get(rank.rank)
            if rank.motion is Motion.EXITED:
                continue
            if base is None or did is None:
                return True
            busy = (base.helpers_s, base.helpers_ran_s)
            if any(seen_s is not None and at_s - seen_s < tuning.work_window_s for seen_s in busy):
                return True
            if did.woke and not self.counts:
                return True
            if not did.woke and (rank.motion in _AT_WORK or rank.cpu_share >= tuning.blocked_cpu_share):
                return True
        return False

    def _note_count(self, read: Sequence[tuple[int, str]], at_s: float) -> None:
        if self.counts or not 0 < self._written <= _MOST * sum(len(line) for _, line in read) + _BESIDE:
            return
        for rank, line in read:
            if len(line) < self._written:
                self._count.take(rank, line, at_s)
        self.counts = self._count.began
