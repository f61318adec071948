"""Events of planned maintenance in words; see ``message_of``."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from holdfast_controller.core.events import host as ev

if TYPE_CHECKING:
    from holdfast_controller.core.events.pause import MaintenanceAhead


def maintenance_message(event: ev.MaintenancePlanned | ev.MaintenanceBegan | ev.MaintenanceEnded) -> str:
    """The sentence for a maintenance event of a host."""
    match event:
        case ev.MaintenancePlanned():
            plan = event.maintenance
            begin = f"in {span(plan.start - event.at)}" if plan.start > event.at else "now"
            until = f" for {span(plan.end - max(plan.start, event.at))}" if plan.end is not None else ""
            what = "drain" if plan.drain else "cordon"
            why = f": {plan.reason}" if plan.reason else ""
            return f"{event.host}: maintenance ({what}) by {plan.by}, {begin}{until}{why}"
        case ev.MaintenanceBegan():
            return f"{event.host}: maintenance begins"
        case ev.MaintenanceEnded():
            over = "is over" if event.by == "holdfast" else f"ended by {event.by}"
            return f"{event.host}: maintenance {over}" + (f"; it stays cordoned: {event.why}" if event.why else "")
        case _:
            assert_never(event)


def maintenance_ahead(event: MaintenanceAhead) -> str:
    """The sentence for a job on a host with planned maintenance."""
    why = f" ({event.reason})" if event.reason else ""
    when = f"in {span(event.start - event.at)}" if event.start > event.at else "now"
    return f"maintenance of {event.host} {when}: its work moves to other hosts{why}"


def span(seconds: float) -> str:
    """A duration in words, such as ``71 ms``, ``45 s``, ``20 min``, ``6 h`` or ``3 days``."""
    if 0 < seconds < 0.9995:
        return f"{max(1000 * seconds, 1):.0f} ms"
    for size, unit in ((172_800.0, "days"), (7200.0, "h"), (120.0, "min")):
        if seconds >= size:
            return f"{seconds / _UNITS[unit]:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


_UNITS = {"days": 86_400.0, "h": 3600.0, "min": 60.0}
