"""Estimates of run times: what the user declared, what equal jobs took, or the longest that the job may run.

Learned from jobs that succeeded or reached their timeout; others say how long a failure took. A job that has outlived
its estimate is expected to run for twice as long in all, at most until its timeout (Tsafrir, Etsion, Feitelson: TPDS
2007). No estimate ever ends a job.
"""

from __future__ import annotations

import enum
import math
import re
from collections import OrderedDict, deque
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState

if TYPE_CHECKING:
    from holdfast_controller.core.model.jobs import Known

REMEMBERED = 50
"""Newest runs that are remembered of one kind of jobs."""
FEWEST = 3
"""Runs of a kind from which one can learn."""
KINDS = 10_000
"""Kinds of jobs that are remembered: those that ended last."""
QUANTILE = 0.9
_FIGURES = re.compile(r"[0-9]+")

Kind = tuple[str | int, ...]


class Backfill(enum.Enum):
    """When a job may start ahead of its turn on hosts that one ahead of it could use. Values are those of settings."""

    STRICT = "strict"
    """Never, unless it is SPOT: it gives way."""
    PROJECTED = "projected"
    """Where it delays no projected start, by the estimated run times."""
    LOAN = "loan"
    """The same, and on loan where it would: it gives way to those ahead of it."""


class Basis(enum.Enum):
    """The source of an estimate."""

    DECLARED = "declared"
    LEARNED = "learned"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that a job runs in all its attempts, and ``runs`` equal jobs from which that was learned."""

    seconds: float
    basis: Basis
    runs: int = 0


@dataclass
class RunTimes:
    """Run times of jobs that ended, by kind: made again from the jobs that are kept when the controller starts."""

    _known: OrderedDict[Kind, deque[float]] = field(default_factory=OrderedDict)
    _typical: dict[Kind, float] = field(default_factory=dict)
    """The quantile of each kind that was asked for since its last run."""

    def learn(self, job: Known, ran_s: float) -> None:
        """A job has run to its end, or its timeout, in so many seconds."""
        for kind in _kinds(job):
            self._known.setdefault(kind, deque(maxlen=REMEMBERED)).append(ran_s)
            self._known.move_to_end(kind)
            self._typical.pop(kind, None)
        while len(self._known) > KINDS:
            self._typical.pop(self._known.popitem(last=False)[0], None)

    def estimate(self, job: Job, ran_s: float = 0.0) -> Estimate:
        """How long a job runs in all that has run for ``ran_s`` so far."""
        found = self._first(job, _kinds(job))
        seconds = found.seconds
        while 0.0 < seconds <= ran_s:
            seconds *= 2.0
        return Estimate(min(seconds, job.gang.timeout_s), found.basis, found.runs)

    def supported(self, job: Job, ran_s: float = 0.0) -> Estimate:
        """An estimate that may be shown: declared, or learned from runs of this program, and not outlived.

        Else the timeout, which is a bound; infinite once that has passed too. ``estimate`` also goes by other
        programs, and doubles what was outlived.
        """
        found = self._first(job, _kinds(job)[:1])
        timeout_s = job.gang.timeout_s
        if ran_s < found.seconds < timeout_s:
            return found
        return Estimate(timeout_s if ran_s < timeout_s else math.inf, Basis.TIMEOUT)

    def _first(self, job: Job, kinds: tuple[Kind, ...]) -> Estimate:
        if job.gang.expected_s:
            return Estimate(job.gang.expected_s, Basis.DECLARED)
        for kind in kinds:
            runs = self._known.get(kind, ())
            if len(runs) >= FEWEST:
                typical = self._typical.get(kind)
                if typical is None:
                    typical = sorted(runs)[min(int(QUANTILE * len(runs)), len(runs) - 1)]
                    self._typical[kind] = typical
                if typical < job.gang.timeout_s:
                    return Estimate(max(typical, 1.0), Basis.LEARNED, len(runs))
                break
        return Estimate(job.gang.timeout_s, Basis.TIMEOUT)


def run_time_of(job: Job) -> float | None:
    """Seconds that a job ran until it succeeded or reached its timeout; None of any other, and of one never started.

    None too of one that ended before it began, by a clock that was set back meanwhile: that took longer than no time.
    """
    began, ended = job.placement.running_since, job.ended_at
    if began is None or ended is None or ended < began:
        return None
    ran_s = job.ran_s + ended - began
    timed_out = job.state is JobState.FAILED and ran_s >= job.gang.timeout_s
    return min(ran_s, job.gang.timeout_s) if job.state is JobState.SUCCEEDED or timed_out else None


def ran_so_far(job: Job, now: Wall) -> float:
    """Seconds that a job has run in all its attempts."""
    began = job.placement.running_since
    return job.ran_s + (max(now - began, 0.0) if began is not None and job.vacating is None else 0.0)


def _kinds(job: Known) -> tuple[Kind, ...]:
    """The kinds that a job belongs to, the narrowest first. Figures in its name, such as a date, don't count."""
    project, owner, gpus = job.project, job.owner, job.gpus
    stem = _FIGURES.sub("#", job.display_name)
    return (project, owner, gpus, stem), (project, owner, gpus), (project, gpus)
