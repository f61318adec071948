"""Events of a restore in words; see ``narrate``."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events import restore as ev
from holdfast_controller.core.messages.maintenance import span


def narrate_cluster_doubt(event: ev.ClusterDoubt) -> str:
    """The sentence for an event of the cluster."""
    match event:
        case ev.ClusterRestored():
            return f"restored from a backup made {span(event.at - event.taken_at)} before; hosts say what they hold"
        case ev.DoubtEnded():
            return "every host has said what it holds; the restore is over"
        case _:
            assert_never(event)


def narrate_job_doubt(event: ev.JobDoubt) -> str:
    """The sentence for an event of a job."""
    match event:
        case ev.JobFound():
            hosts = ", ".join(dict.fromkeys(place.host for place in event.places))
            return f"found on {hosts} after the restore, as generation {max(event.generations)}; it goes on"
        case ev.JobUnsure() | ev.JobCleared():
            return event.reason
        case _:
            assert_never(event)


def narrate_stranger(event: ev.StrangerEvent) -> str:
    """The sentence for an event of a host."""
    match event:
        case ev.StrangerFound():
            return f"{event.host} runs {event.job} {event.worker}, which the restored log doesn't know there"
        case ev.StrangerEnded():
            said = event.exit.message or event.exit.reason.name
            return f"{event.host}: {event.job} {event.worker} rank {event.exit.rank} {said}"
        case ev.StrangerDismissed():
            return f"{event.by} has {event.job} stopped on {event.host}"
        case ev.StrangerGone():
            return f"nothing is left of {event.job} {event.worker} on {event.host}"
        case _:
            assert_never(event)
