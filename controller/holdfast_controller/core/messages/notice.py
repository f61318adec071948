"""Which events of a job users are notified of, and as what: a function of the log, so it can be computed again."""

from __future__ import annotations

from holdfast._base.job_file.choices import NotificationEvent
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason

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
    JobState.SUCCEEDED: NotificationEvent.COMPLETED,
    JobState.FAILED: NotificationEvent.FAILED,
    JobState.CANCELLED: NotificationEvent.CANCELLED,
    JobState.EXPIRED: NotificationEvent.EXPIRED,
}


def notice_of(event: ev.Event, job: Job) -> NotificationEvent | None:
    """The kind of notification for ``event``; None if it needs none. ``job`` may be in any later state."""
    match event:
        case ev.GangStarted():
            if job.started_at == event.at:
                return NotificationEvent.STARTED
            recovers = any(recovery.generation == event.generation for recovery in job.recoveries)
            # What starts again after a pause was not broken.
            return NotificationEvent.RECOVERED if recovers else NotificationEvent.STARTED
        case ev.WorkerStarted():
            return NotificationEvent.RECOVERED
        case ev.RestartDecided():
            return NotificationEvent.RESTARTED
        case ev.AttemptEnded():
            return _of_attempt(event)
        case ev.HangNoticed():
            return NotificationEvent.HANGED
        case ev.MaintenanceAhead():
            return NotificationEvent.MAINTENANCE
        case ev.UnderuseNoticed():
            return NotificationEvent.UNDERUSED if event.action is not None else None
        case ev.SlowdownNoticed():
            return NotificationEvent.STRAGGLER if event.named else None
        case ev.JobUnsure():
            return NotificationEvent.UNSURE
        case ev.JobEnded():
            return _ENDS.get(event.state)
        case _:
            return None


def _of_attempt(event: ev.AttemptEnded) -> NotificationEvent | None:
    if event.leaving is Leaving.PAUSE:
        return None
    return {EndReason.PREEMPTED: NotificationEvent.PREEMPTED, EndReason.DRAINED: NotificationEvent.DRAINED}.get(
        event.end_reason, NotificationEvent.RESTARTED
    )
