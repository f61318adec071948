"""Which events of a job users are notified of, and as what: a function of the log, so it can be computed again."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.model.subscription import Notice

TELLING: tuple[type[ev.JobEvent], ...] = (
    ev.GangStarted,
    ev.WorkerStarted,
    ev.RestartDecided,
    ev.AttemptEnded,
    ev.HangNoticed,
    ev.MaintenanceAhead,
    ev.UnderuseNoticed,
    ev.SlowdownNoticed,
    ev.JobUnsure,
    ev.JobEnded,
)
"""Types of events that users may be notified of."""

_ENDS = {
    JobState.SUCCEEDED: Notice.COMPLETED,
    JobState.FAILED: Notice.FAILED,
    JobState.CANCELLED: Notice.CANCELLED,
    JobState.EXPIRED: Notice.EXPIRED,
}


def notice_of(event: ev.Event, job: Job) -> Notice | None:
    """The kind of notification for ``event``; None if it needs none. ``job`` may be in any later state."""
    match event:
        case ev.GangStarted():
            if job.started_at == event.at:
                return Notice.STARTED
            recovers = any(recovery.generation == event.generation for recovery in job.recoveries)
            # What starts again after a pause was not broken.
            return Notice.RECOVERED if recovers else Notice.STARTED
        case ev.WorkerStarted():
            return Notice.RECOVERED
        case ev.RestartDecided():
            return Notice.RESTARTED
        case ev.AttemptEnded():
            return _of_attempt(event)
        case ev.HangNoticed():
            return Notice.HANGED
        case ev.MaintenanceAhead():
            return Notice.MAINTENANCE
        case ev.UnderuseNoticed():
            return Notice.UNDERUSED if event.action is not None else None
        case ev.SlowdownNoticed():
            return Notice.STRAGGLER if event.named else None
        case ev.JobUnsure():
            return Notice.UNSURE
        case ev.JobEnded():
            return _ENDS.get(event.state)
        case _:
            return None


def _of_attempt(event: ev.AttemptEnded) -> Notice | None:
    if event.leaving is Leaving.PAUSE:
        return None
    return {EndReason.PREEMPTED: Notice.PREEMPTED, EndReason.DRAINED: Notice.DRAINED}.get(
        event.end_reason, Notice.RESTARTED
    )
