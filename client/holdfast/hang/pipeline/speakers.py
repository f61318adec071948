"""Speakers of a worker's lines: the main threads of its ranks, or something that goes on while they hang.

Theory of operation. A heartbeat's thread prints on whatever becomes of the training, and its numbers grow as a step
count does. Two things tell such lines from work. They came all along, minute after minute beside the steps; what a
phase of the job prints, such as an evaluation or an upload by threads, comes in its own time alone. And the kernel
counts what each thread writes: they still come while no main thread, and no process that a rank has started, writes.
Only lines of which both is true, with no step among them, are talk.

Whatever may be work counts: while helpers, or threads beside a main thread at rest, use the CPU; where a main thread
waits for a thread; where who prints can't be seen; and all lines of a worker whose steps others than its main threads
have printed, such as a logging thread, a thread that trains, or a runtime that moves its work from thread to thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.hang.pipeline.features import Motion, RankFeatures
from holdfast.hang.pipeline.log_progress import names_its_count, normalised, plain
from holdfast.hang.pipeline.rank_baseline import Baseline
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.pipeline.waits import A_THREAD
from holdfast.hang.thresholds import Tuning

SPANS = 3
"""What came in so many spans of ``beside_s`` of steps, one after the other, comes all along."""
MOST = 5
"""So many more lines with steps come from others than from main threads, and who prints tells nothing of a worker."""
_AT_WORK = (Motion.WORKING, Motion.BURNING)


class Speakers:
    """Follows one worker in one generation. It remembers as many shapes as the reader of its lines."""

    def __init__(self) -> None:
        self.wrote = True
        """Whether a main thread, or a process that a rank has started, has written since the newest line before."""
        self._wrote_before = True
        # A line is held that came while none has written; whether it had a step.
        self._held: bool | None = None
        # So many more lines with steps have come from others than from main threads; at ``MOST`` it stays.
        self._foreign = 0
        self._samples: dict[int, RankSample] = {}
        self._woke: set[int] = set()
        self._step_s: float | None = None
        self._span_s = 0.0
        self._span: set[str] = set()
        self._beside: dict[str, int] = {}

    def look(self, ranks: Sequence[RankSample]) -> None:
        """Take in what the processes have done since they were last seen."""
        for rank in ranks:
            old, self._samples[rank.rank] = self._samples.get(rank.rank), rank
            was, now = old.process if old else None, rank.process
            if old is None or rank.pid != old.pid:
                self.wrote = True
            elif rank.exit_code is not None:
                self.wrote |= old.exit_code is None  # with some last words, perhaps
            elif was is None or now is None or was.main_written is None or now.main_written is None:
                self.wrote = True
            else:
                self.wrote |= now.main_written != was.main_written
                self.wrote |= rank.children.written > old.children.written
                self.wrote |= rank.helpers.written > old.helpers.written
                if (now.main_switches, now.ran_s) != (was.main_switches, was.ran_s):
                    self._woke.add(rank.rank)

    def is_progress(
        self,
        told: Sequence[str] | None,
        ranks: Sequence[RankFeatures],
        baselines: Mapping[int, Baseline],
        at_s: float,
        tuning: Tuning,
    ) -> bool:
        """Whether lines that look like progress are, by who may have printed them; None where no line came at all.

        A line may be read just before or after what was written for it is counted, so the looks beside it decide, too.
        """
        held, self._held = self._held, None
        late = held is not None and self.wrote
        if held is not None and self._foreign < MOST:
            self._foreign = max(0, self._foreign + (-1 if late else held))
        if told is None:
            return late
        steps = [names_its_count(line) for line in told]
        shapes = {normalised(plain(line))[0] for line, step in zip(told, steps, strict=True) if not step}
        self._note_beside(any(steps), shapes, at_s, tuning)
        progress = bool(told) and (
            any(steps)
            or self.wrote
            or self._foreign == MOST
            or any(self._beside.get(shape, 0) < SPANS for shape in shapes)
            or self._others_work(ranks, baselines, at_s, tuning)
        )
        if not self.wrote and told:
            self._held = any(steps) and not self._wrote_before
        elif any(steps) and self._foreign < MOST:
            self._foreign = max(0, self._foreign - 1)
        self._wrote_before, self.wrote = self.wrote, False
        self._woke.clear()
        return late or progress

    def _note_beside(self, steps: bool, shapes: set[str], at_s: float, tuning: Tuning) -> None:
        """Note which shapes come all along beside the steps."""
        if self._step_s is not None and at_s - self._step_s <= tuning.beside_s:
            self._span |= shapes
        if not steps:
            return
        if self._step_s is None or at_s - self._step_s > tuning.beside_s:
            self._beside, self._span, self._span_s = {}, set(shapes), at_s
        elif at_s - self._span_s >= tuning.beside_s:
            self._beside = {shape: self._beside.get(shape, 0) + 1 for shape in self._span}
            self._span, self._span_s = set(), at_s
        self._step_s = at_s

    def _others_work(
        self, ranks: Sequence[RankFeatures], baselines: Mapping[int, Baseline], at_s: float, tuning: Tuning
    ) -> bool:
        """Whether something may work and print in place of the main threads: threads, or helpers."""
        for rank in ranks:
            base = baselines.get(rank.rank)
            if rank.motion is Motion.EXITED:
                continue
            if base is None or (rank.wait is not None and rank.wait.what.endswith(A_THREAD)):
                return True
            busy = (base.helpers_s, base.helpers_ran_s)
            if any(seen_s is not None and at_s - seen_s < tuning.work_window_s for seen_s in busy):
                return True
            uses_cpu = rank.motion in _AT_WORK or rank.cpu_share >= tuning.blocked_cpu_share
            if uses_cpu and rank.rank not in self._woke:
                return True
        return False
