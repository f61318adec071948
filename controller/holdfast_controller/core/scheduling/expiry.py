"""Expiry of queued jobs: of those whose longest wait is over, and of those that don't wait for hosts at all."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import await_hosts
from holdfast_controller.core.lifecycle.error_report import RESOURCE_EXHAUSTED
from holdfast_controller.core.lifecycle.stop import DEADLINE_EXCEEDED, end
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.queue import PLACEMENT_TRIES
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer, JobTimer

TRY_AGAIN_S = 10.0
"""Seconds until the second try to place a job that doesn't wait; twice that until the third."""


def note_wait(step: Step, job: Job, over: str, reason: str) -> None:
    """Record what a job waits for: the quota of its project, if ``over`` says why it keeps the job, or else hosts.

    ``maxWaitDuration`` limits the wait for hosts alone, and starts from zero when the quota suffices. What its quota
    keeps holds nothing meanwhile: neither places of its last attempt, nor spares.
    """
    kept = tuple(sorted(job.reserved)) if over else ()
    if holds := bool(over and (kept or job.spares)):
        reason += "; what it had kept is free for others"
    step.emit(ev.JobQueued(job_id=job.id, at=step.now.wall, reason=reason, for_quota=bool(over), given_back=kept))
    if not over:
        await_hosts(step, job)
        return
    step.timers.clear((JobTimer.EXPIRE, job.id))
    if job.spares:
        step.emit(ev.JobSparesChanged(job_id=job.id, at=step.now.wall, spares=()))
    if holds:
        step.timers.set((ClusterTimer.RETURNS, ""), step.now.mono)


def on_expired(step: Step, job: Job, hosts: list[Host]) -> None:
    """End a job that has waited in the queue for as long as its spec allows."""
    if job.state is not JobState.QUEUED or job.outcome is not None or job.over_quota:
        return
    reason = wait_reason(
        step.cluster, job, hosts, QueueView(step.cluster, hosts, step.policies.quotas, at=step.now)
    )
    waited = f"The job waited {span(job.gang.max_wait_s)} for hosts, as long as it may"
    end(step, job, JobState.EXPIRED, JobError(DEADLINE_EXCEEDED, f"{waited}: {reason}."))
    step.capacity_freed = True


def on_no_room(step: Step, job: Job, hosts: list[Host]) -> None:
    """Try a job that doesn't wait again later, or fail it after its last try found no free capacity."""
    if (JobTimer.RETRY, job.id) in step.timers.due:
        return  # After a start of the controller hosts get time to connect.
    number = job.placement_attempts + 1
    queue_view = QueueView(step.cluster, hosts, step.policies.quotas, at=step.now)
    reason = queue_view.lack_of_room(job) or "what is free is left to jobs ahead of it"
    if number < PLACEMENT_TRIES:
        wait_s = TRY_AGAIN_S * 2.0 ** (number - 1)
        step.emit(
            ev.PlacementTried(
                job_id=job.id, at=step.now.wall, number=number, reason=reason, not_before=step.now.wall_in(wait_s)
            )
        )
        step.timers.set((JobTimer.RETRY, job.id), step.now.mono_in(wait_s))
        return
    error = JobError(
        RESOURCE_EXHAUSTED,
        f"Resources are insufficient in cluster {step.policies.cluster_name}: {reason}."
        " Try again later, or ask for less or for a different accelerator.",
    )
    end(step, job, JobState.FAILED, error)
    step.capacity_freed = True
