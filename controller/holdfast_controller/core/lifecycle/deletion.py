"""Deletion of jobs that have ended: by a user, or because they were kept for long enough.

Both go the same way. ``JobDeleted`` hides the job and has the controller's evidence of it removed; every host that it
was placed on is ordered to delete its output, one that is away once it is back. When the last of them has answered
(``OutputDeleted``), or was removed, and no host holds a share for it, the job itself goes (``JobPurged``); only its id
stays taken.
"""

from __future__ import annotations

import heapq

from holdfast._session.reports import WorkerReport
from holdfast.errors import WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.host import SELF
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import job_of, place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import Known
from holdfast_controller.core.step.actions import DeleteOutput, ForgetJob, Note, Refuse, Reply, StopOrphan
from holdfast_controller.core.step.commands import DeleteAsked, OutputGone
from holdfast_controller.core.step.lookup import find_job
from holdfast_controller.core.step.step import Policies, Step
from holdfast_controller.core.step.timers import ClusterTimer, JobTimer

LOOK_EVERY_S = 3600.0
MORE_AFTER_S = 5.0
AT_A_TIME = 100
"""Jobs that one look deletes; the rest are deleted soon after, so that the disk is not kept busy."""
JUMP_S = 300.0
"""The wall clock was set, where it has moved so much further than the monotonic one."""
DISTRUST_S = 86_400.0
"""How long no job is deleted for its age after the clock was set forward: an admin has time to set it right."""


def on_delete(step: Step, asked: DeleteAsked) -> None:
    """Delete a job that has ended, for a user."""
    job = find_job(step, asked.token, asked.job_id)
    if job is None:
        return
    if not job.terminal:
        problem = f"The job {job.id} is {job.state.name}; only a job that has ended can be deleted."
        step.do(Refuse(asked.token, WrongState(problem, fix=f"Cancel it first: holdfast cancel {job.id}")))
        return
    if _array_goes_on(step.cluster, job):
        problem = f"The job {job.id} is an element of an array that has not ended, and how it ended still counts."
        step.do(Refuse(asked.token, WrongState(problem, fix="Delete it once all elements have ended.")))
        return
    delete(step, job, asked.by)
    step.do(Reply(asked.token, job.id))


def delete(step: Step, job: Job, by: str, why: str = "") -> None:
    """Hide a job that has ended, and have hosts delete what they have of it."""
    step.emit(ev.JobDeleted(job_id=job.id, at=step.now.wall, by=by, with_output=True, why=why))
    step.do(ForgetJob(job.id, purged=False))
    for host in sorted(job.output_on):
        _order(step, host, (job.id,))


def on_host_back(step: Step, host: str) -> None:
    """Order a host that has connected to delete what it has not deleted yet."""
    jobs = sorted(step.cluster.output_on.get(host, ()))
    for first in range(0, len(jobs), AT_A_TIME):
        _order(step, host, tuple(jobs[first : first + AT_A_TIME]))


def _order(step: Step, host: str, jobs: tuple[str, ...]) -> None:
    session = step.cluster.presence_of(host).session
    if session is not None:
        step.do(DeleteOutput(host, session, jobs))


def on_output_gone(step: Step, gone: OutputGone) -> None:
    """A host has deleted a job's output, or says why it can't; then it is asked again when it connects."""
    if gone.job_id not in step.cluster.output_on.get(gone.host, ()):
        return
    if gone.problem:
        fields = (("host", gone.host), ("job", gone.job_id), ("error", gone.problem))
        step.do(Note("output.not_deleted", fields))
        return
    step.emit(ev.OutputDeleted(job_id=gone.job_id, at=step.now.wall, host=gone.host))


def on_host_removed(step: Step, host: str) -> None:
    """Nothing is waited for from a host that is about to be removed."""
    names = sorted(step.cluster.output_on.get(host, ()))
    step.cluster.jobs.bring(names)
    for job_id in names:
        step.emit(ev.OutputDeleted(job_id=job_id, at=step.now.wall, host=host))


def clear_up(step: Step, host: str, report: WorkerReport) -> None:
    """Have a host forget a worker of a job that is long deleted. It is sent that once in a session."""
    presence, key = step.cluster.presence_of(host), f"{report.key.job}/{report.key.worker}"
    session = presence.session
    if key not in presence.forgetting and session is not None:
        presence.forgetting.append(key)
        step.do(StopOrphan(host, session, report.key.job, report.key.worker, report.generation))


