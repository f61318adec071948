"""Drain of a host, and its shutdown: it gets no new work, and its work ends by itself or is moved in time.

Without a deadline the work is waited for. With one, what is still there then goes on elsewhere; with
``at_checkpoint``, each job does so as soon as it has saved a checkpoint since the drain began. A host of which
nothing is left is drained; only uncordoning ends a drain.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle import warning_signal
from holdfast_controller.core.lifecycle.attempts import Story, leave, pause, retry, shut_down
from holdfast_controller.core.lifecycle.stop import end_if_done, let_go_done
from holdfast_controller.core.model.clock import Mono, Wall
from holdfast_controller.core.model.hosts.host import Host, Maintenance
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.step.actions import Reply
from holdfast_controller.core.step.assignment import on_host
from holdfast_controller.core.step.commands import DrainAsked
from holdfast_controller.core.step.lookup import find_host
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import HostTimer, JobTimer


def on_drain(step: Step, asked: DrainAsked) -> None:
    """Let a host take no new work, and have what runs there moved off at the deadline. The last word counts."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    begin(step, host, asked)
    step.do(Reply(asked.token, host.name))


def begin(step: Step, host: Host, asked: DrainAsked | Maintenance) -> None:
    """Drain a host as a user asks, or as its maintenance has it."""
    deadline = None if asked.deadline_s is None else step.now.wall_in(asked.deadline_s)
    step.emit(
        ev.HostDraining(
            host=host.name,
            at=step.now.wall,
            reason=asked.reason,
            by=asked.by,
            deadline=deadline,
            at_checkpoint=asked.at_checkpoint,
        )
    )
    set_timers(step, host)
    note_drained(step)


def set_timers(step: Step, host: Host) -> None:
    """For the deadline of a host's drain and for the warnings before it, or for none."""
    for kind in (HostTimer.DRAIN, HostTimer.DRAIN_WARNING):
        step.timers.clear((kind, host.name))
    if host.draining and host.drain_deadline is not None:
        step.timers.set((HostTimer.DRAIN, host.name), step.now.mono_due(host.drain_deadline))
        warning_signal.of_drain(step, host)


def on_deadline(step: Step, host: Host) -> None:
    """Its time is up: whatever still runs there goes on elsewhere."""
    if not host.draining:
        return
    jobs: dict[str, Job] = {job.id: job for job, _ in on_host(step.cluster, host.name)}
    for job in jobs.values():
        move_off(step, job, host.name)


def on_progress(step: Step, job: Job) -> None:
    """A vector of the job has come: if it tells of a checkpoint that is newer than the drain, the job moves."""
    for name in dict.fromkeys(job.places[index].host for index in job.awaited):
        host = step.cluster.hosts[name]
        if host.draining and host.drain_at_checkpoint and _saved_since(step, job, host.drain_since):
            move_off(step, job, name)
            return


def _saved_since(step: Step, job: Job, since: Wall) -> bool:
    """Whether a checkpoint was begun and finished after a moment (wall clock), and none is being written."""
    outputs = [vector.output for vector in step.cluster.runtime_of(job.id).features.values()]
    if any(output.checkpoint_open for output in outputs):
        return False
    saved = [output.last_checkpoint_s for output in outputs if output.last_checkpoint_s is not None]
    return any(step.now.wall_of(Mono(at)) > since for at in saved)


def move_off(step: Step, job: Job, host: str) -> None:
    """Go on elsewhere with what a job has on a host; its other workers keep their places. Costs no budget."""
    if _need_not_leave(step, job, host):
        return
    story = Story(Related(host=host), step.now.wall)
    retry(step, job, ev.Failure(), EndReason.DRAINED, story, away=frozenset({host}), replace=True)


def _need_not_leave(step: Step, job: Job, host: str) -> bool:
    """Whether a job ends, is not reconciled, or has nothing on a host that still runs; that much is done here."""
    return job.stopping or job.unreconciled is not None or end_if_done(step, job) or let_go_done(step, job, host)


def leave_at_shutdown(step: Step, job: Job, host: str) -> None:
    """Have a job go on without a host that shuts down, once its ranks have had their notice. Costs no budget."""
    if _need_not_leave(step, job, host):
        return
    if not warning_signal.gives_notice(step, job, EndReason.HOST_SHUTDOWN, Related(host=host)):
        shut_down(step, job, Related(host=host))


def leave_as_warned(step: Step, job: Job, host: str) -> None:
    """Once the last rank of a warned job has exited: leave its hosts, move off the draining ``host``, or pause."""
    if len(job.exits_now()) < job.gang.rank_count:
        if host and host == job.launch.warned_off:
            step.timers.set((JobTimer.LEAVE, job.id), step.now.mono_due(job.launch.warned_until))
        return
    if job.leave is not None and job.pause_due is None:
        leave(step, job)
    elif host:
        move_off(step, job, host)
    else:
        pause(step, job)


def on_notice_over(step: Step, job: Job) -> None:
    """Go on elsewhere without the ranks that have left in time for a drain, though it was called off or put off."""
    since, until = job.launch.warned_at, job.launch.warned_until
    if job.launch.warned_off and any(since <= exit_.end_time <= until for exit_ in job.exits_now().values()):
        move_off(step, job, job.launch.warned_off)


def give_back_kept(step: Step, host: str, why: str) -> None:
    """Have jobs that wait keep no places on a host any longer: nothing of them starts there again, ``why`` says so."""
    kept: dict[str, list[int]] = {}
    for job, index in on_host(step.cluster, host):
        if index in job.reserved and job.unreconciled is None:
            kept.setdefault(job.id, []).append(index)
    for name, workers in kept.items():
        reason = f"its place on {host}, which {why}, is kept no longer"
        over_quota = step.cluster.jobs[name].over_quota
        given_back = tuple(sorted(workers))
        step.emit(
            ev.JobQueued(job_id=name, at=step.now.wall, reason=reason, for_quota=over_quota, given_back=given_back)
        )


def note_drained(step: Step) -> None:
    """Say of which draining hosts nothing is left any more; what jobs that wait had kept there is given back."""
    for name in sorted(step.cluster.draining):
        host = step.cluster.hosts[name]
        give_back_kept(step, name, "is being drained")
        if not host.allocations and not host.drained:
            step.emit(ev.HostDrained(host=name, at=step.now.wall))
