"""Words for what a waiting job may have out of its turn, or within a guarantee; each begins with a semicolon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.clock import time_of_day
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.fair_share.guarantees import borrowers, warning

if TYPE_CHECKING:
    from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView


def when_lent(job: Job, queue_view: QueueView) -> str:
    """When a job may start out of turn, or others are stopped for it again; empty where nothing is to say."""
    later = when_it_claims(job, queue_view)
    why = "being SPOT, " if job.gang.strategy is Strategy.SPOT else ""
    if later or not (why or queue_view.backfill is Backfill.LOAN):
        return later
    return f"; {why}it starts ahead of its turn, on loan, as soon as enough is free for it"


def why_later(job: Job, first: Job) -> str:
    """Why a job is served after another one of another class, whichever was submitted first; see ``Job.turn``."""
    if job.turn[0] != first.turn[0]:
        return f"; {first.id} ran before it failed, and is placed again first"
    if job.gang.priority != first.gang.priority:
        return f"; its priority is {job.gang.priority}, that of {first.id} {first.gang.priority}"
    return ""  # it is SPOT, and ``when_lent`` says what that means for it


def when_it_claims(job: Job, queue_view: QueueView) -> str:
    """Until when it has to do with what is free in its turn; empty where it has more."""
    if job.no_claim_before is None or queue_view.cluster.elapsed_loans.get(job.id) == job.attempt:
        return ""
    again = time_of_day(job.no_claim_before)
    if job.last_end is EndReason.PREEMPTED:
        return f"; it gave way and may start ahead of its turn again from {again} on, after as long as it lost"
    if job.gang.strategy is Strategy.SPOT:
        return f"; it failed soon after its start and may start ahead of its turn again from {again} on"
    words = f"; it failed soon after its start, so no other job is stopped for it before {again}"
    return words if queue_view.has_revocable_work or borrowers(queue_view.cluster) else ""


def what_it_claims(job: Job, queue_view: QueueView) -> str:
    """The prospects of a job that waits within the guarantee of its project."""
    cluster, project = queue_view.cluster, job.gang.project
    gpus = cluster.shares.guarantees[project]
    claim = f"; {project} is guaranteed {gpus} GPU{'s' * (gpus > 1)}, and it waits within that"
    if later := when_it_claims(job, queue_view):
        return f"{claim}{later}"
    if borrowers(cluster) or any(cluster.jobs[name].revocable for name in cluster.holdings.gpus_by_job):
        return (
            f"{claim}: others that fit nowhere beside it give way, each once it has run {span(queue_view.loan_s)}"
        )
    too_much = f"; {words}" if (words := warning(cluster)) else ""
    return f"{claim}, but no other job has GPUs beyond its own project's guarantee{too_much}"
