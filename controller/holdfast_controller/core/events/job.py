"""The event log: what happened, in past tense, frozen. Each names its job or host, or is the cluster's own.

``at`` is wall-clock seconds.

A type's name and fields are durable: change one only by a new version (see ``shell/store/codec``).

Longer than 400 lines because the log is one list, whose union says what there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.events.access import AccountsMapped as AccountsMapped
from holdfast_controller.core.events.access import MotdSet as MotdSet
from holdfast_controller.core.events.access import PeopleEvent as PeopleEvent
from holdfast_controller.core.events.access import RoleGranted as RoleGranted
from holdfast_controller.core.events.access import RoleTaken as RoleTaken
from holdfast_controller.core.events.access import SecretRemoved as SecretRemoved
from holdfast_controller.core.events.access import SecretSet as SecretSet
from holdfast_controller.core.events.access import SignInAllowed as SignInAllowed
from holdfast_controller.core.events.access import SignInEnded as SignInEnded
from holdfast_controller.core.events.access import TokenMade as TokenMade
from holdfast_controller.core.events.access import TokenUsed as TokenUsed
from holdfast_controller.core.events.access import UserRemoved as UserRemoved
from holdfast_controller.core.events.access import UserSignedIn as UserSignedIn
from holdfast_controller.core.events.cluster import CertificateEnding as CertificateEnding
from holdfast_controller.core.events.cluster import ClusterNews as ClusterNews
from holdfast_controller.core.events.cluster import ControllerCheckFailed as ControllerCheckFailed
from holdfast_controller.core.events.cluster import ControllerCheckPassed as ControllerCheckPassed
from holdfast_controller.core.events.cluster import MostHostsSilent as MostHostsSilent
from holdfast_controller.core.events.hang import HangDiagnosed as HangDiagnosed
from holdfast_controller.core.events.hang import HangJudged as HangJudged
from holdfast_controller.core.events.hang import HangNoticed as HangNoticed
from holdfast_controller.core.events.hang import HangOver as HangOver
from holdfast_controller.core.events.hang import HangStuck as HangStuck
from holdfast_controller.core.events.hang import JobHeld as JobHeld
from holdfast_controller.core.events.host import AgentStopped as AgentStopped
from holdfast_controller.core.events.host import GpuCleared as GpuCleared
from holdfast_controller.core.events.host import GpuCondemned as GpuCondemned
from holdfast_controller.core.events.host import HostCheckFailed as HostCheckFailed
from holdfast_controller.core.events.host import HostCheckPassed as HostCheckPassed
from holdfast_controller.core.events.host import HostCordoned as HostCordoned
from holdfast_controller.core.events.host import HostDrained as HostDrained
from holdfast_controller.core.events.host import HostDraining as HostDraining
from holdfast_controller.core.events.host import HostEvent as HostEvent
from holdfast_controller.core.events.host import HostFenced as HostFenced
from holdfast_controller.core.events.host import HostJoined as HostJoined
from holdfast_controller.core.events.host import HostLost as HostLost
from holdfast_controller.core.events.host import HostPlaceFreed as HostPlaceFreed
from holdfast_controller.core.events.host import HostRefused as HostRefused
from holdfast_controller.core.events.host import HostRemoved as HostRemoved
from holdfast_controller.core.events.host import HostReturned as HostReturned
from holdfast_controller.core.events.host import HostShutdownBegan as HostShutdownBegan
from holdfast_controller.core.events.host import HostThrottled as HostThrottled
from holdfast_controller.core.events.host import HostUncordoned as HostUncordoned
from holdfast_controller.core.events.host import MaintenanceBegan as MaintenanceBegan
from holdfast_controller.core.events.host import MaintenanceEnded as MaintenanceEnded
from holdfast_controller.core.events.host import MaintenancePlanned as MaintenancePlanned
from holdfast_controller.core.events.injection import FaultInjected as FaultInjected
from holdfast_controller.core.events.injection import FaultNotInjected as FaultNotInjected
from holdfast_controller.core.events.restore import ClusterReconciliation as ClusterReconciliation
from holdfast_controller.core.events.restore import ClusterRestored as ClusterRestored
from holdfast_controller.core.events.restore import JobCleared as JobCleared
from holdfast_controller.core.events.restore import JobFound as JobFound
from holdfast_controller.core.events.restore import JobUnsure as JobUnsure
from holdfast_controller.core.events.restore import OrphanEvent as OrphanEvent
from holdfast_controller.core.events.restore import OrphanExited as OrphanExited
from holdfast_controller.core.events.restore import OrphanFound as OrphanFound
from holdfast_controller.core.events.restore import OrphanGone as OrphanGone
from holdfast_controller.core.events.restore import OrphanStopRequested as OrphanStopRequested
from holdfast_controller.core.events.restore import ReconciliationEnded as ReconciliationEnded
from holdfast_controller.core.events.shares import HalfLifeSet as HalfLifeSet
from holdfast_controller.core.events.shares import ShareSet as ShareSet
from holdfast_controller.core.events.underuse import UnderuseNoticed as UnderuseNoticed
from holdfast_controller.core.events.underuse import UnderuseOver as UnderuseOver
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.goodput import Progress
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import Budget, EndReason, Recover, Related
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.core.model.subscription import Notice


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure as budgets count it: its kind, whether the host may be at fault, and the progress before it.

    ``key`` tells whether it is the same again (see ``is_same``); empty where nothing failed, as in a drain, and for a
    hang. ``host`` is empty unless the host may be at fault.
    """

    key: str = ""
    budget: Budget = Budget.NONE
    host: str = ""
    progressed: bool = False
    step: float | None = None
    """Highest known step."""
    checkpoint: bool = False
    """A checkpoint was seen in this generation."""
    early: bool = False
    """The generation ended within minutes, and nothing was seen of it that is progress."""


