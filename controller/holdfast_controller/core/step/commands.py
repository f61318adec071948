"""Inputs of the reactor, each handled by one step: users' commands, agents' reports and the passing of time.

``token`` names the caller who waits for a reply. Identities were taken from certificates by the shell.
"""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import WorkerReport
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.exits import ExitsReported as ExitsReported
from holdfast_controller.core.model.hosts.host import Inventory, Maintenance
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import reservation_commands, schedule_commands, share_commands
from holdfast_controller.core.step.access_commands import AccessCommand as AccessCommand
from holdfast_controller.core.step.access_commands import AccountsAsked as AccountsAsked
from holdfast_controller.core.step.access_commands import EnrolAsked as EnrolAsked
from holdfast_controller.core.step.access_commands import HostRemovalAsked as HostRemovalAsked
from holdfast_controller.core.step.access_commands import MotdAsked as MotdAsked
from holdfast_controller.core.step.access_commands import RoleAsked as RoleAsked
from holdfast_controller.core.step.access_commands import SecretGiven as SecretGiven
from holdfast_controller.core.step.access_commands import SecretRemovalAsked as SecretRemovalAsked
from holdfast_controller.core.step.access_commands import SignInAllowanceAsked as SignInAllowanceAsked
from holdfast_controller.core.step.access_commands import SignInAsked as SignInAsked
from holdfast_controller.core.step.access_commands import TokenAsked as TokenAsked
from holdfast_controller.core.step.access_commands import UserRemovalAsked as UserRemovalAsked
from holdfast_controller.core.step.host_commands import AgentStopping as AgentStopping
from holdfast_controller.core.step.host_commands import ChecksReported as ChecksReported
from holdfast_controller.core.step.host_commands import FenceFailed as FenceFailed
from holdfast_controller.core.step.host_commands import HostCheckAsked as HostCheckAsked
from holdfast_controller.core.step.host_commands import Judged as Judged
from holdfast_controller.core.step.host_commands import ShutdownAnnounced as ShutdownAnnounced
from holdfast_controller.core.step.injection_commands import InjectionAsked as InjectionAsked
from holdfast_controller.core.step.injection_commands import InjectionFailed as InjectionFailed
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.step.time_commands import StoodStill as StoodStill
from holdfast_controller.core.step.time_commands import TimePassed as TimePassed


@dataclass(frozen=True)
class JobSubmission:
    """A user submits a job; the shell has generated its id."""

    token: int
    owner: str
    request_id: str
    job_id: str
    """The array's, where a job is made for each index of one."""
    plan: JobPlan
    unseen: frozenset[str] = frozenset()
    """Jobs that it would run after and that the user may not see: they are refused as if they weren't there."""


@dataclass(frozen=True)
class CancelAsked:
    """A user wants a job to end, or all elements of an array."""

    token: int
    by: str
    job_id: str


@dataclass(frozen=True)
class RestartAsked:
    """A user wants the gang relaunched in place."""

    token: int
    by: str
    job_id: str


@dataclass(frozen=True)
class PauseAsked:
    """A user wants the job to release its hosts and wait."""

    token: int
    by: str
    job_id: str


@dataclass(frozen=True)
class ResumeAsked:
    """A user wants a paused job to resume."""

    token: int
    by: str
    job_id: str


@dataclass(frozen=True)
class DeleteAsked:
    """A user wants a job deleted that has ended."""

    token: int
    by: str
    job_id: str


@dataclass(frozen=True)
class CordonAsked:
    """An admin wants a host to take no new work."""

    token: int
    by: str
    host: str
    reason: str


@dataclass(frozen=True)
class UncordonAsked:
    """An admin wants a host to take work again, or GPUs of it, named by index or UUID; or says that it is repaired."""

    token: int
    by: str
    host: str
    gpus: tuple[str, ...] = ()
    repaired: bool = False


@dataclass(frozen=True)
class DrainAsked:
    """An admin wants a host drained. Its work is moved after ``deadline_s``, or ends by itself where that is None."""

    token: int
    by: str
    host: str
    reason: str
    deadline_s: float | None = None
    at_checkpoint: bool = False


@dataclass(frozen=True)
class FenceAsked:
    """An admin vouches that no process of ours runs on a host any more."""

    token: int
    by: str
    host: str
    reason: str


@dataclass(frozen=True)
class MaintenanceAsked:
    """An admin plans a maintenance window of a host, which begins now if its ``start`` is NEVER."""

    token: int
    host: str
    maintenance: Maintenance


@dataclass(frozen=True)
class MaintenanceCancelled:
    """An admin cancels a planned maintenance, or ends one that has begun."""

    token: int
    by: str
    host: str


