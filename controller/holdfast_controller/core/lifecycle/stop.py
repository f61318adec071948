"""End of a job: decide it once, stop its ranks, and end the job when every worker is proven gone."""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast._session.reports import ExitReason
from holdfast.errors import WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import clear_timers, leave, on_left, pause, stop_workers
from holdfast_controller.core.lifecycle.error_report import error_of
from holdfast_controller.core.lifecycle.exit_tally import has_finished
from holdfast_controller.core.lifecycle.missing_exits import close_records
from holdfast_controller.core.lifecycle.root_cause import first_failure
from holdfast_controller.core.lifecycle.warning_signal import leaves_by_itself
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.commands import CancelAsked, RestartAsked
from holdfast_controller.core.step.lookup import find_job
from holdfast_controller.core.step.step import Step

CANCELLED = 1
DEADLINE_EXCEEDED = 4


def end(
    step: Step,
    job: Job,
    outcome: JobState,
    error: JobError | None = None,
    *,
    stop_reason: ExitReason = ExitReason.STOPPED,
) -> None:
    """Decide the job's end. It has it once nothing of it is left anywhere."""
    step.capacity_freed |= bool(job.spares)
    step.emit(ev.JobEnding(job_id=job.id, at=step.now.wall, outcome=outcome, error=error, stop_reason=stop_reason))
    clear_timers(step, job)
    stop_workers(step, job)
    settle(step, job)


def end_if_done(step: Step, job: Job) -> bool:
    """End a job whose primary has completed, before its end grace is over, rather than have it run again or fail."""
    if job.outcome is not None or job.launch.primary_done_at is None:
        return False
    end(step, job, JobState.SUCCEEDED)
    return True


def is_done(step: Step, job: Job, index: int) -> bool:
    """Whether a worker is done while others of its job still run: it needs its host no more.

    Ranks that may have left because they were warned are not done.
    """
    return job.launched and not job.stopping and has_finished(job, index) and leaves_by_itself(step, job) is None


def let_go_done(step: Step, job: Job, host: str) -> bool:
    """Give up a job's places on a host if all its workers there are done, and say whether they are.

    The job goes on with the others. A place that is not proven empty yet is given up as soon as it is. Only a relaunch
    of the whole gang gives such a worker a place again.
    """
    here = [index for index in job.awaited if job.places[index].host == host]
    if not all(is_done(step, job, index) for index in here):
        return False
    for index in here:
        if index in step.cluster.runtime_of(job.id).empty:
            step.emit(ev.WorkerEmptied(job_id=job.id, at=step.now.wall, worker=job.gang.members[index].name))
            step.touch(job, index)
            step.capacity_freed = True
    return True


def is_to_be_left(step: Step, host: Host) -> bool:
    """Whether nothing is to stay on a host: it shuts down, or the time that its drain left is up."""
    deadline = host.drain_deadline
    return host.going_down or (host.draining and deadline is not None and deadline <= step.now.wall)


def settle(step: Step, job: Job) -> None:
    """Reach the final state if every place is proven empty, or is on a host that was given up.

    The share of a worker that was taken as gone stays quarantined until its host returns and proves it empty.
    """
    if job.outcome is None or job.terminal:
        return
    hosts = step.cluster.hosts
    lost: list[int] = []
    for index, place in enumerate(job.places):
        if index not in job.placement.emptied:
            if not hosts[place.host].lost:
                return
            lost.append(index)
    for index in lost:
        message = f"{job.places[index].host} was lost before it reported the end"
        close_records(step, job, job.gang.members[index], ExitReason.LOST_HOST, message)
    step.emit(ev.JobEnded(job_id=job.id, at=step.now.wall, state=job.outcome, error=_first_cause(job)))
    step.touch(job)


def _first_cause(job: Job) -> JobError | None:
    """The error of the rank that failed first, where that is another one than was reported first."""
    if job.outcome is not JobState.FAILED or job.error is None or job.error.rank is None:
        return None
    found = first_failure(job, job.generation)
    if found is None or found[1].rank == job.error.rank:
        return None
    member, exit_ = found
    error = error_of(member, exit_, restarts=job.budgets.spent.worker_restarts.get(member.index, 0))
    why = job.error.why_final
    return replace(error, details=(why, *error.details), why_final=why) if why else error


