"""Launch of a gang: workers are prepared, one commit launches all, ranks report that they started."""

from __future__ import annotations

import hashlib
import hmac

from holdfast._session.reports import ExitReason, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle import warning_signal
from holdfast_controller.core.lifecycle.missing_exits import close_records
from holdfast_controller.core.lifecycle.root_cause import name_cause
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.runtime import Prepared, Started
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer


def on_prepared(step: Step, job: Job, index: int, report: WorkerReport) -> None:
    """A place is empty of older generations and ready; with the last of them the gang is launched."""
    if job.stopping or (job.launched and index not in job.launch.deferred):
        step.touch(job, index)
        return
    close_records(step, job, job.gang.members[index], ExitReason.NOT_STARTED, "stopped before it was started")
    if job.launched:
        return  # It waits for its own time.
    prepared = step.cluster.runtime_of(job.id).prepared
    prepared[index] = Prepared(report.port, report.master_port)
    if len(prepared) == len(job.places):
        launch(step, job)


def on_preparing(step: Step, job: Job, index: int, report: WorkerReport) -> None:
    """A place isn't ready yet and says what takes so long. The gang's first to say so gets into the history."""
    runtime = step.cluster.runtime_of(job.id)
    if job.stopping or not report.message or runtime.preparing.get(index) == report.message:
        return
    known = report.message in runtime.preparing.values()
    runtime.preparing[index] = report.message
    if not known:
        member, host = job.gang.members[index], job.places[index].host
        step.emit(
            ev.PreparationNoted(
                job_id=job.id, at=step.now.wall, worker=member.name, host=host, doing=report.message
            )
        )


def launch(step: Step, job: Job, *, due: bool = False) -> None:
    """Launch a gang whose places are all ready, unless its time has not come yet.

    ``due``: it has come by our own clock, whatever the wall clock was set to meanwhile.
    """
    prepared = step.cluster.runtime_of(job.id).prepared
    if job.launch.deferred and not job.stopping:
        _launch_alone(step, job, due=due)
    if job.stopping or job.launched or len(prepared) < len(job.places):
        return
    if not due and _waits(step, job):
        return
    name_cause(step, job)
    rendezvous = _rendezvous(step.cluster, job, prepared, step.policies.secret_key)
    step.emit(ev.GangLaunched(job_id=job.id, at=step.now.wall, generation=job.generation, rendezvous=rendezvous))
    step.touch(job)


def end_backoff(step: Step, job: Job) -> bool:
    """Launch at once what only waits for its back-off; whether there was anything that did."""
    waits = bool(job.launch.deferred) or not job.launched
    if waits:
        step.timers.clear((JobTimer.LAUNCH, job.id))
        launch(step, job, due=True)
    return waits and job.launched and not job.launch.deferred


def _waits(step: Step, job: Job) -> bool:
    """Whether the next launch has to wait; then a timer is set for it, for as long as its backoff may be."""
    wait_s = min((job.not_before or 0.0) - step.now.wall, job.gang.retries.backoff_limit_s)
    if wait_s > 0:
        step.timers.set((JobTimer.LAUNCH, job.id), step.now.mono_in(wait_s))
    return wait_s > 0


def _launch_alone(step: Step, job: Job, *, due: bool) -> None:
    """The time of workers that were held back has come."""
    if not due and _waits(step, job):
        return
    for index in sorted(job.launch.deferred):
        name = job.gang.members[index].name
        step.emit(
            ev.WorkerLaunched(job_id=job.id, at=step.now.wall, worker=name, generation=job.generation_of(index))
        )
        step.touch(job, index)


def _rendezvous(cluster: Cluster, job: Job, prepared: dict[int, Prepared], key: bytes) -> Rendezvous:
    """A fresh port and secret for each generation, so that nothing of an older one can join it."""
    addresses = tuple(cluster.hosts[place.host].address for place in job.places)
    secret = hmac.new(key, f"{job.id}/{job.generation}".encode(), hashlib.sha256).hexdigest()[:32]
    ports = tuple(prepared[index].port for index in range(len(job.places)))
    return Rendezvous(addresses[0], prepared[0].master_port, secret, addresses, ports)


def on_running(step: Step, job: Job, index: int, report: WorkerReport) -> None:
    """A worker's ranks were started; with the last of them the job is running."""
    if index in job.launch.relaunched and index not in job.started and not job.stopping:
        started = Started.of(report)
        name = job.gang.members[index].name
        step.emit(
            ev.WorkerStarted(
                job_id=job.id, at=step.now.wall, worker=name, generation=job.generation_of(index), started=started
            )
        )
    elif job.launched and not job.started and not job.stopping:
        step.cluster.runtime_of(job.id).started[index] = Started.of(report)
        check_started(step, job)


def check_started(step: Step, job: Job) -> None:
    """Note the gang's start once every worker was seen running, or has ended before it was seen."""
    if not job.launched or job.started or job.stopping:
        return
    seen, ended = step.cluster.runtime_of(job.id).started, job.exits_now()
    if len(seen) + len(ended) < len(job.gang.members):
        return  # The rest of them is yet to be heard of.
    started = {}
    for member in job.gang.members:
        if member.index in seen:
            started[member.index] = seen[member.index]
        elif all(rank in ended for rank in member.ranks):
            started[member.index] = Started(0, ())
        else:
            return
    if job.placement.running_since is None:
        step.timers.set((JobTimer.TIMEOUT, job.id), step.now.mono_in(max(job.gang.timeout_s - job.ran_s, 0.0)))
    step.emit(ev.GangStarted(job_id=job.id, at=step.now.wall, generation=job.generation, started=started))
    warning_signal.set_timers(step, job)