@dataclass(frozen=True, kw_only=True)
class JobSubmitted:
    """A user submitted a job."""

    job_id: str
    at: Wall
    owner: str
    request_id: str
    display_name: str
    labels: dict[str, str]
    gang: Gang
    spec_json: str
    annotations: dict[str, str] = field(default_factory=dict)
    kms_key: str = ""
    """Of ``encryptionSpec``; kept, and never used."""


@dataclass(frozen=True, kw_only=True)
class JobQueued:
    """A job waits in the queue: a new one that could not be placed at once, or one that waits for another thing now.

    ``for_quota``: its project's quota keeps it from starting, and ``maxWaitDuration`` doesn't run meanwhile.
    """

    job_id: str
    at: Wall
    reason: str
    for_quota: bool = False


@dataclass(frozen=True, kw_only=True)
class DependencyEnded:
    """A job ``on`` whose end another one waits for has ended, in that way (``met``) or in another."""

    job_id: str
    at: Wall
    on: str
    state: JobState
    met: bool


@dataclass(frozen=True, kw_only=True)
class TurnCame:
    """An element of an array may wait for hosts now: its array has room for one more."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class PlacementTried:
    """A job that doesn't wait fitted nowhere, the ``number``-th time; the next try is at ``not_before``."""

    job_id: str
    at: Wall
    number: int
    reason: str
    not_before: Wall
    """Wall clock."""


@dataclass(frozen=True, kw_only=True)
class JobPlaced:
    """A job was placed: every worker has its host; ``places`` are in gang order."""

    job_id: str
    at: Wall
    attempt: int
    generation: int
    places: tuple[Place, ...]
    loan_of: str = ""
    """It started out of turn: the first job that waits ahead of it, and may take the GPUs back."""
    ahead_of: str = ""
    """It started out of turn for good: the first job that waits ahead of it, and is not expected to start later."""


@dataclass(frozen=True, kw_only=True)
class PreparationNoted:
    """A host prepares a worker and is the first of the gang's hosts to begin a slow part of it."""

    job_id: str
    at: Wall
    worker: str
    host: str
    doing: str
    """The slow part, such as "installing requirements"."""


@dataclass(frozen=True, kw_only=True)
class GangLaunched:
    """A generation was launched: all workers were prepared, and from this commit on ranks may start."""

    job_id: str
    at: Wall
    generation: int
    rendezvous: Rendezvous


@dataclass(frozen=True, kw_only=True)
class GangStarted:
    """Every rank of a generation was started."""

    job_id: str
    at: Wall
    generation: int
    started: dict[int, Started]


