"""What reaches the controller from outside, in past tense, frozen. Each is answered by one ``Reactor.step``.

``token`` names the caller who waits for a reply. Identities were taken from certificates by the shell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._session.reports import WorkerReport
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.exits import ExitReported as ExitReported
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.host import Inventory
from holdfast_controller.core.step.access_commands import AccountsAsked as AccountsAsked
from holdfast_controller.core.step.access_commands import EnrolAsked as EnrolAsked
from holdfast_controller.core.step.access_commands import HostRemovalAsked as HostRemovalAsked
from holdfast_controller.core.step.access_commands import PeopleStimulus as PeopleStimulus
from holdfast_controller.core.step.access_commands import RoleAsked as RoleAsked
from holdfast_controller.core.step.access_commands import SecretGiven as SecretGiven
from holdfast_controller.core.step.access_commands import SecretRemovalAsked as SecretRemovalAsked
from holdfast_controller.core.step.access_commands import TokenAsked as TokenAsked
from holdfast_controller.core.step.access_commands import UserRemovalAsked as UserRemovalAsked


@dataclass(frozen=True)
class JobSubmission:
    """A user hands in a job under an id that the shell has drawn."""

    token: int
    owner: str
    request_id: str
    job_id: str
    display_name: str
    labels: dict[str, str]
    gang: Gang
    spec_json: str
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CancelAsked:
    """A user wants a job to end."""

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
    """A user wants the job to give its hosts up and wait."""

    token: int
    by: str
    job_id: str


@dataclass(frozen=True)
class ResumeAsked:
    """A user wants a paused job to go on."""

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
    """An admin wants a host to take work again."""

    token: int
    by: str
    host: str


@dataclass(frozen=True)
class DrainAsked:
    """An admin wants a host's work to end or to move off. ``deadline_s`` from now; None: it may end by itself."""

    token: int
    by: str
    host: str
    reason: str
    deadline_s: float | None = None
    at_checkpoint: bool = False


@dataclass(frozen=True)
class FenceAsked:
    """An admin vouches that nothing runs on a host any more."""

    token: int
    by: str
    host: str
    reason: str


@dataclass(frozen=True)
class MaintenanceAsked:
    """An admin plans a time in which a host takes no work. Wall clock; without ``start`` it begins now."""

    token: int
    by: str
    host: str
    reason: str
    start: Wall | None
    end: Wall | None
    drain: bool
    deadline_s: float | None = None
    at_checkpoint: bool = False


@dataclass(frozen=True)
class MaintenanceCancelled:
    """An admin calls a host's maintenance off, or ends it."""

    token: int
    by: str
    host: str


@dataclass(frozen=True)
class DismissAsked:
    """An admin wants work stopped, of a job that the restored log doesn't know."""

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
    """An agent called that this controller can't work with."""

    host: str
    agent_version: str
    problem: str


@dataclass(frozen=True)
class HostDisconnected:
    """A session is over. Its host may be alive."""

    host: str
    session: int


@dataclass(frozen=True)
class HostBeat:
    """A heartbeat; ``inventory`` when it has changed."""

    host: str
    session: int
    inventory: Inventory | None = None


@dataclass(frozen=True)
class WorkerReported:
    """An agent reports a place."""

    host: str
    session: int
    report: WorkerReport


@dataclass(frozen=True)
class FeaturesReported:
    """How a worker's ranks move; ``sent_s`` is the agent's monotonic clock, on which the vector's times are."""

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
class EvidenceArrived:
    """A worker's ranks were dumped, twice; or ``problem`` says why not. ``content`` is what is kept."""

    host: str
    job_id: str
    generation: int
    worker: str
    dump: int
    evidence: Evidence | None = None
    content: bytes = b""
    problem: str = ""


@dataclass(frozen=True)
class HoldAsked:
    """A user suspends action on hangs for so many seconds; 0 ends that."""

    token: int
    by: str
    job_id: str
    duration_s: float


Asked = (
    JobSubmission
    | CancelAsked
    | RestartAsked
    | PauseAsked
    | ResumeAsked
    | CordonAsked
    | UncordonAsked
    | DrainAsked
    | FenceAsked
    | DismissAsked
    | MaintenanceAsked
    | MaintenanceCancelled
    | HoldAsked
)
"""What users ask for."""


@dataclass(frozen=True)
class Once:
    """A wish that came with a request id of its caller's; ``digest`` tells one content from another."""

    wish_by: str
    request_id: str
    digest: str
    wish: Asked


@dataclass(frozen=True)
class NotificationFailed:
    """Somebody who was to be told of a job could not be reached, and is not tried again."""

    job_id: str
    notice: str
    to: str
    reason: str


@dataclass(frozen=True)
class TimePassed:
    """A timer that the reactor asked for is due."""


@dataclass(frozen=True)
class ShutdownAnnounced:
    """A host's agent says that the host shuts down."""

    host: str
    session: int


Stimulus = (
    JobSubmission
    | CancelAsked
    | RestartAsked
    | PauseAsked
    | ResumeAsked
    | CordonAsked
    | UncordonAsked
    | DrainAsked
    | FenceAsked
    | DismissAsked
    | MaintenanceAsked
    | MaintenanceCancelled
    | HostConnected
    | HostTurnedAway
    | HostDisconnected
    | HostBeat
    | ShutdownAnnounced
    | WorkerReported
    | ExitReported
    | FeaturesReported
    | ArchiveReported
    | EvidenceArrived
    | HoldAsked
    | Once
    | NotificationFailed
    | PeopleStimulus
    | TimePassed
)
