"""What the wire does to messages, without the wire: the agent core's values to the controller core's, and back.

``test_translate.py`` holds it against the real wire code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast._session.reports import WorkerReport
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_agent.core.model import model as agent
from holdfast_agent.core.worker import events as agent_ev
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.host import Inventory
from holdfast_controller.core.model.job import Rendezvous
from holdfast_controller.core.model.lease import LeasePolicy
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.assignment import Assignment, Phase

BEAT = "heartbeat"
BEAT_ACK = "heartbeat_ack"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a session."""

    address: str
    boot_id: str
    inventory: Inventory
    reports: tuple[WorkerReport, ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """How a worker's ranks move."""

    job_id: str
    generation: int
    sent_s: float
    features: WorkerFeatures


@dataclass(frozen=True, slots=True)
class Welcome:
    """The controller's first answer."""

    epoch: int
    heartbeat_s: float


@dataclass(frozen=True, slots=True)
class Ack:
    """Of an exit."""

    sequence: int


def hello(host: str, session: int, message: Hello) -> st.HostConnected:
    """An agent introduces itself."""
    return st.HostConnected(
        host, session, message.address, message.boot_id, "1", message.inventory, message.reports
    )


def from_agent(host: str, session: int, message: Any) -> st.Stimulus:
    """What a message of a session means to the controller."""
    match message:
        case agent_ev.SendReport(report):
            return st.WorkerReported(host, session, report)
        case agent_ev.SendExit(report):
            return st.ExitReported(host, session, report)
        case Vector(job_id, generation, sent_s, features):
            return st.FeaturesReported(host, session, job_id, generation, sent_s, features)
        case _:
            assert message is BEAT
            return st.HostBeat(host, session)


def to_agent(action: act.Welcome | act.Assign | act.AckExit, epoch: int, leases: LeasePolicy) -> Any:
    """What an action of the controller is on the agent's side."""
    match action:
        case act.Welcome():
            return Welcome(epoch, leases.heartbeat_s)
        case act.Assign():
            return assignment(action.assignment, leases.lease_s)
        case act.AckExit():
            return Ack(action.sequence)


def assignment(order: Assignment, lease_s: float) -> agent.Assignment:
    """A worker's desired state."""
    launch = _launch(order) if order.phase in (Phase.PREPARE, Phase.RUN) else None
    return agent.Assignment(
        epoch=order.epoch,
        key=agent.WorkerId(order.job_id, order.member.name),
        attempt=order.attempt,
        generation=order.generation,
        phase=agent.Phase[order.phase.name],
        grace_s=order.grace_s,
        stop_reason=agent.ExitReason[order.stop_reason.name],
        launch=launch,
        fence_s=lease_s if order.gang.replace_when_lost else 0.0,
        warn_signal=order.warn_signal,
    )


def _launch(order: Assignment) -> agent.Launch:
    pool = order.gang.pool_of(order.member)
    task = pool.task
    return agent.Launch(
        process=agent.Process(task.command, task.args, task.env, task.working_directory),
        first_rank=order.member.first_rank,
        processes=order.member.processes,
        world_size=order.gang.world_size,
        gpus=order.place.gpus,
        restart_count=order.restart_count,
        process_starts=order.process_starts,
        last_end=order.last_end,
        rendezvous=_rendezvous(order.gang, order.rendezvous) if order.rendezvous else None,
        pool=order.member.pool,
        replica=order.member.replica,
        worker_count=len(order.gang.members),
        worker_index=order.member.index,
        cpu_count=pool.cpus,
        job_spec_json=order.spec_json,
        step_pattern=order.gang.hang.step_pattern,
        memory_mb=pool.memory_mb,
    )


def _rendezvous(gang: Gang, found: Rendezvous) -> agent.Rendezvous:
    pools: list[list[str]] = [[] for _ in gang.pools]
    for member, address, port in zip(gang.members, found.addresses, found.ports, strict=True):
        pools[member.pool].append(f"{address}:{port}")
    return agent.Rendezvous(found.master_address, found.master_port, found.secret, tuple(map(tuple, pools)))