@dataclass(frozen=True, kw_only=True)
class RankExited:
    """A rank exited: its terminal record in its generation."""

    job_id: str
    at: Wall
    worker: str
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class LateExitFound:
    """An exit was reported of a rank whose terminal record was already written."""

    job_id: str
    at: Wall
    worker: str
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class RestartDecided:
    """The gang restarts in place as ``generation``. ``charged`` is the worker whose budget is charged."""

    job_id: str
    at: Wall
    generation: int
    end_reason: EndReason
    related: Related
    stop_reason: ExitReason
    failed_at: Wall
    charged: int | None = None
    port_retry: bool = False
    hang_restarts: int | None = None
    """With a hang: restarts upon hangs in a row, this one included."""
    hang_step: float | None = None
    detect_s: float | None = None
    diagnose_s: float = 0.0
    failure: Failure | None = None
    not_before: Wall | None = None
    """Wall clock before which the next generation isn't launched."""
    worker: int | None = None
    """The worker that is relaunched alone; None: all are."""


@dataclass(frozen=True, kw_only=True)
class WorkerLaunched:
    """The deferred relaunch of one worker may begin."""

    job_id: str
    at: Wall
    worker: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class WorkerStarted:
    """The ranks of a worker that was relaunched alone were started."""

    job_id: str
    at: Wall
    worker: str
    generation: int
    started: Started


@dataclass(frozen=True, kw_only=True)
class AttemptEnded:
    """An attempt is being ended: its workers are stopped, and the job is placed again, or pauses.

    ``keep`` names workers whose places are reserved for the next attempt, ``avoid`` the hosts to leave out if
    others are free. ``recover`` is None where no recovery follows (a pause).
    """

    job_id: str
    at: Wall
    leaving: Leaving
    end_reason: EndReason
    related: Related = field(default_factory=Related)
    failed_at: Wall = NEVER
    recover: Recover | None = None
    budget: Budget = Budget.NONE
    keep: tuple[int, ...] = ()
    avoid: tuple[str, ...] = ()
    stop_reason: ExitReason = ExitReason.STOPPED
    failure: Failure | None = None
    not_before: Wall | None = None
    hang_restarts: int | None = None
    hang_step: float | None = None
    detect_s: float | None = None
    diagnose_s: float = 0.0
    no_claim_before: Wall | None = None
    """Until then it starts only in turn and on free hosts: it gave way, or crashed soon after its start."""


@dataclass(frozen=True, kw_only=True)
class PauseRequested:
    """A user paused a job: it releases its hosts and waits. Its ranks have until ``due`` (wall clock)."""

    job_id: str
    at: Wall
    by: str
    due: Wall | None = None


@dataclass(frozen=True, kw_only=True)
class JobWarned:
    """The ranks of a generation get the job's warning signal, ahead of ``until`` (wall clock).

    ``leaving``: the job leaves its hosts then, for that reason.
    """

    job_id: str
    at: Wall
    generation: int
    signal: int
    until: Wall
    why: str
    leaving: EndReason | None = None
    related: Related = field(default_factory=Related)


@dataclass(frozen=True, kw_only=True)
class JobPaused:
    """A job is paused: no worker of it is left, and it holds nothing until it is resumed."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class JobResumed:
    """A paused job was resumed: it waits for hosts again."""

    job_id: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class JobDeleted:
    """A job that has ended was removed from all lists and answers, by a user or because it was kept long enough."""

    job_id: str
    at: Wall
    by: str
    with_output: bool = False
    """Its output on hosts is deleted too. Release 0.1 left it there."""
    why: str = ""
    """Why it was not kept any longer, where no user deleted it."""


@dataclass(frozen=True, kw_only=True)
class OutputDeleted:
    """A host has deleted what it had of a deleted job, or was removed itself."""

    job_id: str
    at: Wall
    host: str


@dataclass(frozen=True, kw_only=True)
class JobPurged:
    """Nothing of a deleted job is left on any host: all that is kept of it is that its id is taken."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class CauseFound:
    """Another rank turned out to have failed first, once all exits of the old generation were known."""

    job_id: str
    at: Wall
    generation: int
    """The generation that the recovery launches."""
    end_reason: EndReason
    related: Related
    failed_at: Wall
    charged: int | None = None
    key: str = ""
    """That of ``Failure``."""


@dataclass(frozen=True, kw_only=True)
class CaughtUp:
    """A generation reached the step at which the job was before its last recovery."""

    job_id: str
    at: Wall
    generation: int
    step: float