@dataclass(frozen=True)
class StopOrphansAsked:
    """An admin wants orphaned workers of a job stopped on a host."""

    token: int
    by: str
    host: str
    job: str


@dataclass(frozen=True)
class HostConnected:
    """An agent opened its session and said hello."""

    host: str
    session: int
    address: str
    boot_id: str
    agent_version: str
    inventory: Inventory
    places: tuple[WorkerReport, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HostTurnedAway:
    """An agent connected that this controller can't work with, because of its version or its epoch."""

    host: str
    agent_version: str
    problem: str


@dataclass(frozen=True)
class HostOverRate:
    """A host's messages of one kind exceed ``per_hour_bytes`` of stored bytes, and are held back."""

    host: str
    kind: str
    per_hour_bytes: int


@dataclass(frozen=True)
class HostDisconnected:
    """A host's session ended; the host may be alive."""

    host: str
    session: int


@dataclass(frozen=True)
class HostBeat:
    """A host's heartbeat, with its ``inventory`` where that has changed. ``sent_at`` is the host's clock."""

    host: str
    session: int
    inventory: Inventory | None = None
    sent_at: Wall = NEVER


@dataclass(frozen=True)
class WorkerReported:
    """An agent reports the state of one worker."""

    host: str
    session: int
    report: WorkerReport


@dataclass(frozen=True)
class FeaturesReported:
    """Progress features of a worker's ranks; ``sent_s`` and all times in them are on the agent's monotonic clock."""

    host: str
    session: int
    job_id: str
    generation: int
    sent_s: float
    features: WorkerFeatures


@dataclass(frozen=True)
class ArchiveReported:
    """Why a worker's output can't be copied to its job's base output directory; empty when it is there."""

    host: str
    session: int
    job_id: str
    worker: str
    problem: str


@dataclass(frozen=True)
class OutputGone:
    """A host has deleted what it had of a job; ``problem`` says why it can't."""

    host: str
    session: int
    job_id: str
    problem: str = ""


@dataclass(frozen=True)
class EvidenceArrived:
    """Evidence of a worker's hang was recorded, or ``problem`` says why not.

    ``content`` is stored as it is; so are ``samples``, those of the time before, and ``dumps`` of flight recorders.
    """

    host: str
    job_id: str
    generation: int
    worker: str
    dump: int
    evidence: Evidence | None = None
    content: bytes = b""
    problem: str = ""
    samples: bytes = b""
    dumps: bytes = b""


@dataclass(frozen=True)
class HoldAsked:
    """A user suspends action on hangs for so many seconds; 0 ends that."""

    token: int
    by: str
    job_id: str
    duration_s: float


Command = (
    JobSubmission
    | CancelAsked
    | RestartAsked
    | PauseAsked
    | ResumeAsked
    | DeleteAsked
    | CordonAsked
    | UncordonAsked
    | DrainAsked
    | FenceAsked
    | StopOrphansAsked
    | MaintenanceAsked
    | MaintenanceCancelled
    | HostCheckAsked
    | HoldAsked
    | InjectionAsked
    | InjectionFailed
)
"""What users and admins ask of the controller."""


@dataclass(frozen=True)
class Once:
    """A command with its caller's request id: repeating it acts once. ``digest`` is of the request's content."""

    by: str
    request_id: str
    digest: str
    command: Command


@dataclass(frozen=True)
class NotificationFailed:
    """A job's notification could not be delivered, and is not tried again."""

    job_id: str
    notice: str
    to: str
    reason: str


@dataclass(frozen=True)
class CertificateEnds:
    """A certificate (``own``, ``ca``, ``host/NAME``) ends soon, or has ended. ``ends_at`` is wall clock."""

    certificate: str
    ends_at: Wall


@dataclass(frozen=True)
class PoliciesChanged:
    """An admin has changed settings of the core. Leases stay as they were at the start: hosts count by them."""

    policies: Policies


Input = (
    Command
    | HostConnected
    | HostTurnedAway
    | HostOverRate
    | HostDisconnected
    | HostBeat
    | ShutdownAnnounced
    | AgentStopping
    | ChecksReported
    | Judged
    | FenceFailed
    | WorkerReported
    | ExitsReported
    | FeaturesReported
    | ArchiveReported
    | OutputGone
    | EvidenceArrived
    | Once
    | NotificationFailed
    | CertificateEnds
    | AccessCommand
    | share_commands.ShareCommand
    | reservation_commands.ReservationCommand
    | schedule_commands.ScheduleCommand
    | TimePassed
    | StoodStill
    | PoliciesChanged
)