def on_empty(step: Step, job: Job, index: int) -> None:
    """A place is proven empty; that matters once the job or its attempt ends: then nothing more starts there.

    A host that shuts down says so only once, and the job leaves it then even if its notice isn't over elsewhere, of
    whichever stop that is.
    """
    host = job.places[index].host
    goes_down = step.cluster.hosts[host].going_down
    if job.leave is not None and (goes_down or job.leave.related.host == host):
        leave(step, job)
    elif job.pause_due is not None and goes_down:
        pause(step, job)
    if not job.stopping:
        step.cluster.runtime_of(job.id).empty.add(index)
        if is_to_be_left(step, step.cluster.hosts[host]):
            let_go_done(step, job, host)
        return
    if index not in job.placement.emptied:
        member = job.gang.members[index]
        ran = index in job.started or index in step.cluster.runtime_of(job.id).started
        reason = ExitReason.LOST_SHIM_DIED if ran else ExitReason.NOT_STARTED
        message = "its end was not recorded" if ran else "stopped before it was started"
        close_records(step, job, member, reason, message)
        step.emit(ev.WorkerEmptied(job_id=job.id, at=step.now.wall, worker=member.name))
        step.capacity_freed = True
    settle(step, job)
    on_left(step, job)
    if job.terminal:
        step.touch(job, index)


def on_cancel(step: Step, asked: CancelAsked) -> None:
    """Cancel a job, or all elements of an array, for a user. Asking twice, or for what has ended, changes nothing."""
    array = step.cluster.arrays.get(asked.job_id)
    if array is not None:
        whole = step.cluster.jobs.whole
        elements = [whole[array.jobs[index]] for index in sorted(array.jobs) if array.jobs[index] in whole]
        for job in elements:
            if job.unreconciled is not None:
                find_job(step, asked.token, job.id)
                return
        for job in elements:
            cancel(step, job, asked.by)
        step.do(Reply(asked.token, array.first))
        return
    found = find_job(step, asked.token, asked.job_id)
    if found is not None:
        cancel(step, found, asked.by)
        step.do(Reply(asked.token, found.id))


def cancel(step: Step, job: Job, by: str) -> None:
    """Cancel a job, unless it has ended or is ending."""
    if not job.terminal and job.outcome is None:
        step.emit(ev.CancelRequested(job_id=job.id, at=step.now.wall, by=by))
        end(step, job, JobState.CANCELLED, JobError(CANCELLED, f"The job was cancelled by {by}."))
        step.capacity_freed = True


def restartable(step: Step, asked: RestartAsked) -> Job | None:
    """The job, if its gang may be relaunched now, or waits to be; else None, after refusing the call."""
    job = find_job(step, asked.token, asked.job_id)
    if job is None:
        return None
    launched = job.launched or job.not_before is not None
    done = job.launch.primary_done_at is not None
    if job.state is not JobState.RUNNING or job.stopping or not launched or done:
        state = "ending" if (job.outcome is not None and not job.terminal) or done else job.state.name
        if job.state is JobState.RUNNING and not job.stopping and not done:
            state = "being relaunched"
        problem = f"The job {job.id} is {state}; only a RUNNING job can be restarted in place."
        fix = "Submit it again." if job.terminal else "Wait until it runs."
        fix = "Wait for its end." if state == "ending" else fix
        step.do(Refuse(asked.token, WrongState(problem, fix=fix)))
        return None
    return job


def on_timeout(step: Step, job: Job) -> None:
    """The job has run as long as it may."""
    if job.outcome is None and not job.terminal and not end_if_done(step, job):
        limit = f"{job.gang.timeout_s:.12g}s"
        error = JobError(DEADLINE_EXCEEDED, f"The job ran longer than its timeout of {limit}.")
        end(step, job, JobState.FAILED, error)
