"""Events of a host as its history lists them: ``HostEvent`` of the contract, one kind for each stored type."""

from __future__ import annotations

from typing import assert_never

from google.protobuf.timestamp_pb2 import Timestamp

from holdfast.v1 import host_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.host import gpu_problems
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import FailedCheck
from holdfast_controller.shell.convert.host_to_proto import (
    failed_check_to_proto,
    fault_to_proto,
    maintenance_to_proto,
)
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.convert.measurements_to_proto import measurement_to_proto, reason_to_proto

_Event = host_pb2.HostEvent


def event_to_proto(event: ev.HostEvent | ev.OrphanEvent) -> host_pb2.HostEvent:
    """The event of a host, without what only the controller needs."""
    match event:
        case ev.HostJoined():
            return _Event(joined=_joined(event))
        case ev.HostRefused():
            return _Event(refused=_Event.Refused(agent_version=event.agent_version, problem=event.problem))
        case ev.HostThrottled():
            return _Event(throttled=_Event.Throttled(messages=event.kind, per_hour_bytes=event.per_hour_bytes))
        case ev.HostCordoned():
            return _Event(cordoned=_Event.Cordoned(by=event.by, reason=event.reason))
        case ev.HostUncordoned():
            return _Event(uncordoned=_Event.Uncordoned(by=event.by, repaired=event.repaired))
        case ev.HostDraining():
            draining = _Event.Draining(
                by=event.by,
                reason=event.reason,
                deadline=timestamp(event.deadline) if event.deadline is not None else None,
                at_checkpoint=event.at_checkpoint,
            )
            return _Event(draining=draining)
        case ev.HostDrained():
            return _Event(drained=_Event.Drained())
        case ev.HostFenced():
            return _Event(fenced=_Event.Fenced(by=event.by, reason=event.reason))
        case ev.HostPlaceFreed():
            job_id, _, index = event.place.rpartition("/")
            return _Event(share_freed=_Event.ShareFreed(job_id=job_id, worker_index=int(index)))
        case ev.HostLost():
            lost = _Event.Lost(
                silent_since=timestamp(event.at - event.silent_s),
                shut_down_at=_maybe(event.shut_down_at),
                agent_stopped_at=_maybe(event.agent_stopped_at),
            )
            return _Event(lost=lost)
        case ev.HostReturned():
            return _Event(returned=_Event.Returned(silent_since=_maybe(event.silent_since)))
        case ev.HostRemoved():
            return _Event(removed=_Event.Removed(by=event.by))
        case ev.HostShutdownBegan():
            return _Event(shutdown_began=_Event.ShutdownBegan())
        case ev.AgentStopped():
            return _Event(agent_stopped=_Event.AgentStopped())
        case ev.MaintenancePlanned():
            planned = _Event.MaintenancePlanned(maintenance=maintenance_to_proto(event.maintenance))
            return _Event(maintenance_planned=planned)
        case ev.MaintenanceBegan():
            return _Event(maintenance_began=_Event.MaintenanceBegan())
        case ev.MaintenanceEnded():
            return _Event(maintenance_ended=_Event.MaintenanceEnded(by=event.by, why=event.why))
        case ev.GpuCondemned():
            condemned = _Event.GpuCondemned(uuid=event.gpu, index=event.index, fault=fault_to_proto(event.fault))
            return _Event(gpu_condemned=condemned)
        case ev.GpuCleared():
            cleared = _Event.GpuCleared(
                uuid=event.gpu, index=event.index, causes=event.causes, by=event.by, why=event.why
            )
            return _Event(gpu_cleared=cleared)
        case ev.HostCheckFailed():
            failed = FailedCheck(
                event.check,
                event.status,
                event.saw,
                event.why,
                event.fix,
                event.at,
                event.keeps_work_away,
                event.health,
                event.waived,
            )
            return _Event(check_failed=_Event.CheckFailed(check=failed_check_to_proto(failed)))
        case ev.HostCheckPassed():
            return _Event(check_passed=_Event.CheckPassed(check=event.check))
        case ev.HostMeasurementDue():
            due = _Event.MeasurementDue(reason=reason_to_proto(event.why), by=event.by)
            return _Event(measurement_due=due)
        case ev.HostMeasurementBegan():
            why = reason_to_proto(event.why)
            began = _Event.MeasurementBegan(job_id=event.job, reason=why, partner=event.partner)
            return _Event(measurement_began=began)
        case ev.HostMeasured():
            return _Event(measured=_Event.Measured(result=measurement_to_proto(event.result)))
        case ev.OrphanFound() | ev.OrphanExited() | ev.OrphanStopRequested() | ev.OrphanGone():
            return _of_orphan(event)
        case _:
            assert_never(event)


def _joined(event: ev.HostJoined) -> host_pb2.HostEvent.Joined:
    return _Event.Joined(
        first=not event.known,
        rebooted=event.rebooted,
        boot_id=event.boot_id,
        address=event.address,
        agent_version=event.agent_version,
        previous_agent_version=event.previous_version,
        agent_stopped_at=_maybe(event.agent_stopped_at),
        cpu_count=event.inventory.cpus,
        gpu_count=len(event.inventory.gpus),
        gpu_problems=gpu_problems(event.inventory),
    )


def _of_orphan(event: ev.OrphanEvent) -> host_pb2.HostEvent:
    match event:
        case ev.OrphanFound():
            work = host_pb2.StrangeWork(
                job_id=event.job,
                worker=event.worker,
                generation=event.generation,
                gpus=event.gpus,
                since=timestamp(event.at),
            )
            return _Event(strange_work_found=_Event.StrangeWorkFound(work=work))
        case ev.OrphanExited():
            ended = _Event.StrangeWorkEnded(job_id=event.job, worker=event.worker, rank=event.exit.rank)
            return _Event(strange_work_ended=ended)
        case ev.OrphanStopRequested():
            return _Event(strange_work_stopped=_Event.StrangeWorkStopped(job_id=event.job, by=event.by))
        case ev.OrphanGone():
            return _Event(strange_work_gone=_Event.StrangeWorkGone(job_id=event.job, worker=event.worker))
        case _:
            assert_never(event)


def _maybe(moment: Wall) -> Timestamp | None:
    return timestamp(moment) if moment else None