@dataclass(frozen=True, kw_only=True)
class WorldApart:
    """A worker's processes form a world of their own; the first worker of its generation of which that was seen."""

    job_id: str
    at: Wall
    generation: int
    worker: str
    processes: int
    """Ranks of that world."""


@dataclass(frozen=True, kw_only=True)
class PrimaryCompleted:
    """The primary worker completed; the others are stopped, after the end grace if there is one."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class CancelRequested:
    """A user cancelled a job."""

    job_id: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class JobEnding:
    """A job's end was decided; ranks that still run are stopped."""

    job_id: str
    at: Wall
    outcome: JobState
    error: JobError | None = None
    stop_reason: ExitReason = ExitReason.STOPPED


@dataclass(frozen=True, kw_only=True)
class OutputArchived:
    """A worker's output was copied to the base output directory, or ``problem`` says why it can't be."""

    job_id: str
    at: Wall
    worker: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class WorkerEmptied:
    """A worker is proven gone from its host, and nothing more of it will be started there."""

    job_id: str
    at: Wall
    worker: str


@dataclass(frozen=True, kw_only=True)
class WorkerFenced:
    """A worker was fenced: its shim's deadline or an admin assures that it is gone, though its host can't report it.

    Its share stays quarantined until the host proves it empty, unless an admin vouches for it.
    """

    job_id: str
    at: Wall
    worker: str
    vouched: bool = False


@dataclass(frozen=True, kw_only=True)
class JobEnded:
    """A job reached its final state. ``error`` replaces the one of ``JobEnding``, if there is one."""

    job_id: str
    at: Wall
    state: JobState
    error: JobError | None = None


@dataclass(frozen=True, kw_only=True)
class MaintenanceAhead:
    """Maintenance was planned for a host that the job runs on, from ``start`` on (wall clock)."""

    job_id: str
    at: Wall
    host: str
    start: Wall
    reason: str


@dataclass(frozen=True, kw_only=True)
class NotificationGivenUp:
    """A notification of kind ``notice`` could not be delivered to ``to``."""

    job_id: str
    at: Wall
    notice: Notice
    to: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CommonCauseNoticed:
    """Several jobs, or several hosts of one job, hang for a common cause. An event of the cluster."""

    at: Wall
    sentence: str
    jobs: tuple[str, ...]
    mount: str = ""
    """The storage that they wait for, if it is that."""
    hosts: tuple[str, ...] = ()
    """Those that wait for it, else those that all of the jobs share."""


@dataclass(frozen=True, kw_only=True)
class ProgressRecorded:
    """The progress of a generation, as its agents reported it until the decision that ends it."""

    job_id: str
    at: Wall
    generation: int
    progress: Progress


JobEvent = (
    JobSubmitted
    | JobQueued
    | DependencyEnded
    | TurnCame
    | PlacementTried
    | JobPlaced
    | PreparationNoted
    | GangLaunched
    | GangStarted
    | RankExited
    | LateExitFound
    | RestartDecided
    | WorkerLaunched
    | WorkerStarted
    | AttemptEnded
    | PauseRequested
    | JobWarned
    | JobPaused
    | JobResumed
    | JobDeleted
    | OutputDeleted
    | JobPurged
    | CauseFound
    | HangNoticed
    | HangDiagnosed
    | HangJudged
    | HangStuck
    | HangOver
    | JobHeld
    | FaultInjected
    | FaultNotInjected
    | CaughtUp
    | ProgressRecorded
    | WorldApart
    | PrimaryCompleted
    | CancelRequested
    | JobEnding
    | OutputArchived
    | WorkerEmptied
    | WorkerFenced
    | JobEnded
    | MaintenanceAhead
    | UnderuseNoticed
    | UnderuseOver
    | NotificationGivenUp
    | JobFound
    | JobUnsure
    | JobCleared
)
ClusterEvent = (
    CommonCauseNoticed
    | ClusterRestored
    | ReconciliationEnded
    | CertificateEnding
    | MostHostsSilent
    | ControllerCheckFailed
    | ControllerCheckPassed
    | ShareSet
    | HalfLifeSet
)
Event = JobEvent | HostEvent | OrphanEvent | PeopleEvent | ClusterEvent
