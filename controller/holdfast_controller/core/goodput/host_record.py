"""Fold of a host's failures, repairs and time in service: what its MTBF and MTTR are computed from.

A host is in service while it is heard and no one has planned otherwise: no shutdown, stopped agent, maintenance, or
finished drain. It fails when it is lost or boots without a word, when one of its GPUs is condemned, when a finding
about its hardware keeps it from work, and when ranks are lost to a fault that its own agent knows of; the program's
exits and words never count. Signs within ``INCIDENT_MS`` are one failure; findings come and go, so one within
``FINDING_MS`` of another failure says nothing new. Time in service is booked when the host's state changes, so an idle
year costs nothing.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.goodput.tape import milliseconds
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import HostBooking, HostFact, HostRecord
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.recovery import EndReason

INCIDENT_MS = 600_000
"""From the first sign of a failure on, all signs are of the same."""
FINDING_MS = 86_400_000
_HOST_FAULTS = frozenset({EndReason.LOST_HOST, EndReason.LOST_REBOOT, EndReason.HARDWARE_FAULT})


def take(cluster: Cluster, event: ev.HostEvent) -> None:
    """Note what an event says of its host, in the state before it."""
    host = cluster.hosts.get(event.host)
    if host is None or host.record is None:
        return
    now = milliseconds(event.at)
    match event:
        case ev.HostLost():
            _on_lost(cluster, host, event)
        case ev.HostReturned() if host.record.lost_at is not None:
            _book(cluster, host, HostFact.REPAIR, host.record.lost_at, max(now, host.record.lost_at))
            host.record.lost_at = None
        case ev.HostJoined(rebooted=True):
            _fail(cluster, host, now, HostFact.REBOOTED)
        case ev.GpuCondemned() if event.gpu not in host.condemned:
            _fail(cluster, host, now, HostFact.GPU)
        case ev.GpuCleared() if event.gpu in host.condemned:
            faults = host.condemned[event.gpu].faults
            if all(fault.cause in event.causes for fault in faults):
                since = min(milliseconds(fault.since) for fault in faults)
                _book(cluster, host, HostFact.REPAIR, min(max(since, host.record.begun), now), now)
        case ev.HostCheckFailed() if _keeps_away(event) and not _is_kept(host):
            if host.record.failed_at is None or now >= host.record.failed_at + FINDING_MS:
                _fail(cluster, host, now, HostFact.FINDING)
        case ev.HostRemoved():
            _book_time(cluster, host, now)
        case ev.HostUncordoned(repaired=True):
            _book_time(cluster, host, now)
            host.record = begin(host, max(now, host.record.until))
        case _:
            pass


def observe(cluster: Cluster, host: Host | None, at: Wall) -> None:
    """Book the time until now where the host's state has changed."""
    if host is None:
        return
    now = milliseconds(at)
    if host.record is None:
        if host.boot_id:
            host.record = begin(host, now)
        return
    state = (in_service(host), bool(host.allocations))
    if (host.record.up, host.record.busy) != state:
        _book_time(cluster, host, now)
        host.record.up, host.record.busy = state


def on_rank_loss(cluster: Cluster, event: ev.RestartDecided | ev.AttemptEnded) -> None:
    """A job lost ranks to its host, by what the host's own agent knows."""
    name = event.related.host or (event.failure.host if event.failure is not None else "")
    host = cluster.hosts.get(name)
    if host is None or host.record is None or event.end_reason not in _HOST_FAULTS:
        return
    if event.end_reason is not EndReason.HARDWARE_FAULT or host.faulty:
        cluster.host_changed(name)
        _fail(cluster, host, milliseconds(event.at), HostFact.RANKS)


def begin(host: Host, now: int) -> HostRecord:
    """A record that begins now."""
    return HostRecord(now, now, in_service(host), bool(host.allocations))


def in_service(host: Host) -> bool:
    """Whether a host is heard, and meant to be."""
    planned = host.going_down or host.agent_stopped_at != NEVER or host.drained
    maintained = host.maintenance is not None and host.maintenance.begun
    return bool(host.boot_id) and not (host.lost or planned or maintained)


def open_time(host: Host, now: int) -> list[HostBooking]:
    """The time in service that is not booked, as it would be booked now."""
    record = host.record
    if record is None or not record.up or now <= record.until:
        return []
    return [HostBooking(host.name, record.since, HostFact.UP, record.busy, record.until, now)]


def _keeps_away(event: ev.HostCheckFailed) -> bool:
    return event.health is not None and event.keeps_work_away and event.waived is None


def _is_kept(host: Host) -> bool:
    return any(failed.health is not None and failed.holds for failed in host.failed_checks.values())


def _on_lost(cluster: Cluster, host: Host, event: ev.HostLost) -> None:
    assert host.record is not None
    silent = max(milliseconds(Wall(event.at - event.silent_s)), host.record.begun)
    if host.record.up:  # not shut down, stopped or in maintenance
        _fail(cluster, host, silent, HostFact.LOST)
        host.record.lost_at = silent
    _book_time(cluster, host, silent)
    host.record.up = False


def _fail(cluster: Cluster, host: Host, at: int, what: HostFact) -> None:
    """Count a failure of a host in service, unless it is part of the one before."""
    record = host.record
    if record is None or not record.up:
        return
    if record.failed_at is None or not record.failed_at - INCIDENT_MS < at < record.failed_at + INCIDENT_MS:
        record.failed_at = at
        _book(cluster, host, what, at, at)


def _book_time(cluster: Cluster, host: Host, now: int) -> None:
    cluster.bookings.hosts += open_time(host, now)
    assert host.record is not None
    host.record.until = max(host.record.until, now)


def _book(cluster: Cluster, host: Host, what: HostFact, start: int, end: int) -> None:
    assert host.record is not None
    cluster.bookings.hosts.append(HostBooking(host.name, host.record.since, what, host.record.busy, start, end))
