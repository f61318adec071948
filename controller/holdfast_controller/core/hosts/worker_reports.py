"""Worker reports: what a host says of a worker, compared with the worker's desired state."""

from __future__ import annotations

from typing import assert_never

from holdfast._session.reports import ReportedState, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core.hangs.unkillable import on_stuck
from holdfast_controller.core.lifecycle import deletion, exits, lost_hosts
from holdfast_controller.core.lifecycle.faulty_hosts import cordon_faulty
from holdfast_controller.core.lifecycle.launch import on_prepared, on_preparing, on_running
from holdfast_controller.core.lifecycle.stop import on_empty
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.restore import reconcile
from holdfast_controller.core.step.actions import Assign, Note
from holdfast_controller.core.step.assignment import has_left, holds, released
from holdfast_controller.core.step.step import Step

_ALIVE = frozenset({ReportedState.PREPARING, ReportedState.RUNNING, ReportedState.STOPPING, ReportedState.STUCK})


def on_found(step: Step, host: str, report: WorkerReport) -> None:
    """Apply a worker report of a hello, where exits that the agent still holds can't contradict it.

    Exits come right after the welcome, and the answer to the assignment after them: only then does EMPTY,
    PREPARED or CANNOT_PREPARE count.
    """
    job = step.cluster.jobs.get(report.key.job)
    index = job.gang.index_by_name.get(report.key.worker) if job is not None else None
    held = job is not None and index is not None and holds(step.cluster, job, index, host)
    if not held or report.state in _ALIVE:
        on_report(step, host, report)


def on_report(step: Step, host: str, report: WorkerReport) -> None:
    """Compare a host's report of a worker with the worker's desired state, and act on it."""
    job = step.cluster.jobs.get(report.key.job)
    index = job.gang.index_by_name.get(report.key.worker) if job is not None else None
    if reconcile.on_report(step, host, report):
        return
    if job is None and report.key.job in step.cluster.purged:
        deletion.clear_up(step, host, report)
        return
    if job is None or index is None:
        step.do(Note("worker.unknown", (("host", host), ("worker", str(report.key)))))
        return
    if report.state is ReportedState.EMPTY and report.host_fault:
        cordon_faulty(step, host, f"{job.id}: {report.message}")
    lost_hosts.on_silent_peers(step, host, job, index, report)
    if not holds(step.cluster, job, index, host):
        _on_released_place(step, job, index, host, report)
    elif report.generation == job.generation_of(index):
        _on_current_place(step, job, index, report)
    elif report.state is ReportedState.STUCK and report.generation < job.generation:
        # What is left of an older generation is why the newest can't be made ready.
        step.cluster.runtime_of(job.id).stuck[index] = report.message


def _on_released_place(step: Step, job: Job, index: int, host: str, report: WorkerReport) -> None:
    """Have a host forget a worker that has left it, and free the worker's share once it is empty.

    The host is sent that once in a session. A quarantined share is free once empty.
    """
    presence, key = step.cluster.presence_of(host), place_key(job.id, index)
    if report.state is ReportedState.EMPTY and key in step.cluster.hosts[host].allocations:
        step.emit(ev.HostPlaceFreed(host=host, at=step.now.wall, place=key))
        step.capacity_freed = True
    if key not in presence.forgetting and presence.session is not None and has_left(job, index, host):
        presence.forgetting.append(key)
        step.do(Assign(host, presence.session, released(step.cluster, job, index)))


def _on_current_place(step: Step, job: Job, index: int, report: WorkerReport) -> None:
    runtime = step.cluster.runtime_of(job.id)
    if report.state is ReportedState.STUCK:
        runtime.stuck[index] = report.message
        on_stuck(step, job, index, report.message)
        return
    runtime.stuck.pop(index, None)
    runtime.warm[index] = report.warm
    match report.state:
        case ReportedState.PREPARED:
            on_prepared(step, job, index, report)
        case ReportedState.RUNNING:
            on_running(step, job, index, report)
        case ReportedState.CANNOT_PREPARE:
            exits.on_cannot_prepare(step, job, index, report.message, host_fault=report.host_fault)
        case ReportedState.EMPTY:
            reconcile.on_unaccounted(step, job, index)
            on_empty(step, job, index)
        case ReportedState.PREPARING:
            on_preparing(step, job, index, report)
        case ReportedState.STOPPING:
            pass
        case _:
            assert_never(report.state)
