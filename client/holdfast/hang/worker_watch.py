"""Turns one worker's samples into the features that the controller judges by. Pure.

Each rank's counters are compared with its own past (``pipeline.rank_baseline``); its lines are divided into
progress and talk (``pipeline.log_progress``). A new generation starts from nothing. What was learned can be written
down and taken up again, so that an agent's restart makes no rank look new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast._base.codec import from_plain, to_plain
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.learned_step import LearnedStep
from holdfast.hang.pipeline.log_progress import COUNT_S, MAX_LINE, LineReader, WorkCount, plain
from holdfast.hang.pipeline.rank_baseline import Baseline, begin, observe
from holdfast.hang.pipeline.rank_times import RankTimes, added
from holdfast.hang.pipeline.speakers import Speakers
from holdfast.hang.pipeline.step_count import LineCounts, Shown, StepCount
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.thresholds import Tuning
from holdfast.training.known_step import known_step
from holdfast.training.rank_progress import RankProgress

GPU_READINGS = 12
"""Readings of a GPU at work, 5 s apart, that are more than a start does there."""
REPORTING_MOST = 1_024
"""Ranks of one worker whose own reports are followed."""
WORK_LINES = 400
"""Lines of a sample in which the beginning of work is looked for: to read all of a flood would hold the agent."""
CHARACTERS_MOST = 40_000
"""Of a sample's lines, those divided from talk by their shape: each of a line full of numbers costs 1 to 2 us."""
REPEAT_S = 8.0
"""A vector without news is sent again after so long; the controller calls a worker blind after 15 s."""


