"""Fold a restart in place: the next generation, what pays for it, and the cause that is found later."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.attempt import close_recoveries, note_failure
from holdfast_controller.core.fold.hang import close_hang
from holdfast_controller.core.fold.underuse import close_underuse
from holdfast_controller.core.model.budgets import Recovery
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.placement import GangLaunch
from holdfast_controller.core.model.recovery import related_in_words
from holdfast_controller.core.model.runtime import Runtime


def restart(cluster: Cluster, job: Job, event: ev.RestartDecided) -> None:
    failed = job.generation
    rehearsed = event.failure is not None and job.is_rehearsed(
        failed if event.worker is None else job.generation_of(event.worker), event.failed_at
    )
    is_failure = event.hang_restarts is None and event.failure is not None and event.worker is None
    cause = f"{related_in_words(event.related, event.end_reason)} ({event.end_reason.value})"
    close_hang(job, event.at, f"the gang was relaunched before: {cause}")
    close_recoveries(job, event.at, None if event.worker is None else job.generation_of(event.worker))
    job.generation = event.generation
    if event.worker is None:
        close_underuse(job, event.at)
        job.launch = GangLaunch(event.generation, not_before=event.not_before)
        cluster.runtime[job.id] = Runtime(slow=cluster.runtime_of(job.id).slow)
    else:
        _relaunch_one(cluster, job, event.worker, event)
    job.stop_reason = event.stop_reason
    job.last_end = event.end_reason
    if event.failure is not None:
        note_failure(job, event.failure)
    if event.charged is not None:
        _charge(job, event.charged)
    if event.hang_restarts is not None:
        job.budgets.hang_restarts, job.budgets.hang_step = event.hang_restarts, event.hang_step
        if event.hang_restarts == 1:
            job.budgets.hang_moves = 0
    job.budgets.port_retries = job.budgets.port_retries + 1 if event.port_retry else 0
    job.recoveries.append(
        Recovery(
            job.attempt,
            event.generation,
            event.at,
            event.end_reason,
            event.related,
            failed_at=event.failed_at,
            charged=event.charged,
            failed_generation=failed if is_failure else None,
            detect_s=event.detect_s,
            diagnose_s=event.diagnose_s,
            step=_highest(job.budgets.best_step, event.hang_step),
            injected=rehearsed,
        )
    )


def _charge(job: Job, worker: int, restarts: int = 1) -> None:
    spent = job.budgets.spent.worker_restarts
    spent[worker] = max(spent.get(worker, 0) + restarts, 0)


def _highest(*steps: float | None) -> float | None:
    return max((step for step in steps if step is not None), default=None)


def _relaunch_one(cluster: Cluster, job: Job, worker: int, event: ev.RestartDecided) -> None:
    """One worker goes on in a generation of its own; the others are not touched."""
    launch = job.launch
    launch.relaunched[worker] = event.generation
    job.single_launches[event.generation] = worker
    job.started.pop(worker, None)
    launch.deferred.discard(worker)
    # Others that are held back already stay so: all of them are launched together.
    waits = [at for at in (event.not_before, launch.not_before if launch.deferred else None) if at is not None]
    launch.not_before = max(waits, default=None)
    if event.not_before is not None:
        launch.deferred.add(worker)
    runtime = cluster.runtime.get(job.id)
    if runtime is not None:
        runtime.forget(worker)


def cause_found(job: Job, event: ev.CauseFound) -> None:
    """The recovery names the true cause, and the budget of that worker pays instead."""
    recovery = job.recoveries[-1]
    if recovery.charged is not None and event.charged is not None:
        _charge(job, recovery.charged, -1)
        _charge(job, event.charged)
        recovery.charged = event.charged
    if event.key and job.budgets.spent.failures:
        job.budgets.spent.repeats(event.key)
        if job.budgets.spent.early:
            job.budgets.spent.early = event.key
    recovery.related, recovery.end_reason = event.related, event.end_reason
    recovery.failed_at = event.failed_at
    job.last_end = event.end_reason