def purge(step: Step) -> None:
    """Drop deleted jobs of which this step has removed the last trace."""
    for entry in list(step.entries):
        match entry.event:
            case ev.JobDeleted(job_id=job_id) | ev.OutputDeleted(job_id=job_id) | ev.WorkerEmptied(job_id=job_id):
                _purge(step, job_id)
            case ev.HostPlaceFreed(place=place):
                _purge(step, job_of(place))
            case _:
                pass


def _purge(step: Step, job_id: str) -> None:
    cluster, job = step.cluster, step.cluster.jobs.get(job_id)
    if job is None or not job.deleted or job.output_on or _held(step, job):
        return
    step.emit(ev.JobPurged(job_id=job.id, at=step.now.wall))
    step.do(ForgetJob(job.id, purged=True))
    for kind in JobTimer:
        step.timers.clear((kind, job.id))
    cluster.elapsed_loans.pop(job.id, None)
    for known in (cluster.watches, cluster.kept_watches, cluster.suspects, cluster.elapsed_backoffs):
        known.pop(job.id, None)
    for cause in cluster.shared_causes:
        cause.jobs.pop(job.id, None)


def _held(step: Step, job: Job) -> bool:
    """Whether a host holds a share for one of its workers."""
    hosts = step.cluster.hosts
    return any(
        place.host in hosts and place_key(job.id, index) in hosts[place.host].allocations
        for attempt in job.attempts
        for index, place in enumerate(attempt.places)
    )


def first_look_s(policies: Policies) -> float | None:
    """Seconds until jobs that were kept for too long are looked for; None where all are kept."""
    if not policies.keep_jobs_s and not policies.keep_jobs:
        return None
    return min(LOOK_EVERY_S, max(policies.keep_jobs_s / 10, 1.0)) if policies.keep_jobs_s else LOOK_EVERY_S


def on_retention(step: Step) -> None:
    """Delete jobs that ended longer ago than they are kept, and the oldest ones beyond the number that is kept."""
    jobs, policies = step.cluster.jobs, step.policies
    for job_id in [job.id for job in jobs.heads() if job.deleted and not job.output_on]:
        _purge(step, job_id)  # release 0.1 has only hidden them
    ended = [
        job for job in jobs.heads() if job.terminal and not job.deleted and not _array_goes_on(step.cluster, job)
    ]
    chosen = {}
    if policies.keep_jobs and len(ended) > policies.keep_jobs:
        surplus = _oldest(ended, len(ended) - policies.keep_jobs)
        chosen = {job.id: f"more than {policies.keep_jobs:,} jobs have ended" for job in surplus}
    if policies.keep_jobs_s and _clock_is_trusted(step):
        old = [job for job in ended if step.now.wall - _ended_at(job) > policies.keep_jobs_s]
        why = f"it ended more than {policies.keep_jobs_s / 86_400:.12g} days ago"
        chosen |= {job.id: why for job in _oldest(old, AT_A_TIME)}
    jobs.bring(chosen)
    for job_id, why in chosen.items():
        delete(step, jobs[job_id], SELF, why)
    after_s = MORE_AFTER_S if len(chosen) >= AT_A_TIME else first_look_s(policies)
    if after_s is not None:
        step.timers.set((ClusterTimer.RETENTION, ""), step.now.mono_in(after_s))


def _array_goes_on(cluster: Cluster, job: Known) -> bool:
    """Whether another element of the job's array has not ended: until then the array's end depends on all of them."""
    array = cluster.arrays.of(job)
    return array is not None and array.outcome is None


def _oldest(jobs: list[Known], count: int) -> list[Known]:
    return heapq.nsmallest(min(count, AT_A_TIME), jobs, key=lambda job: (_ended_at(job), job.number))


def _ended_at(job: Known) -> Wall:
    return job.ended_at if job.ended_at is not None else job.updated_at


def _clock_is_trusted(step: Step) -> bool:
    """Whether the wall clock went on as the monotonic one did since the last look, or since the newest event.

    A controller that was off for long can't tell that from a clock that is wrong: it waits a day.
    """
    trust, now = step.cluster.clock_trust, step.now
    ahead_s = now.wall - now.mono
    if trust.ahead_s is None:
        newest = max((job.updated_at for job in step.cluster.jobs.heads()), default=now.wall)
        jumped = now.wall - newest > max(step.policies.keep_jobs_s / 3, JUMP_S)
    else:
        jumped = ahead_s - trust.ahead_s > JUMP_S
    trust.ahead_s = ahead_s
    if jumped:
        trust.again_at = now.mono_in(min(DISTRUST_S, step.policies.keep_jobs_s))
        held_s = f"{trust.again_at - now.mono:.0f}"
        step.do(Note("clock.jumped", (("nothing_is_deleted_for_its_age_for_s", held_s),)))
    return now.mono >= trust.again_at
