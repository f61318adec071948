"""Warning signals: sent to a job's ranks some time before a deadline stops them.

Theory of operation. A job may ask for a signal so long before it is stopped: by its timeout, by the deadline of a
drain, by a pause, by a preemption or by the shutdown of a host. The last two wait for it no longer than
``NOTICE_MOST_S`` (``model.warning``), since others wait for the host. Each generation gets it once, whatever the
reasons: ``JobWarned`` is in the log, each worker's desired state carries the signal from then on, and its shim sends
it once. What a warned rank does is its own affair; most save and exit. Where the job is to leave its hosts anyway (all
but the timeout), whatever its ranks exit with is no failure and no success: once the last of them has ended the job
pauses, moves or gives way, without waiting for the deadline. So it does where the drain was called off, or put off,
after they were warned of it: they know nothing of that. A job that ends its work in just that time is launched once
more, and finds that it is done.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.exit_tally import has_finished
from holdfast_controller.core.model.clock import Mono, Wall
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.step.assignment import on_host
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import HostTimer, JobTimer, Timers

PAUSE, TIMEOUT = "the pause", "the job's timeout"


def is_running(job: Job) -> bool:
    """Whether there are ranks that a signal could reach."""
    return bool(job.started) and not job.stopping and not job.terminal


def warn(
    step: Step, job: Job, until: Wall, why: str, *, leaving: EndReason | None = None, related: Related | None = None
) -> None:
    """Have the ranks of this generation get the job's signal, unless they have had it. ``until`` is wall clock."""
    if job.gang.warning is None or not is_running(job) or job.warned >= job.generation:
        return
    step.emit(
        ev.JobWarned(
            job_id=job.id,
            at=step.now.wall,
            generation=job.generation,
            signal=job.gang.warning.signal,
            until=until,
            why=why,
            leaving=leaving,
            related=related or Related(),
        )
    )
    step.touch(job)


def gives_notice(step: Step, job: Job, end_reason: EndReason, related: Related) -> bool:
    """Whether the ranks have time before the job leaves its hosts; they are warned now, unless they were before."""
    if job.leave is not None:
        return True
    left_s = job.gang.warning.notice_s if job.gang.warning is not None else 0.0
    if not left_s or not is_running(job) or job.warned >= job.generation:
        return False
    why = f"giving way to {related.job}" if related.job else f"the shutdown of {related.host}"
    warn(step, job, step.now.wall_in(left_s), why, leaving=end_reason, related=related)
    step.timers.set((JobTimer.LEAVE, job.id), step.now.mono_in(left_s))
    return True


def set_timers(step: Step, job: Job) -> None:
    """The gang runs: warn it ahead of its timeout, and of the drains that it runs into."""
    if job.gang.warning is None:
        return
    ahead_of_timeout(step.timers, job)
    for name in sorted({place.host for place in job.places} & step.cluster.draining):
        of_drain(step, step.cluster.hosts[name])


def ahead_of_timeout(timers: Timers, job: Job) -> None:
    """If the job's timeout is timed, so is the warning before it."""
    due = timers.due.get((JobTimer.TIMEOUT, job.id))
    if job.gang.warning is not None and due is not None:
        timers.set((JobTimer.TIMEOUT_WARNING, job.id), Mono(due - job.gang.warning.before_s))


def on_timer(step: Step, job: Job) -> None:
    """The job's own timeout is near."""
    due = step.timers.due.get((JobTimer.TIMEOUT, job.id))
    if due is not None:
        warn(step, job, step.now.wall_of(due), TIMEOUT)


def of_drain(step: Step, host: Host) -> None:
    """Warn the jobs on a draining host whose time has come, and set a timer for the next."""
    if not host.draining or host.drain_deadline is None:
        return
    left_s = host.drain_deadline - step.now.wall
    jobs = {job.id: job for job, _ in on_host(step.cluster, host.name)}
    later = []
    for job in jobs.values():
        if job.gang.warning is None or job.warned >= job.generation or not is_running(job):
            continue
        if all(has_finished(job, index) for index in job.awaited if job.places[index].host == host.name):
            continue  # What still runs of it can stay where it is.
        wait_s = left_s - job.gang.warning.before_s
        if wait_s > 0:
            later.append(wait_s)
        else:
            related = Related(host=host.name)
            warn(step, job, host.drain_deadline, f"the drain of {host.name}", related=related)
    if later:
        step.timers.set((HostTimer.DRAIN_WARNING, host.name), step.now.mono_in(min(later)))


def leaves_by_itself(step: Step, job: Job) -> str | None:
    """Whether a warned job's ends are its way out: a host's name off a draining host, ``""`` otherwise; else None."""
    if job.pause_due is not None or job.leave is not None:
        return ""
    if job.gang.warning is None or job.warned < job.generation:
        return None
    for name in sorted({job.places[index].host for index in job.awaited} & step.cluster.draining):
        deadline = step.cluster.hosts[name].drain_deadline
        if deadline is not None and step.now.wall >= deadline - job.gang.warning.before_s:
            return name
    return job.launch.warned_off if step.now.wall < job.launch.warned_until else None
