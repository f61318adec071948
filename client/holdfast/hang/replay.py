"""Runs the detector over recorded samples in virtual time. Pure.

The samples are folded as an agent folds them and judged as the controller judges them, with the job's wishes or
others; nothing is acted on, so that a replay runs to its end. Stack dumps are not part of a recording: what only
they can settle stays open, and a verdict waits for them as long as it waits for dumps that never come.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.choices import HangAction
from holdfast.hang.judge import verdict
from holdfast.hang.judge.finding import Finding
from holdfast.hang.judge.stages import Rung
from holdfast.hang.judge.state import begin
from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.records.recording import WorkerSample
from holdfast.hang.thresholds import HangSettings, tuned
from holdfast.hang.worker_watch import WorkerWatch

LOOK_EVERY_S = 1.0


class Turn(enum.Enum):
    """One event of a replay."""

    BEGAN = "began"
    SUSPECT = "suspect"
    NOTICED = "noticed"
    # Where the gang would be relaunched, were that asked for.
    CONFIRMED = "confirmed"
    OVER = "over"
    END = "end"


@dataclass(frozen=True, slots=True)
class Moment:
    """Something happened, so many seconds after the recording's first sample."""

    at_s: float
    generation: int
    turn: Turn
    sentence: str = ""
    rule: str = ""
    suspects: tuple[str, ...] = ()


@dataclass
class _Replay:
    settings: HangSettings
    workers: int
    generation: int = 0
    watch: JobWatch | None = None
    folds: dict[str, WorkerWatch] = field(default_factory=dict)
    vectors: dict[str, WorkerFeatures] = field(default_factory=dict)
    looked_s: float = 0.0
    told: bool = False
    sentence: str = "the workers were never heard of together"


def replay(recordings: Sequence[Iterable[WorkerSample]], settings: HangSettings) -> Iterator[Moment]:
    """Verdicts that the detector would have given, with their times.

    ``recordings`` has one for each worker of a job, oldest sample first.
    Hosts' clocks share no beginning: each recording counts from its own first sample. Raises what reading raises.
    """
    state = _Replay(replace(settings, action=HangAction.NOTIFY), len(recordings))
    merged = heapq.merge(*map(_from_zero, recordings), key=lambda each: each[0])
    now_s = 0.0
    for now_s, zero_s, sample in merged:
        if sample.generation < state.generation:
            continue
        if sample.generation > state.generation:
            yield _begin(state, sample.generation, now_s)
        fold = state.folds.get(sample.worker)
        if fold is None:
            fold = WorkerWatch(sample.worker, sample.generation, settings.step_pattern, tuned(settings))
            state.folds[sample.worker] = fold
        state.vectors[sample.worker] = fold.take(sample).shifted(-zero_s)
        if len(state.vectors) >= state.workers and now_s - state.looked_s >= LOOK_EVERY_S:
            yield from _look(state, now_s)
    if state.generation:
        yield Moment(now_s, state.generation, Turn.END, state.sentence)


def _from_zero(samples: Iterable[WorkerSample]) -> Iterator[tuple[float, float, WorkerSample]]:
    zero_s: float | None = None
    for sample in samples:
        zero_s = sample.at_s if zero_s is None else zero_s
        yield sample.at_s - zero_s, zero_s, sample


def _begin(state: _Replay, generation: int, now_s: float) -> Moment:
    """Everything is reset but how long the start took before, as in the controller."""
    state.generation, state.watch = generation, begin(now_s, state.watch)
    state.folds, state.vectors, state.told = {}, {}, False
    state.looked_s = now_s - LOOK_EVERY_S
    return Moment(now_s, generation, Turn.BEGAN)


def _look(state: _Replay, now_s: float) -> Iterator[Moment]:
    assert state.watch is not None
    vectors = [state.vectors[name] for name in sorted(state.vectors)]
    result = verdict.step(state.watch, vectors, state.settings, now_s)
    state.watch, state.looked_s, state.sentence = result.watch, now_s, result.verdict.sentence
    for order in result.orders:
        match order:
            case verdict.Diagnose():
                yield _moment(state, now_s, Turn.SUSPECT, result.verdict.finding)
            case verdict.Notify(finding):
                state.told = True
                yield _moment(state, now_s, Turn.NOTICED, finding)
            case verdict.Act(finding) | verdict.WouldAct(finding):
                yield _moment(state, now_s, Turn.CONFIRMED, finding)
    if state.told and result.watch.rung is Rung.HEALTHY:
        state.told = False
        yield _moment(state, now_s, Turn.OVER, None)


def _moment(state: _Replay, now_s: float, turn: Turn, finding: Finding | None) -> Moment:
    if finding is None:
        return Moment(now_s, state.generation, turn, state.sentence)
    return Moment(now_s, state.generation, turn, finding.sentence, finding.rule.value, finding.suspects)
