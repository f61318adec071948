"""Events of a restore in words; see ``message_of``."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events import restore as ev
from holdfast_controller.core.messages.maintenance import span


def cluster_reconciliation_message(event: ev.ClusterReconciliation) -> str:
    """The sentence for an event of the whole cluster's restore."""
    match event:
        case ev.ClusterRestored():
            ago = span(event.at - event.taken_at)
            return f"restored from a backup made {ago} before; waiting for hosts to report what they run"
        case ev.ReconciliationEnded():
            return "every host has reported; the restore is complete"
        case _:
            assert_never(event)


def job_reconciliation_message(event: ev.JobReconciliation) -> str:
    """The sentence for a job's event after a restore."""
    match event:
        case ev.JobFound():
            hosts = ", ".join(dict.fromkeys(place.host for place in event.places))
            return f"found on {hosts} after the restore, running as generation {max(event.generations)}"
        case ev.JobUnsure() | ev.JobCleared():
            return event.reason
        case _:
            assert_never(event)


def orphan_message(event: ev.OrphanEvent) -> str:
    """The sentence for an event of an orphaned worker."""
    match event:
        case ev.OrphanFound():
            return f"{event.host} runs an orphaned worker: {event.job} {event.worker} is not in the restored log"
        case ev.OrphanExited():
            said = event.exit.message or event.exit.reason.name
            return f"{event.host}: orphaned {event.job} {event.worker} rank {event.exit.rank} {said}"
        case ev.OrphanStopRequested():
            return f"{event.host}: orphaned workers of {event.job} stopped by {event.by}"
        case ev.OrphanGone():
            return f"{event.host}: orphaned worker {event.job} {event.worker} is gone"
        case _:
            assert_never(event)
