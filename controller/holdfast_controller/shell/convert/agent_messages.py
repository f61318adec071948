"""Between the core and an agent: hellos, reports and exits in; welcomes and assignments out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime

from holdfast._session import codec
from holdfast._session.reports import ExitReason, ExitReport, WorkerReport
from holdfast.v1 import agent_pb2, host_pb2, job_pb2, spec_pb2
from holdfast_controller.core.model.gang import Gang, Task
from holdfast_controller.core.model.host import Gpu, Inventory
from holdfast_controller.core.model.job import Rendezvous
from holdfast_controller.core.step import commands
from holdfast_controller.core.step.actions import Dismiss
from holdfast_controller.core.step.assignment import Assignment, Phase
from holdfast_controller.shell.convert.host_claims import (
    check_hello,
    check_inventory,
    check_report,
    explained,
    last_lines,
)

KNOWN_GENERATIONS = 64
DISMISSAL_GRACE_S = 30.0
"""Between TERM and KILL where nobody knows what the job has asked for."""
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""A host whose clock is further off than any calendar must not make its jobs unprintable."""


_REASON_NUMBERS = {reason: job_pb2.ExitReason.Value(f"EXIT_REASON_{reason.name}") for reason in ExitReason}
_PHASE_NUMBERS = {phase: agent_pb2.AssignmentPhase.Value(f"ASSIGNMENT_PHASE_{phase.name}") for phase in Phase}


def hello(host: str, session: int, message: agent_pb2.Hello) -> commands.HostConnected:
    """What an agent introduces itself with. Raises ``InvalidInput`` for what is beyond all bounds."""
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
    """What a host has. Raises ``InvalidInput`` as ``hello`` does."""
    check_inventory(message)
    gpus = tuple(Gpu(g.uuid, g.index, g.model, g.memory_bytes, explained(g.problem)) for g in message.gpus)
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


def assignment(order: Assignment, lease_s: float) -> agent_pb2.Assignment:
    """A worker's desired state. A job that is replaced when its host is lost has its work there end by itself."""
    message = agent_pb2.Assignment(
        epoch=order.epoch,
        job_id=order.job_id,
        attempt=order.attempt,
        generation=order.generation,
        worker=order.member.name,
        phase=_PHASE_NUMBERS[order.phase],
        grace_period=codec.duration(order.grace_s),
        stop_reason=_REASON_NUMBERS[order.stop_reason],
        warn_signal=order.warn_signal,
    )
    if order.gang.replace_when_lost:
        message.fence.CopyFrom(codec.duration(lease_s))
    if order.phase in (Phase.PREPARE, Phase.RUN):
        message.launch.CopyFrom(_launch(order))
    return message


def dismissal(order: Dismiss, epoch: int) -> agent_pb2.Assignment:
    """The order to stop and forget a worker of which nothing but its name is known."""
    return agent_pb2.Assignment(
        epoch=epoch,
        job_id=order.job_id,
        attempt=1,
        generation=order.generation,
        worker=order.worker,
        phase=agent_pb2.ASSIGNMENT_PHASE_FORGET,
        grace_period=codec.duration(DISMISSAL_GRACE_S),
        stop_reason=job_pb2.EXIT_REASON_STOPPED,
    )


def _launch(order: Assignment) -> agent_pb2.Launch:
    pool = order.gang.pool_of(order.member)
    task = pool.task
    message = agent_pb2.Launch(
        process=_process(task),
        first_rank=order.member.first_rank,
        processes=order.member.processes,
        world_size=order.gang.world_size,
        gpus=order.place.gpus,
        restart_count=order.restart_count,
        process_starts=order.process_starts,
        last_end=order.last_end,
        pool=order.member.pool,
        replica=order.member.replica,
        worker_count=len(order.gang.members),
        worker_index=order.member.index,
        cpu_count=pool.cpus,
        job_spec_json=order.spec_json,
        step_pattern=order.gang.hang.step_pattern,
        memory_mb=pool.memory_mb,
        image_uri=task.image,
        run_as=task.account,
    )
    if order.rendezvous is not None:
        message.rendezvous.CopyFrom(_rendezvous(order.gang, order.rendezvous))
    return message


def _process(task: Task) -> spec_pb2.ProcessSpec:
    message = spec_pb2.ProcessSpec(
        command=task.command,
        args=task.args,
        env=[spec_pb2.EnvVar(name=name, value=value) for name, value in task.env],
        working_directory=task.working_directory,
        secret_env=[spec_pb2.SecretEnvVar(name=s.name, secret=s.secret, file=s.file) for s in task.secrets],
    )
    if (code := task.code) is not None:
        message.packaged_code.CopyFrom(
            spec_pb2.PackagedCode(bundle=code.bundle, requirements=code.requirements, packages=code.packages)
        )
    return message


_newest: OrderedDict[int, tuple[Rendezvous, agent_pb2.Rendezvous]] = OrderedDict()


def _rendezvous(gang: Gang, found: Rendezvous) -> agent_pb2.Rendezvous:
    """Of a generation, which is told to all its workers at about the same time: made once. Not to be changed."""
    known = _newest.get(id(found))
    if known is None or known[0] is not found:
        known = _newest[id(found)] = found, _new_rendezvous(gang, found)
        if len(_newest) > KNOWN_GENERATIONS:
            _newest.popitem(last=False)
    return known[1]


def _new_rendezvous(gang: Gang, found: Rendezvous) -> agent_pb2.Rendezvous:
    pools = [agent_pb2.PoolAddresses() for _ in gang.pools]
    for member, address, port in zip(gang.members, found.addresses, found.ports, strict=True):
        pools[member.pool].addresses.append(f"{address}:{port}")
    return agent_pb2.Rendezvous(
        master_address=found.master_address, master_port=found.master_port, secret=found.secret, pools=pools
    )
