"""Look up jobs and hosts by name, and refuse the call where there is none; whether a restore is still open."""

from __future__ import annotations

from holdfast.errors import NotFound, WrongState
from holdfast_controller.core.model.arrays import Array
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job, Unreconciled
from holdfast_controller.core.step.actions import Refuse
from holdfast_controller.core.step.step import Step


def find_job(step: Step, token: int, job_id: str) -> Job | None:
    """The job; None where there is none or no command may act on it now, after refusing the call."""
    job = step.cluster.jobs.get(job_id)
    if job is None or job.deleted:
        array = step.cluster.arrays.get(job_id)
        step.do(Refuse(token, unknown_job(job_id) if array is None else is_array(job_id, array)))
        return None
    if job.unreconciled is not None:
        problem = f"Where the job {job.id} stands is not known yet, after the restore from a backup."
        step.do(Refuse(token, WrongState(problem, fix=f"See what it waits for: holdfast job show {job.id}")))
        return None
    return job


def unknown_job(job_id: str) -> NotFound:
    """The refusal for an id that names no job."""
    return NotFound(f"There is no job {job_id!r}.", fix="See: holdfast ps --all")


def is_array(array_id: str, array: Array) -> NotFound:
    """The refusal of a call that is for one job, where an array is named."""
    problem = f"{array_id} is no job but an array of {array.count}."
    return NotFound(problem, fix=f"Name one of them, such as {array.first}; see: holdfast job show {array_id}")


def find_host(step: Step, token: int, name: str) -> Host | None:
    """The host; None where there is none, after refusing the call."""
    host = step.cluster.hosts.get(name)
    if host is None:
        step.do(Refuse(token, NotFound(f"There is no host {name!r}.", fix="See: holdfast host list")))
    return host


def reconciles(step: Step) -> bool:
    """Whether hosts are still to say, after a restore, what they have run since the backup."""
    cluster = step.cluster
    if not cluster.gaps:
        return False
    waits = step.now.mono < cluster.reconcile_until or any(host.unreconciled for host in cluster.hosts.values())
    return waits or any(job.unreconciled is Unreconciled.OPEN for job in cluster.jobs.whole.values())
