"""The expected end of a job in words: an interval with its chance, or why none is known and what changes that."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.goodput.end_time import CHANCE_PCT, Interruptions, ms_left, pace_of
from holdfast_controller.core.lifecycle.recovery_phases import phases_of
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.clock import Now, Wall, moment
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.views.training import Training

REPORT = "holdfast.progress(step, total=5000)"
_BY_USER = frozenset({EndReason.PAUSED, EndReason.RESTART_REQUESTED})
"""Interruptions that say nothing of those to come."""


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """The end in words; ``interval`` is None where it isn't known."""

    words: str
    interval: tuple[Wall, Wall] | None = None


def expected_end(cluster: Cluster, job: Job, training: Training, now: Now) -> ExpectedEnd | None:
    """The end as of now; None for a job that doesn't train."""
    runtime = cluster.runtime.get(job.id)
    hangs = bool(job.hangs) and job.hangs[-1].open and job.hangs[-1].generation == job.generation
    if job.state is not JobState.RUNNING or job.outcome is not None or hangs:
        return None
    if runtime is None or not runtime.features or job.ledger is None:
        return None
    if training.step is None:
        return ExpectedEnd(f"Unknown: no steps are known; report them with their total, as in {REPORT}")
    if training.total is None:
        return ExpectedEnd(
            f"Unknown: the total is not known; report it, as in {REPORT}, or set progressTotal in the job file"
        )
    left = training.total - training.step
    if left <= 0:
        return ExpectedEnd("Any time: all its steps are done")
    watch = runtime.progress
    stretches = [*job.ledger.stretches, *(watch.stretches if watch is not None else ())]
    pace = pace_of(stretches, left)
    last = watch.last if watch is not None else None
    if pace is None or last is None:
        return ExpectedEnd("Not known yet: it is estimated when about a tenth of the steps has been seen")
    if pace.is_too_uneven:
        return ExpectedEnd("Unknown: its steps so far took too uneven a time")
    reached = last.at if last.step == training.step else now.wall * 1000
    interruptions = _interruptions(job, now)
    earliest, latest = ms_left(pace, left, interruptions)
    if not training.reported:
        # A count in the output may be printed as the step begins, or as it ends.
        latest += pace.step_ms
    begin, end = Wall(max((reached + earliest) / 1000, now.wall)), Wall((reached + latest) / 1000)
    if end <= now.wall:
        return ExpectedEnd("Unknown: it takes longer than its steps so far made expect")
    if end - begin >= 600:
        begin, end = Wall(begin // 60 * 60), Wall(-(-end // 60) * 60)
    within = f"between {moment(begin, now)} and {moment(end, now)}"
    beside = ", if it goes on to be interrupted as before" if interruptions.number else ""
    return ExpectedEnd(
        f"{within[0].upper()}{within[1:]} ({CHANCE_PCT} %), from {span(pace.ms / 1000)} of steps{beside}",
        (begin, end),
    )


def _interruptions(job: Job, now: Now) -> Interruptions:
    costs = []
    for recovery in job.recoveries:
        spent = phases_of(recovery)
        if recovery.end_reason not in _BY_USER and spent.lost_s is not None:
            costs.append(spent.lost_s + (spent.catch_up_s or 0.0))
    if not costs or job.started_at is None:
        return Interruptions()
    life_s = max(now.wall - job.started_at, sum(costs))
    return Interruptions(len(costs), round(life_s * 1000), 1000 * sum(costs) / len(costs))
