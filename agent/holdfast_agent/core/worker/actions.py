"""The agent's actions, in the imperative: what its core has the shell do."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.assignment import Assignment, WarmStart
from holdfast._session.reports import Exit, ExitReason, ExitReport, WorkerId, WorkerReport
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.model.launch import Container, RankLaunch


@dataclass(frozen=True, slots=True)
class SendHello:
    """Introduce this host and every worker."""

    epoch: int
    reports: tuple[WorkerReport, ...]


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Leave this controller; dial again."""

    message: str


@dataclass(frozen=True, slots=True)
class SendReport:
    """Tell the controller where a worker stands."""

    report: WorkerReport


@dataclass(frozen=True, slots=True)
class SendExit:
    """Tell the controller how a rank ended."""

    report: ExitReport


@dataclass(frozen=True, slots=True)
class PersistEpoch:
    """Make the highest epoch seen durable, before anything of it is obeyed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class RememberAttempt:
    """Note that this generation and later ones belong to this attempt."""

    key: WorkerId
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RememberAck:
    """Note that this exit need not be sent again."""

    key: WorkerId
    generation: int
    rank: int


@dataclass(frozen=True, slots=True)
class ReadGpus:
    """Read memory and processes on the GPUs, after so many seconds. Answered by an event."""

    key: WorkerId
    generation: int
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RememberFreed:
    """Note that this generation's GPUs were proven free."""

    key: WorkerId
    generation: int


@dataclass(frozen=True, slots=True)
class RunEpilog:
    """Run the admin's command after a generation. Answered by an event."""

    key: WorkerId
    generation: int
    attempt: int
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RememberClosed:
    """Note that this generation's epilog has ended."""

    key: WorkerId
    generation: int


@dataclass(frozen=True, slots=True)
class RememberUnused:
    """Note how much memory each GPU holds that nothing uses: (UUID, bytes)."""

    used_bytes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Check, have a shim, bind ports: these where given, else free ones. Answered by an event."""

    assignment: Assignment
    ports: tuple[int, ...] = ()
    known_good: bool = False
    """The same program was checked for this worker before, so the checks may be skipped."""
    survivors: frozenset[int] = frozenset()
    """Pids that may hold its GPUs: they wait to go on as its ranks."""


@dataclass(frozen=True, slots=True)
class AbandonPreparation:
    """Cancel the fetching and installing for a generation. Answered as a preparation that fails."""

    key: WorkerId
    generation: int


@dataclass(frozen=True, slots=True)
class FreePorts:
    """The worker needs its ports no more."""

    key: WorkerId


@dataclass(frozen=True, slots=True)
class Peers:
    """The workers of a job that one of them exchanges leases with. ``others`` holds (worker index, host:port)."""

    index: int
    port: int
    secret: str = field(repr=False)
    others: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class LaunchRanks:
    """Give the ports to the ranks and have the shim start them."""

    key: WorkerId
    generation: int
    ranks: tuple[RankLaunch, ...] = field(repr=False)
    gpus: tuple[str, ...] = ()
    memory_mb: int = 0
    """Reserved for the worker; 0 when none is."""
    fence_s: float = 0.0
    fence_deadline_s: float = 0.0
    """Since boot; counts where ``fence_s`` does."""
    peers: Peers | None = None
    """Whose answers move the deadline on too; None: only the controller's do."""
    container: Container | None = None
    """In which the ranks run; None on the bare host."""
    user: WorkerUser | None = None
    """As whom, if not as this host's workers do by default."""
    warm: WarmStart | None = None
    """None: a cold start, and nothing is prepared for the next."""


@dataclass(frozen=True, slots=True)
class RenewFence:
    """Let the shim run this generation until ``deadline_s``, in seconds since boot."""

    key: WorkerId
    generation: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class SignalRanks:
    """Have the shim send its ranks a signal, which it does once in a generation's life."""

    key: WorkerId
    generation: int
    signal: int


@dataclass(frozen=True, slots=True)
class StopRanks:
    """Have the shim end this generation and older ones."""

    key: WorkerId
    generation: int
    grace_s: float
    reason: ExitReason
    another_follows: bool = False
    """What is prepared for a warm start of the next generation is kept."""
    hung_ranks: tuple[int, ...] = ()
    """These don't go on in it."""


@dataclass(frozen=True, slots=True)
class ClearOrphans:
    """The shim is gone: kill what it left and prove that nothing is left. Answered by an event."""

    key: WorkerId
    generation: int


@dataclass(frozen=True, slots=True)
class RecordExits:
    """Write exits that no shim has recorded, and the proof of emptiness, into the journal. Answered by events."""

    key: WorkerId
    generation: int
    exits: tuple[Exit, ...]
    launched: tuple[int, ...] = ()
    """Ranks of the intent, where the shim died before it could write one."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Let the shim go and remove the worker's files but the logs. Answered by an event."""

    key: WorkerId


@dataclass(frozen=True, slots=True)
class RemoveOutput:
    """Remove the output of a job that has no worker here any more. Answered by an event."""

    job: str


@dataclass(frozen=True, slots=True)
class SendOutputDeleted:
    """Tell the controller what became of a deleted job's output."""

    job: str
    problem: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write a log line about something refused or unusual."""

    event: str
    key: WorkerId | None
    message: str


@dataclass(frozen=True, slots=True)
class SendGoingDown:
    """Tell the controller that the host shuts down."""


Action = (
    SendHello
    | SendGoingDown
    | CloseSession
    | SendReport
    | SendExit
    | PersistEpoch
    | RememberAttempt
    | RememberAck
    | RememberFreed
    | RememberClosed
    | RememberUnused
    | ReadGpus
    | RunEpilog
    | Prepare
    | AbandonPreparation
    | FreePorts
    | LaunchRanks
    | RenewFence
    | SignalRanks
    | StopRanks
    | ClearOrphans
    | RecordExits
    | Forget
    | RemoveOutput
    | SendOutputDeleted
    | Note
)
