"""Events of schedules and templates in words; see ``message_of``."""

from __future__ import annotations

from typing import assert_never

from holdfast._base import cron
from holdfast_controller.core.events import schedules as ev
from holdfast_controller.core.model.clock import Wall


def schedule_message(event: ev.ScheduleEvent | ev.TemplateEvent) -> str:
    """The sentence for an event of a schedule or a template."""
    name = event.name
    match event:
        case ev.ScheduleCreated():
            return f"schedule {name} created by {event.owner}: {event.cron!r} in {event.time_zone}"
        case ev.ScheduleFired():
            missed = f", in place of those since {_shown(event.first_due)}" if event.first_due < event.due else ""
            return f"run of {_shown(event.due)} is {event.job_id}{missed}"
        case ev.ScheduleLeftOut():
            runs = f"runs from {_shown(event.first_due)} to" if event.first_due < event.due else "run of"
            return f"{runs} {_shown(event.due)} left out: {event.why}"
        case ev.SchedulePaused():
            return f"schedule {name} paused by {event.by}"
        case ev.ScheduleResumed():
            return f"schedule {name} resumed by {event.by}"
        case ev.ScheduleRemoved():
            return f"schedule {name} removed by {event.by}"
        case ev.TemplateCreated():
            return f"template {name}@{event.version} created by {event.by}"
        case ev.TemplateRemoved():
            return f"template {name} removed by {event.by}"
        case _:
            assert_never(event)


def _shown(at: Wall) -> str:
    return cron.in_zone(at, "UTC")
