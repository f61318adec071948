"""Fold of active checks: what was measured of hosts, and what makes the next check due."""

from __future__ import annotations

from holdfast._base.health import Health
from holdfast_controller.core.events import host as ev
from holdfast_controller.core.events.recovery import AttemptEnded, RestartDecided
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.caution import LEMON
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.measurements import PREFIX, Kind, Why
from holdfast_controller.core.model.recovery import EndReason

MeasurementEvent = ev.HostMeasurementDue | ev.HostMeasurementBegan | ev.HostMeasured


def fold_measurement(host: Host, event: MeasurementEvent) -> None:
    """Apply an event of an active check to its host."""
    measured = host.measured
    match event:
        case ev.HostMeasurementDue():
            measured.mark(event.kind, event.why)
        case ev.HostMeasurementBegan():
            measured.running, measured.running_why = event.job, event.why
        case ev.HostMeasured():
            measured.take(event.result)


def note_due(host: Host, event: ev.HostEvent) -> None:
    """Note that a host is to be measured, before an event of it is applied."""
    why = _why(host, event)
    if why is not None:
        host.measured.mark(Kind.ALONE, why)
    if isinstance(event, ev.HostUncordoned) and event.repaired:
        host.measured.results = ()  # of what may have been replaced


def _why(host: Host, event: ev.HostEvent) -> Why | None:
    match event:
        case ev.HostJoined(rebooted=True) | ev.HostReturned():
            return Why.RETURNED
        case ev.HostUncordoned() if host.cordoned or event.repaired:
            return Why.RETURNED
        case ev.MaintenanceEnded() if host.maintenance is not None and host.maintenance.begun:
            return Why.RETURNED
        case ev.GpuCleared():
            return Why.SUSPECTED
        case ev.HostCheckFailed(check=check) if check == LEMON:
            return Why.SUSPECTED
        case ev.HostCheckPassed(health=Health.FAIL | Health.CORDON) if not event.check.startswith(PREFIX):
            return Why.SUSPECTED
        case _:
            return None


def note_suspects(cluster: Cluster, event: RestartDecided | AttemptEnded) -> None:
    """A job hung, and one host alone was left for it."""
    if not isinstance(event, AttemptEnded) or event.end_reason is not EndReason.HANG:
        return
    if len(event.avoid) == 1 and event.avoid[0] in cluster.hosts:
        cluster.hosts[event.avoid[0]].measured.mark(Kind.ALONE, Why.SUSPECTED)
        cluster.host_changed(event.avoid[0])
