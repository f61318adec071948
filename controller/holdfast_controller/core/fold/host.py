"""Fold of events of hosts: keeps the cluster's hosts."""

from __future__ import annotations

from typing import assert_never

from holdfast._base.dataclass import replace
from holdfast._base.identity import Kind
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.access import make_void
from holdfast_controller.core.fold.allocation import let_go
from holdfast_controller.core.fold.measurements import fold_measurement, note_due
from holdfast_controller.core.goodput import host_record
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.caution import LEMON
from holdfast_controller.core.model.hosts.host import CondemnedGpu, FailedCheck, Host, Inventory, Waiver
from holdfast_controller.core.model.hosts.measurements import PREFIX

SELF = "holdfast"
"""Who does what no person asked for."""


def fold_host(cluster: Cluster, event: ev.HostEvent) -> None:
    """Apply ``event`` to its host."""
    cluster.host_changed(event.host)
    cluster.schedulable = None
    host_record.take(cluster, event)
    if (known := cluster.hosts.get(event.host)) is not None:
        note_due(known, event)
    _fold(cluster, event)
    host_record.observe(cluster, cluster.hosts.get(event.host), event.at)


def _fold(cluster: Cluster, event: ev.HostEvent) -> None:
    match event:
        case ev.HostJoined():
            cluster.free_capacity.changed(event.host)
            cluster.forget_fits()
            host = cluster.hosts.get(event.host)
            if host is None:
                cluster.hosts[event.host] = Host(
                    event.host,
                    event.address,
                    event.boot_id,
                    event.agent_version,
                    event.inventory,
                    labels=event.labels,
                )
            else:
                if host.boot_id != event.boot_id:
                    host.going_down, host.going_down_since = False, NEVER
                if host.agent_version != event.agent_version:
                    _forget_checks(host)
                host.agent_stopped_at = NEVER
                host.address, host.boot_id = event.address, event.boot_id
                host.agent_version, host.inventory = event.agent_version, event.inventory
                host.labels, host.refused = event.labels, ""
        case ev.GpuCondemned():
            cluster.free_capacity.changed(event.host)
            host = cluster.hosts[event.host]
            known = host.condemned[event.gpu].faults if event.gpu in host.condemned else ()
            others = tuple(fault for fault in known if fault.cause != event.fault.cause)
            host.condemned[event.gpu] = CondemnedGpu(event.gpu, event.index, (*others, event.fault))
            host.cleared.get(event.gpu, {}).pop(event.fault.cause, None)
        case ev.GpuCleared():
            cluster.free_capacity.changed(event.host)
            _clear_gpu(cluster.hosts[event.host], event)
        case ev.HostRefused():
            host = cluster.hosts.setdefault(event.host, Host(event.host, "", "", "", Inventory(0, 0)))
            host.agent_version, host.refused = event.agent_version, event.problem
        case ev.HostThrottled():
            cluster.hosts[event.host].throttled[event.kind] = event.at
        case ev.HostCordoned():
            host = cluster.hosts[event.host]
            host.cordoned, host.cordon_reason = True, event.reason
            host.cordoned_by, host.cordoned_since = event.by, event.at
        case ev.HostUncordoned():
            host = cluster.hosts[event.host]
            host.cordoned, host.cordon_reason = False, ""
            host.cordoned_by, host.cordoned_since = "", NEVER
            _waive(host)
            if host.maintenance is not None and host.maintenance.begun:
                host.maintenance = None
            host.draining, host.drain_deadline, host.drain_at_checkpoint = False, None, False
            host.drain_since, host.drained = NEVER, False
            host.going_down, host.going_down_since = False, NEVER
            cluster.draining.discard(event.host)
        case ev.HostDraining():
            host = cluster.hosts[event.host]
            host.cordoned, host.cordon_reason, host.draining = True, event.reason, True
            host.drain_deadline, host.drain_at_checkpoint = event.deadline, event.at_checkpoint
            host.drain_since, host.drained = event.at, False
            host.cordoned_by, host.cordoned_since = event.by, event.at
            cluster.draining.add(event.host)
        case ev.HostDrained():
            cluster.hosts[event.host].drained = True
        case ev.HostFenced():
            cluster.hosts[event.host].unreconciled = False
            # What follows for the places there are events of their jobs.
        case ev.HostPlaceFreed():
            let_go(cluster, cluster.hosts[event.host], event.place, event.at)
        case ev.HostLost():
            host = cluster.hosts[event.host]
            host.lost, host.silent_since = True, Wall(event.at - event.silent_s)
        case ev.HostReturned():
            host = cluster.hosts[event.host]
            host.lost, host.silent_since = False, NEVER
        case ev.HostRemoved():
            cluster.hosts.pop(event.host, None)
            cluster.draining.discard(event.host)
            cluster.free_capacity.forget(event.host)
            cluster.forget_fits()
            make_void(cluster.people, Kind.HOST, event.host, event.at)
        case ev.HostShutdownBegan():
            host = cluster.hosts[event.host]
            host.going_down, host.going_down_since = True, event.at
        case ev.AgentStopped():
            cluster.hosts[event.host].agent_stopped_at = event.at
        case ev.HostCheckFailed():
            cluster.free_capacity.changed(event.host)
            _note_failed_check(cluster.hosts[event.host].failed_checks, event)
        case ev.HostCheckPassed():
            cluster.free_capacity.changed(event.host)
            cluster.hosts[event.host].failed_checks.pop(event.check, None)
        case ev.MaintenancePlanned():
            cluster.hosts[event.host].maintenance = event.maintenance
        case ev.MaintenanceBegan():
            host = cluster.hosts[event.host]
            if host.maintenance is not None:
                host.maintenance = replace(host.maintenance, begun=True, stays_cordoned=host.cordoned)
        case ev.MaintenanceEnded():
            cluster.hosts[event.host].maintenance = None
        case ev.HostMeasurementDue() | ev.HostMeasurementBegan() | ev.HostMeasured():
            fold_measurement(cluster.hosts[event.host], event)
        case _:
            assert_never(event)


