"""The start of a job that waits: whether it may start at all, and on hosts that were planned for it."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.placement import Plan
from holdfast_controller.core.step.actions import Assign
from holdfast_controller.core.step.assignment import released
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer


def may_be_placed(cluster: Cluster, job: Job, now_wall: float) -> bool:
    """Whether nothing of an earlier attempt is left, and the job's back-off has expired.

    A job with excluded hosts waits, after a controller's start, until all hosts had time to connect: the spare too.
    """
    if job.gang.measures or job.awaited or job.unreconciled is not None or (job.excluded and cluster.awaited_hosts):
        return False
    if job.not_before is None or job.not_before <= now_wall:
        return True
    return cluster.elapsed_backoffs.get(job.id) == job.not_before


def is_alone(job: Job) -> bool:
    """Whether it is a new job whose only worker may have any host."""
    return not job.places and len(job.gang.seats) == 1 and job.gang.anywhere


def on_waited(step: Step, kind: JobTimer, job: Job) -> None:
    """Look at the queue again: a job has waited out its back-off or loan, or is overdue."""
    if kind is JobTimer.LOAN:
        step.cluster.elapsed_loans[job.id] = job.attempt
    elif kind is JobTimer.RETRY and job.not_before is not None:
        step.cluster.elapsed_backoffs[job.id] = job.not_before
    step.capacity_freed = True


def place(step: Step, job: Job, found: Plan, *, loan_of: str = "", ahead_of: str = "", why: str = "") -> None:
    """Place a job as planned, with the words for ``JobPlaced.why``; hosts that it has left are sent to forget it."""
    before = job.places
    step.timers.clear((JobTimer.LOAN, job.id))
    if loan_of:
        step.timers.set((JobTimer.LOAN, job.id), step.now.mono_in(step.policies.loan_s))
    step.timers.clear((JobTimer.EXPIRE, job.id))
    step.timers.clear((JobTimer.CLAIM, job.id))
    step.emit(
        ev.JobPlaced(
            job_id=job.id,
            at=step.now.wall,
            attempt=job.attempt + 1,
            generation=job.generation + 1,
            places=found.of_workers(job.gang),
            loan_of=loan_of,
            ahead_of=ahead_of,
            why=why,
            spares=found.of_spares(job.gang),
        )
    )
    step.touch(job)
    for index, place in enumerate(before):
        presence = step.cluster.presence_of(place.host)
        if place.host != job.places[index].host and presence.session is not None:
            presence.forgetting.append(place_key(job.id, index))
            step.do(Assign(place.host, presence.session, released(step.cluster, job, index)))
