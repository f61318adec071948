"""Between the core and an agent: hellos and inventories in, orders to stop unknown work out."""

from __future__ import annotations

from holdfast._base.health import Health
from holdfast._base.proto_values import seconds
from holdfast._base.xids import Repair
from holdfast._session import codec
from holdfast._session.assignment import Assignment, Phase
from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import CheckStatus, FailedCheck, Gpu, GpuFault, Inventory
from holdfast_controller.core.step import commands
from holdfast_controller.core.step.actions import StopOrphan

_HEALTH = {host_pb2.HealthClass.Value(f"HEALTH_CLASS_{each.name}"): each for each in Health}
DISMISSAL_GRACE_S = 30.0
"""Seconds between TERM and KILL if the job's own grace is unknown."""


def hello(host: str, session: int, message: agent_pb2.Hello) -> commands.HostConnected:
    """Convert an agent's hello, which is within its bounds."""
    return commands.HostConnected(
        host=host,
        session=session,
        address=message.address or host,
        boot_id=message.boot_id,
        agent_version=message.agent_version,
        inventory=inventory(message.inventory),
        places=tuple(map(codec.worker_report_from_proto, message.workers)),
        labels=dict(message.labels),
    )


def inventory(message: host_pb2.Inventory) -> Inventory:
    """Convert a host's inventory."""
    gpus = tuple(map(_gpu, message.gpus))
    why_none = "" if message.containers else message.containers_problem or "its agent knows of none"
    no_accounts = "" if message.accounts else message.accounts_problem or "its agent knows of none"
    return Inventory(
        message.cpu_count,
        message.memory_bytes,
        gpus,
        message.max_workers or 64,
        message.gpu_problem,
        why_none,
        no_accounts,
        message.gives_secrets,
        dict(message.traits),
    )


def failed_check(message: host_pb2.FailedCheck) -> FailedCheck:
    """Convert a failed check of a host. One of a status that is not known yet is a warning."""
    status = CheckStatus.ERROR if message.status == host_pb2.CHECK_STATUS_ERROR else CheckStatus.WARNING
    return FailedCheck(
        message.check,
        status,
        message.saw,
        message.why,
        tuple(message.fix),
        Wall(seconds(message.since)),
        message.keeps_work_away,
        _HEALTH.get(message.health),
    )


def _gpu(message: host_pb2.Gpu) -> Gpu:
    faults = tuple(
        GpuFault(
            fault.cause,
            Repair.REBOOT if fault.repair == host_pb2.GPU_REPAIR_REBOOT else Repair.RESET,
            Wall(seconds(fault.since)),
            fault.count,
        )
        for fault in message.faults
    )
    return Gpu(
        message.uuid,
        message.index,
        message.model,
        message.memory_bytes,
        message.problem,
        faults,
        message.repaired_by,
    )


def stop_orphan(order: StopOrphan, epoch: int) -> agent_pb2.Assignment:
    """The order to stop and forget a worker of which nothing but its name is known."""
    key = WorkerId(order.job_id, order.worker)
    forget = Assignment(epoch, key, 1, order.generation, Phase.FORGET, DISMISSAL_GRACE_S)
    return codec.assignment_to_proto(forget)
