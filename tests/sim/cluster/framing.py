"""What is said in a session of the simulation: the cores' own values, and what the shells put around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast._session.reports import ExitReport, WorkerReport
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_agent.core.worker import actions as agent_act
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st

BEAT = "heartbeat"
BEAT_ACK = "heartbeat_ack"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a session."""

    address: str
    boot_id: str
    inventory: Inventory
    reports: tuple[WorkerReport, ...]
    epoch: int = 0
    """The newest that the agent has noted."""


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
class Exits:
    """Exits of a moment."""

    reports: tuple[ExitReport, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """Of the exits of a message."""

    sequences: tuple[int, ...]


LEVELS = ("rack",)


def labels_of(host: str) -> dict[str, str]:
    """Every other host is in one rack with it."""
    return {"rack": "ab"[int(host.removeprefix("host-")) % 2]}


def hello(host: str, session: int, message: Hello) -> st.HostConnected:
    """An agent introduces itself."""
    told = (message.address, message.boot_id, "1", message.inventory, message.reports)
    return st.HostConnected(host, session, *told, labels=labels_of(host))


def from_agent(host: str, session: int, message: Any) -> st.Input:
    """What a message of a session means to the controller."""
    match message:
        case agent_act.SendReport(report):
            return st.WorkerReported(host, session, report)
        case Exits(reports):
            return st.ExitsReported(host, session, reports)
        case Vector(job_id, generation, sent_s, features):
            return st.FeaturesReported(host, session, job_id, generation, sent_s, features)
        case _:
            assert message is BEAT
            return st.HostBeat(host, session)


def to_agent(action: act.Welcome | act.Assign | act.AckExits, epoch: int, leases: LeasePolicy) -> Any:
    """What an action of the controller is on the agent's side."""
    match action:
        case act.Welcome():
            return Welcome(epoch, leases.heartbeat_s)
        case act.Assign():
            return action.assignment
        case act.AckExits():
            return Ack(action.sequences)