@dataclass
class WorkerWatch:
    """One worker in one generation. Times in seconds on this host's monotonic clock."""

    host: str
    generation: int
    step_pattern: str = ""
    tuning: Tuning = field(default_factory=Tuning)
    baselines: dict[int, Baseline] = field(default_factory=dict)
    last_progress_s: float | None = None
    step: float | None = None
    step_s: float | None = None
    sent: WorkerFeatures | None = None
    count: StepCount = field(default_factory=StepCount)
    resumes: int = 0
    counts: LineCounts = field(default_factory=LineCounts)
    learned: LearnedStep = field(default_factory=LearnedStep)
    _work: WorkCount = field(default_factory=WorkCount)
    _speakers: Speakers = field(default_factory=Speakers)
    _events_s: float | None = None
    _reader: LineReader = field(init=False)
    _reports: dict[int, int] = field(default_factory=dict)
    _ranks: tuple[RankFeatures, ...] = ()
    _times: dict[int, RankTimes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = LineReader(self.step_pattern)

    def take(self, sample: WorkerSample) -> WorkerFeatures:
        """The worker after one more sample."""
        if sample.ranks:
            self._ranks = tuple(self._rank(sample, index) for index in range(len(sample.ranks)))
            self._speakers.look(sample.ranks)
        if self._has_progressed(sample):
            self.last_progress_s = sample.at_s
        grown = None if self.reported else sample.files.events_grew_s
        if grown is not None and (self.last_progress_s is None or grown > self.last_progress_s):
            self.last_progress_s = grown
        said = sample.progress
        self._note_work(sample)
        shown = self._shown()
        learned = self.learned if shown.done is not None and self.learned.chosen is not None else None
        output = OutputFeatures(
            last_progress_s=self.last_progress_s,
            step=self.step,
            last_checkpoint_s=sample.files.checkpoint_grew_s,
            checkpoint_open=sample.files.checkpoint_open,
            reported=self.reported,
            began_work=self._work.began,
            step_total=known_step(shown.total),
            step_fell=self.count.fell_from is not None,
            phase=_phase(said),
            saved_step=_highest(one.saved for one in said),
            resumed_step=_highest(one.resumed for one in said),
            bar_step=shown.done,
            bar_is_step=shown.is_step,
            step_s=self.step_s,
            first_step=learned.first if learned is not None else None,
            first_step_s=learned.first_s if learned is not None else None,
        )
        return WorkerFeatures(
            sample.worker, self.host, sample.at_s, self._ranks, output, sample.idle_reason, sample.own_world
        )

    def _shown(self) -> Shown:
        """The step read from lines, where the program reports none; and the total, from either."""
        if self.step is not None:
            return Shown(None, self.count.total_beside(self.step), is_step=False)
        if self.learned.step is not None:
            return Shown(self.learned.step, None, is_step=True)
        return self.counts.shown() or Shown(None, None, is_step=False)

    def is_news(self, vector: WorkerFeatures) -> bool:
        """Whether the features should be sent now."""
        return self.sent is None or vector.changed_since(self.sent) or vector.at_s - self.sent.at_s >= REPEAT_S

    def _rank(self, sample: WorkerSample, index: int) -> RankFeatures:
        rank = sample.ranks[index]
        known = self.baselines.get(rank.rank)
        base, features = begin(rank) if known is None else observe(known, rank, self.tuning)
        self.baselines[rank.rank] = base
        times = added(self._times.get(rank.rank, RankTimes()), known.sample if known else None, rank)
        said = next((one for one in sample.progress if one.rank == rank.rank and one.step is not None), None)
        if said is not None and said.step is not None and float(said.step) != times.step:
            times = replace(times, step=float(said.step), step_s=said.at_s)
        self._times[rank.rank] = times
        return replace(features, times=times)

    def _has_progressed(self, sample: WorkerSample) -> bool:
        """Whether the program reports progress, or a line of its output does where it never reports any."""
        moved = False
        total = _highest(said.total for said in sample.progress)
        for said in sample.progress:
            self._take_resumption(said)
            if said.rank not in self._reports and len(self._reports) >= REPORTING_MOST:
                continue  # the files are the program's: it may name any number of ranks
            if said.reports != self._reports.get(said.rank, 0):
                self._reports[said.rank] = said.reports
                moved |= said.reports > 0  # else: another program of the rank is about to report
                step = None if said.step is None else float(said.step)
                self.count.take(said.rank, step, total)
                if step is not None and (self.step is None or step > self.step):
                    self.step, self.step_s = step, said.at_s
        if self.reported:
            return moved
        lines = sample.lines if self.step_pattern else _newest(sample.lines)
        least = self.tuning.helper_cpu_share
        at_work = any(rank.motion is Motion.WORKING or rank.cpu_share >= least for rank in self._ranks)
        works = at_work and self._speakers.wrote
        read = [self._is_progress(line, sample.at_s, works=works) for line in lines]
        if self._reader.step is not None:
            self.step = self._reader.step
        if self.step_pattern or not sample.ranks:
            return any(read)
        told = [line.text for line, progress in zip(lines, read, strict=True) if progress][-WORK_LINES:]
        return self._speakers.is_progress(
            told if lines else None, self._ranks, self.baselines, sample.at_s, self.tuning
        )

    def _note_work(self, sample: WorkerSample) -> None:
        """Note whether the program has begun its work by now; once it has, that stays."""
        if self._work.began:
            return
        for line in _newest(sample.lines)[:WORK_LINES]:
            self._work.take(line.rank, line.text, sample.at_s)
        grew_s = sample.files.events_grew_s
        if self._events_s is None:
            self._events_s = grew_s
        self._work.began |= (
            bool(self.step)
            or any(_works(said) for said in sample.progress)
            or (grew_s is not None and self._events_s is not None and grew_s - self._events_s >= COUNT_S)
            or any(base.gpu_learned >= GPU_READINGS for base in self.baselines.values())
        )

    def _take_resumption(self, said: RankProgress) -> None:
        """Steps fall where the program says that it went on from an older one; each rank may say it of the same."""
        if said.resumes > self.resumes:
            self.resumes = said.resumes
            self.count.resume()
            if self.step is not None and said.resumed is not None:
                self.step = min(self.step, float(said.resumed))

    def _is_progress(self, line: LogLine, at_s: float, *, works: bool) -> bool:
        before = self._reader.steps_read
        progress = self._reader.is_progress(line.text, line.rank, at_s=at_s, works=works)
        if self._reader.steps_read > before:
            self.count.take(line.rank, self._reader.step, self._reader.total)
        elif self.step is None:
            text = plain(line.text)
            self.counts.take(line.rank, text)
            # Whatever is counted beside it: a step that was learned and isn't read any more would stand still.
            if not self.step_pattern and (self.learned.chosen is not None or self.counts.shown() is None):
                self.learned.take(line.rank, text, at_s)
        return progress

    @property
    def reported(self) -> bool:
        """Whether the program has reported progress in this generation: only its reports are progress then."""
        return bool(self._reports)

    def journal(self) -> dict[str, Any]:
        """State worth keeping over a restart of the agent, as plain JSON values."""
        return {
            "generation": self.generation,
            "baselines": {str(rank): to_plain(base) for rank, base in self.baselines.items()},
            "lastProgressS": self.last_progress_s,
            "reports": {str(rank): count for rank, count in self._reports.items()},
            "step": self.step,
            "count": to_plain(self.count),
            "counts": to_plain(self.counts),
            "learned": to_plain(self.learned) if self.learned.chosen is not None else {},
            "resumes": self.resumes,
            "beganWork": self._work.began,
        }

    def restore(self, record: dict[str, Any]) -> None:
        """Take up what ``journal`` gave, if it is of this generation. Raises ``ValueError`` for a bad record."""
        if record.get("generation") != self.generation:
            return
        try:
            baselines = {int(rank): from_plain(Baseline, base) for rank, base in record["baselines"].items()}
            count = from_plain(StepCount, record.get("count", {}))
            self.counts = from_plain(LineCounts, record.get("counts", {}))
            self.learned = from_plain(LearnedStep, record.get("learned", {}))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no baseline: {error!r}") from error
        self.baselines, self.count, self.resumes = baselines, count, record.get("resumes", 0)
        self.last_progress_s, self.step = record.get("lastProgressS"), known_step(record.get("step"))
        self._work.began = record.get("beganWork", False)
        if self.step_pattern:
            self._reader.take_up(self.step)
        self._reports = {int(rank): count for rank, count in record.get("reports", {}).items()}


def _newest(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """All of a sample's lines; of a flood the newest of each stream, to ``CHARACTERS_MOST`` in all."""
    if sum(min(len(line.text), MAX_LINE) for line in lines) <= CHARACTERS_MOST:
        return lines
    left = dict.fromkeys(((line.rank, line.stream) for line in lines), 0)
    left = dict.fromkeys(left, CHARACTERS_MOST // len(left))
    kept = []
    for line in reversed(lines):
        stream = line.rank, line.stream
        left[stream] -= min(len(line.text), MAX_LINE)
        if left[stream] >= 0:
            kept.append(line)
    return kept[::-1]


def _works(said: RankProgress) -> bool:
    """Whether a rank says more than that it starts: a step, a sign of life, an evaluation, a checkpoint."""
    stepped = said.reports > 0 and (said.step is None or said.step > (said.resumed or 0))
    saved = said.saved is not None and said.saved != said.resumed
    return stepped or saved or said.saves or said.evaluates


def _phase(ranks: Sequence[RankProgress]) -> str:
    """The phase of a worker: one rank that evaluates or saves lets the others wait for it."""
    if any(said.saves for said in ranks):
        return "save"
    if any(said.evaluates for said in ranks):
        return "evaluate"
    # A file with nothing but a pause in it tells no phase.
    return "train" if any(said.reports or said.saved is not None or said.resumes for said in ranks) else ""


def _highest(steps: Iterable[int | None]) -> float | None:
    return max((float(step) for step in steps if step is not None), default=None)