def fold_controller_check(cluster: Cluster, event: ev.ControllerCheckFailed | ev.ControllerCheckPassed) -> None:
    """Apply an event of the controller's own checks."""
    match event:
        case ev.ControllerCheckFailed():
            _note_failed_check(cluster.failed_checks, event)
        case ev.ControllerCheckPassed():
            cluster.failed_checks.pop(event.check, None)
        case _:
            assert_never(event)


def _note_failed_check(known: dict[str, FailedCheck], event: ev.HostCheckFailed | ev.ControllerCheckFailed) -> None:
    """A check that only fails in another way has failed since it began to."""
    since = known[event.check].since if event.check in known else event.at
    failed = FailedCheck(event.check, event.status, event.saw, event.why, event.fix, since)
    if isinstance(event, ev.HostCheckFailed):
        failed = replace(failed, keeps_work_away=event.keeps_work_away, health=event.health, waived=event.waived)
    known[event.check] = failed


def _waive(host: Host) -> None:
    """An admin has seen what is known of the host's hardware, and wants it to have work."""
    for check, failed in host.failed_checks.items():
        if failed.health is not None and failed.keeps_work_away:
            host.failed_checks[check] = replace(failed, waived=Waiver.ADMIN)


def _forget_checks(host: Host) -> None:
    """Another release may look at other things, or tell of none; what an admin has waived stays so until it is over."""
    for check, failed in list(host.failed_checks.items()):
        if failed.waived is not Waiver.ADMIN and check != LEMON and not check.startswith(PREFIX):
            del host.failed_checks[check]


def _clear_gpu(host: Host, event: ev.GpuCleared) -> None:
    found = host.condemned.pop(event.gpu, None)
    faults = found.faults if found is not None else ()
    left = tuple(fault for fault in faults if fault.cause not in event.causes)
    if found is not None and left:
        host.condemned[event.gpu] = replace(found, faults=left)
    gone = {fault.cause: fault.count for fault in faults if fault.cause in event.causes}
    excused = {cause: n for cause, n in host.cleared.pop(event.gpu, {}).items() if cause not in event.causes}
    if event.by != SELF:
        excused |= gone
    if excused:
        host.cleared[event.gpu] = excused
