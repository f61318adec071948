"""Fold of events of attempts: placements, launches and budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import RestartScope
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.allocation import hold, let_go
from holdfast_controller.core.fold.hang import close_hang
from holdfast_controller.core.fold.underuse import close_underuse
from holdfast_controller.core.model.budgets import Recovery, Spent
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Allocation, Place, place_key
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState, checked
from holdfast_controller.core.model.phase import Held, Leave, Paused, Placed, Queued
from holdfast_controller.core.model.recovery import Budget, EndReason, StartType

AttemptEvent = ev.AttemptEnded | ev.PauseRequested | ev.JobWarned | ev.JobPaused | ev.JobResumed


def fold_attempt(cluster: Cluster, job: Job, event: AttemptEvent) -> None:
    """Apply ``event`` to its job."""
    match event:
        case ev.AttemptEnded():
            _ended(cluster, job, event)
        case ev.PauseRequested():
            job.paused_by = event.by
            if event.due is None:
                leave_queue(cluster, job)
            if isinstance(job.phase, Placed):
                job.phase = replace(job.phase, pause_due=event.due, leave=None)
            if job.vacating is not None:
                job.vacating = Leaving.PAUSE
        case ev.JobWarned():
            job.warned = event.generation
            if event.leaving is None and event.related.host:
                job.launch.warned_off = event.related.host
                job.launch.warned_at, job.launch.warned_until = event.at, event.until
            if event.leaving is not None and isinstance(job.phase, Placed):
                leave = Leave(due=event.until, end_reason=event.leaving, related=event.related)
                job.phase = replace(job.phase, leave=leave)
        case ev.JobPaused():
            job.state = checked(job.state, JobState.PAUSED)
            job.vacating = None
            close_recoveries(job, event.at)
            release_reserved(cluster, job, event.at)
            release_spares(cluster, job, event.at)
            job.phase = Paused(
                placement_attempts=job.placement_attempts,
                excluded=job.excluded,
                unmet=job.unmet,
                missed=job.missed,
            )
            cluster.runtime.pop(job.id, None)
        case ev.JobResumed():
            job.state = checked(job.state, JobState.QUEUED)
            assert isinstance(job.phase, Paused)
            before = job.phase
            if before.unmet or job.gang.takes_turns:
                job.phase = Held(since=event.at, unmet=before.unmet)
                return
            job.phase = Queued(
                since=event.at, placement_attempts=before.placement_attempts, excluded=before.excluded
            )
            cluster.queue.add(job.id, job.turn, job.line, job.gang.project)
        case _:
            assert_never(event)


def _ended(cluster: Cluster, job: Job, event: ev.AttemptEnded) -> None:
    close_underuse(job, event.at)
    close_hang(job, event.at, f"the attempt was given up before: {event.end_reason.value}")
    close_recoveries(job, event.at)
    job.vacating = event.leaving
    job.stop_reason = event.stop_reason
    job.last_end = event.end_reason
    job.launch.primary_done_at = None
    if job.placement.running_since is not None:
        job.ran_s += max(event.at - job.placement.running_since, 0.0)  # a clock set back gives no time back
        job.placement.running_since = None
    cluster.suspects.pop(job.id, None)
    if event.failure is not None:
        note_failure(job, event.failure)
    if event.budget is Budget.JOB:
        job.budgets.spent.job_retries += 1
    if event.hang_restarts is not None:
        job.budgets.hang_restarts, job.budgets.hang_step = event.hang_restarts, event.hang_step
    if event.end_reason is EndReason.HANG and event.budget is Budget.JOB:
        job.budgets.hang_moves += 1
    if event.leaving is Leaving.PAUSE or event.end_reason is EndReason.PREEMPTED:
        release_spares(cluster, job, event.at)
    if event.leaving is Leaving.RETRY:
        job.state = checked(job.state, JobState.QUEUED)
        job.phase = Queued(
            since=event.at,
            not_before=event.not_before,
            no_claim_before=event.no_claim_before,
            reserved=frozenset(event.keep),
            excluded=frozenset(event.avoid),
        )
        cluster.queue.add(job.id, job.turn, job.line, job.gang.project)
    else:
        job.phase = Placed()
    if event.recover is not None:
        failed = job.generation if event.failure is not None and event.hang_restarts is None else None
        job.recoveries.append(
            Recovery(
                job.attempt + 1,
                job.generation + 1,
                event.at,
                event.end_reason,
                event.related,
                recover=event.recover,
                start_type=StartType.INIT_OR_RESCHEDULED,
                failed_at=event.failed_at,
                failed_generation=failed,
                detect_s=event.detect_s,
                diagnose_s=event.diagnose_s,
                step=max((at for at in (job.budgets.best_step, event.hang_step) if at is not None), default=None),
                injected=event.failure is not None and job.is_rehearsed(job.generation, event.failed_at),
            )
        )


def _may_be_warm(job: Job) -> bool:
    """Whether a rank of what has failed was started warm, or may have been: it was cut short before it was seen."""
    alone = job.gang.retries.scope is RestartScope.WORKER
    recent = [each for each in job.recoveries if each.attempt == job.attempt] if alone else job.recoveries[-1:]
    return job.gang.warm is not None and any(each.warm is None or each.warm_ranks for each in recent)


def note_failure(job: Job, failure: ev.Failure) -> None:
    """Charge a failure to the budgets; progress before it has refilled them all."""
    budgets = job.budgets
    if failure.progressed:
        budgets.spent = Spent()
        budgets.hang_restarts = budgets.hang_moves = 0
    if _may_be_warm(job):
        known = budgets.best_step is not None or failure.budget is Budget.HANG
        budgets.warm_failed |= failure.early or (known and failure.step is None and not failure.checkpoint)
    spent = budgets.spent
    if failure.key:
        spent.before_last = spent.same_failure
        spent.repeats(failure.key)
        spent.early = failure.key if failure.early else ""
        spent.failures += 1
    budgets.checkpointed |= failure.checkpoint
    if failure.step is not None:
        budgets.best_step = failure.step if budgets.best_step is None else max(budgets.best_step, failure.step)
    if failure.host:
        budgets.suspected[failure.host] = budgets.suspected.get(failure.host, 0) + 1
    match failure.budget:
        case Budget.TRANSIENT:
            spent.transient_restarts += 1
        case Budget.INTERNAL:
            spent.internal_errors += 1
        case Budget.HOST:
            spent.host_moves += 1
        case Budget.HANG:
            budgets.hang_restarts += 1
        case Budget.NONE | Budget.WORKER | Budget.JOB:
            pass  # charged by the decision itself
        case _:
            assert_never(failure.budget)


def close_recoveries(job: Job, at: Wall, generation: int | None = None) -> None:
    """Recoveries under way (of one generation, where it is given) are over without being completed.

    What they launched failed, or was stopped, before all of it was seen running.
    """
    for recovery in job.recoveries:
        if recovery.ended_at is None and generation in (None, recovery.generation):
            recovery.ended_at = at


def leave_queue(cluster: Cluster, job: Job) -> None:
    """Take the job off the queue."""
    cluster.queue.discard(job.id)
    cluster.watches.pop(job.id, None)
    cluster.suspects.pop(job.id, None)


def release(cluster: Cluster, job: Job, index: int, at: Wall) -> None:
    """Give back what a worker held on its host."""
    host = cluster.hosts.get(job.places[index].host)
    if host is not None:  # else it was removed while the job was unreconciled
        let_go(cluster, host, place_key(job.id, index), at)


def release_reserved(cluster: Cluster, job: Job, at: Wall) -> None:
    """Give back what was reserved, though empty, for the next attempt; call it before the job leaves ``Queued``."""
    for index in job.reserved & job.placement.emptied:
        release(cluster, job, index, at)


def give_back(cluster: Cluster, job: Job, workers: Iterable[int], at: Wall) -> None:
    """Keep the places of these workers no longer for the next attempt; what still runs there frees its own later."""
    given = job.reserved & frozenset(workers)
    if given and isinstance(job.phase, Queued):
        for index in given & job.placement.emptied:
            release(cluster, job, index, at)
        job.phase = replace(job.phase, reserved=job.reserved - given)


def hold_spares(cluster: Cluster, job: Job, spares: tuple[Place, ...], at: Wall) -> None:
    """A job holds these spares, in place of those that it had."""
    release_spares(cluster, job, at)
    job.placement.spares = spares
    for index, place in enumerate(spares, start=len(job.gang.members)):
        pool = job.gang.spare_pool
        share = Allocation(pool.cpus, pool.memory_mb, place.gpus, job.revocable)
        hold(cluster, cluster.hosts[place.host], place_key(job.id, index), share, at)


def release_spares(cluster: Cluster, job: Job, at: Wall) -> None:
    """Give back a job's spares: nothing runs there."""
    for index, place in enumerate(job.spares, start=len(job.gang.members)):
        if place.host in cluster.hosts:
            let_go(cluster, cluster.hosts[place.host], place_key(job.id, index), at)
    job.placement.spares = ()
