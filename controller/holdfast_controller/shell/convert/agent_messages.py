"""Between the core and an agent: hellos, reports and exits in; welcomes and assignments out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast._base.proto_time import seconds
from holdfast._session import codec
from holdfast._session.assignment import Assignment, Phase
from holdfast._session.reports import ExitReport, WorkerId, WorkerReport
from holdfast.hang.pipeline.xids import Repair
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.host import Gpu, GpuFault, Inventory
from holdfast_controller.core.step import commands
from holdfast_controller.core.step.actions import StopOrphan
from holdfast_controller.shell.convert.host_claims import (
    check_hello,
    check_inventory,
    check_report,
    explained,
    last_lines,
)

DISMISSAL_GRACE_S = 30.0
"""Seconds between TERM and KILL if the job's own grace is unknown."""
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""A host whose clock is further off than any calendar must not make its jobs unprintable."""


def hello(host: str, session: int, message: agent_pb2.Hello) -> commands.HostConnected:
    """Convert an agent's hello. Raises ``InvalidInput`` for values out of bounds."""
    check_hello(message)
    return commands.HostConnected(
        host=host,
        session=session,
        address=message.address or host,
        boot_id=message.boot_id,
        agent_version=message.agent_version,
        inventory=inventory(message.inventory),
        places=tuple(map(worker_report, message.workers)),
        labels=dict(message.labels),
    )


def inventory(message: host_pb2.Inventory) -> Inventory:
    """Convert a host's inventory. Raises ``InvalidInput`` as ``hello`` does."""
    check_inventory(message)
    gpus = tuple(map(_gpu, message.gpus))
    why_none = "" if message.containers else message.containers_problem or "its agent knows of none"
    no_accounts = "" if message.accounts else message.accounts_problem or "its agent knows of none"
    return Inventory(
        message.cpu_count,
        message.memory_bytes,
        gpus,
        message.max_workers or 64,
        explained(message.gpu_problem),
        explained(why_none),
        explained(no_accounts),
        message.gives_secrets,
    )


def _gpu(message: host_pb2.Gpu) -> Gpu:
    faults = tuple(
        GpuFault(
            explained(fault.cause),
            Repair.REBOOT if fault.repair == host_pb2.GPU_REPAIR_REBOOT else Repair.RESET,
            Wall(min(max(seconds(fault.since), 0.0), _LATEST)),
            fault.count,
        )
        for fault in message.faults
    )
    return Gpu(
        message.uuid,
        message.index,
        message.model,
        message.memory_bytes,
        explained(message.problem),
        faults,
        explained(message.repaired_by),
    )


def worker_report(message: agent_pb2.WorkerReport) -> WorkerReport:
    """State of one worker. Raises ``InvalidInput``."""
    check_report(message)
    report = codec.worker_report_from_proto(message)
    return replace(report, message=explained(report.message))


def exit_report(message: agent_pb2.ExitReport) -> ExitReport:
    """How a rank ended. Raises ``InvalidInput``."""
    report = codec.exit_report_from_proto(message)
    exit_ = replace(
        report.exit,
        message=explained(report.exit.message),
        raised=explained(report.exit.raised),
        end_time=min(max(report.exit.end_time, 0.0), _LATEST),
        stderr_tail=last_lines(report.exit.stderr_tail),
    )
    return replace(report, exit=exit_)


def stop_orphan(order: StopOrphan, epoch: int) -> agent_pb2.Assignment:
    """The order to stop and forget a worker of which nothing but its name is known."""
    key = WorkerId(order.job_id, order.worker)
    forget = Assignment(epoch, key, 1, order.generation, Phase.FORGET, DISMISSAL_GRACE_S)
    return codec.assignment_to_proto(forget)
