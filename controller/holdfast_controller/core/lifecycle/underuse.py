"""GPUs that a job doesn't use: reported after a time, and the job paused or stopped where its policy says so.

Theory of operation. Agents say of each GPU since when every reading of it was below the policy's bound; a GPU whose
reading was missed, or whose agent is new, has no such time. So what isn't known is never idle here, no time is kept
here that a restart of this controller would lose, and ranks that are launched again begin a fresh term. A look once a
minute compares those times with the policy's. Its action is taken once, until every GPU is used again.
"""

from __future__ import annotations

from holdfast._base.job_file.choices import UnderuseAction, UnderuseShare
from holdfast.hang.thresholds import Tuning
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import ask_pause
from holdfast_controller.core.lifecycle.stop import CANCELLED, end
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.underuse import BY, Underuse, UnderusePolicy
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer

LOOK_EVERY_S = 60.0
LOOK_AFTER_NEWS_S = 1.0
"""GPUs whose time is over together are reported together."""
_STALE_S = Tuning().stale_s


def note_gpus(step: Step, job: Job, index: int) -> None:
    """A worker's vector has come: have the job looked at if a GPU of it is idle."""
    policy, key = job.gang.underuse, (JobTimer.UNDERUSE, job.id)
    if policy is None or key in step.timers.due:
        return
    wait_s = LOOK_EVERY_S
    if job.underuse is None:
        vector = step.cluster.runtime_of(job.id).features[index]
        since = (gpu.idle_since_s for gpu in vector.gpus if gpu.idle_since_s is not None)
        first_s = min(since, default=None)
        if first_s is None:
            return
        wait_s = min(wait_s, max(first_s + policy.duration_s - step.now.mono, LOOK_AFTER_NEWS_S))
    step.timers.set(key, step.now.mono_in(wait_s))


def on_underuse_look(step: Step, job: Job) -> None:
    """Compare what is known of the job's GPUs with its policy."""
    policy = job.gang.underuse
    if policy is None or not job.launched or job.stopping or job.launch.primary_done_at is not None:
        return  # A gang whose primary is done may stand still: it has succeeded.
    idle, unknown, seen = _idle_since(step, job, policy)
    found, now = job.underuse, step.now
    if not idle:
        if found is not None:
            step.emit(ev.UnderuseOver(job_id=job.id, at=now.wall, generation=job.generation))
        return
    action = _action(step, job, policy, seen)
    if action is None and found is not None and (found.idle, found.unknown) == (len(idle), unknown):
        return
    new = idle[found.idle :] if found is not None else idle
    step.emit(
        ev.UnderuseNoticed(
            job_id=job.id,
            at=now.wall,
            generation=job.generation,
            idle=len(idle),
            gpus=job.gang.gpus,
            since=now.wall_of(idle[0]),
            unknown=unknown,
            action=action,
            before_s=sum(max(now.mono - since, 0.0) for since in new),
        )
    )
    _act(step, job, policy, action)


def _idle_since(step: Step, job: Job, policy: UnderusePolicy) -> tuple[list[Mono], int, int]:
    """Since when each GPU is idle that has been for the policy's time, the longest first; then two numbers.

    They say how many GPUs are unknown, and how many of the idle ones are seen to be. Those of a host that has fallen
    silent stay in a finding that they were in: else it would be notified and counted once more at each return.
    """
    now = step.now.mono
    idle: list[Mono] = []
    known = seen = 0
    for vector in step.cluster.runtime_of(job.id).features.values():
        silent = now - vector.at_s > _STALE_S
        if silent and job.underuse is None:
            continue
        until = vector.at_s if silent else now
        times = (Mono(gpu.idle_since_s) for gpu in vector.gpus if gpu.known and gpu.idle_since_s is not None)
        since = [each for each in times if until - each >= policy.duration_s]
        idle += since
        known += len(since) if silent else sum(gpu.known for gpu in vector.gpus)
        seen += 0 if silent else len(since)
    return sorted(idle), max(job.gang.gpus - known, 0), seen


def _action(step: Step, job: Job, policy: UnderusePolicy, seen: int) -> UnderuseAction | None:
    """The policy's action, if it is due. A person who holds the job for a look, or pauses it, goes first."""
    found = job.underuse
    held = job.held_until is not None and step.now.wall < job.held_until
    enough = (policy.of is UnderuseShare.ANY and seen > 0) or seen >= job.gang.gpus
    if not enough or held or job.pause_due is not None or (found is not None and found.acted):
        return None
    return policy.action


def _act(step: Step, job: Job, policy: UnderusePolicy, action: UnderuseAction | None) -> None:
    if action is UnderuseAction.PAUSE:
        ask_pause(step, job, BY)
    elif action is UnderuseAction.STOP:
        assert job.underuse is not None
        step.emit(ev.CancelRequested(job_id=job.id, at=step.now.wall, by=BY))
        end(step, job, JobState.CANCELLED, JobError(CANCELLED, why_stopped(job.underuse, policy)))
        step.capacity_freed = True


def why_stopped(found: Underuse, policy: UnderusePolicy) -> str:
    """Why a job is stopped that doesn't use its GPUs, as its error."""
    left = f"left {found.idle} of its {found.gpus} GPUs" if found.idle < found.gpus else "left its GPUs"
    return f"The job {left} below {policy.below_pct} % for {span(policy.duration_s)}, and was stopped by {BY}."
