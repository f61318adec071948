"""Root cause of a failure: the rank that failed first.

The exit that is reported first need not have happened first, and the first to happen need not be the cause. So the
answer weighs each exit's blame (see ``exit_blame``) before its time, and is computed again as a generation's last
exits are reported, which may be only after the next generation was launched.
"""

from __future__ import annotations

import bisect

from holdfast._base.job_file.choices import RestartScope
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.exit_blame import Blame, blame
from holdfast_controller.core.lifecycle.exit_tally import tally
from holdfast_controller.core.lifecycle.failure_policy import Cause, classify, key_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, of_rank
from holdfast_controller.core.step.step import Step

SETTLE_S = 1.0
"""How long the answer to an end that speaks of a lost peer waits for that peer's own: a Python with torch in it
takes some tenths of a second to leave after it has raised."""
_REASONS = {
    Cause.PORT_TAKEN: EndReason.PORT_TAKEN,
    Cause.HANG: EndReason.HANG,
    Cause.CUT_OFF: EndReason.CUT_OFF,
    Cause.HARDWARE_FAULT: EndReason.HARDWARE_FAULT,
    Cause.HOST_UNFIT: EndReason.HOST_UNFIT,
}
"""Where the class says more of a recovery than the end's own reason does."""


def first_failure(job: Job, generation: int) -> tuple[Member, Exit] | None:
    """Which rank of a generation failed first, of those that failed by themselves.

    Consequences of another's end come last; otherwise the earliest counts. Ends are ordered by their hosts' wall
    clocks, which agree to milliseconds where time is kept by NTP; between ranks of one host the order is exact.
    """
    first = tally(job, generation).first
    if first is None:
        return None
    rank = first[2]
    return member_of(job, rank), job.exits[generation][rank]


def failed_at(step: Step, job: Job, exit_: Exit) -> Wall:
    """When a failure began. A gang had not failed while it still moved on, whatever the failing host's clock shows."""
    at = exit_.end_time or step.now.wall
    if job.gang.retries.scope is RestartScope.WORKER:
        return Wall(at)
    runtime, newest = step.cluster.runtime.get(job.id), job.ledger.unsettled if job.ledger is not None else None
    watch = runtime.progress if runtime is not None else None
    moved = [newest.progress.moved] if newest is not None else []
    moved += [watch.moved] if watch is not None and watch.generation == exit_.generation else []
    return Wall(min(max(at, *((each or 0) / 1000 for each in moved), 0), step.now.wall))


def end_reason_of(cause: Cause, exit_: Exit) -> EndReason:
    """Why a generation ended, by the class of its failure, else by its exit."""
    return _REASONS.get(cause) or EndReason[exit_.reason.name]


def member_of(job: Job, rank: int) -> Member:
    """The worker that a rank belongs to."""
    members = job.gang.members
    return members[bisect.bisect_right(members, rank, key=lambda member: member.first_rank) - 1]


def is_settled(job: Job) -> bool:
    """Whether what is known of the current generation's failures is enough to answer them."""
    found = first_failure(job, job.generation)
    if found is None or blame(found[1]) is not Blame.CONSEQUENCE:
        return True
    return len(job.exits_now()) == job.gang.rank_count


def name_cause(step: Step, job: Job) -> None:
    """If another rank of the last generation turns out to be the cause: say so, and let it pay."""
    recovery = job.recoveries[-1] if job.recoveries else None
    if recovery is None or recovery.failed_generation is None:
        return
    found = first_failure(job, recovery.failed_generation)
    if found is None:
        return
    member, exit_ = found
    related = of_rank(member.name, exit_.rank)
    if related != recovery.related:
        cause = classify(job.gang, exit_, port_taken=False)
        # One that we stopped had raised by itself as the order came: no deadline of its shim's was over.
        reason = EndReason.STOPPED if exit_.reason is ExitReason.STOPPED else end_reason_of(cause, exit_)
        step.emit(
            ev.CauseFound(
                job_id=job.id,
                at=step.now.wall,
                generation=recovery.generation,
                end_reason=reason,
                related=related,
                failed_at=min(failed_at(step, job, exit_), recovery.started_at),
                charged=member.index if recovery.charged is not None else None,
                key=key_of(cause, exit_),
            )
        )
