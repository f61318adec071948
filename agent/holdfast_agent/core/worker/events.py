"""The agent's events (past tense) and its actions (imperative).

Longer than 400 lines because it is one list.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._session.assignment import Assignment, WarmStart
from holdfast._session.reports import Exit, ExitReason, ExitReport, WorkerId, WorkerReport
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.model.gpus import Blind, GpuUsage
from holdfast_agent.core.model.model import Container, PreparedCode, RankLaunch


@dataclass(frozen=True, slots=True)
class Journal:
    """The records of one generation's journal; ``launched`` ranks are those of the intent."""

    generation: int
    launched: tuple[int, ...]
    started: tuple[tuple[int, int], ...] = ()
    """(rank, pid)."""
    exits: tuple[Exit, ...] = ()
    stopping: bool = False
    empty: bool = False
    other_boot: bool = False
    """The machine has booted since."""
    wrote_output: bool = False
    """A rank has left output, so it ran, whatever the records say."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the devices that the ranks were given."""
    forked: bool = False
    """Ranks were about to be forked, so some may have run; shims of release 0.1 don't say."""


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerFound:
    """The agent, at its start, found the files of a worker of an earlier run."""

    key: WorkerId
    attempts: tuple[tuple[int, int], ...]
    """(first generation, attempt)."""
    journals: tuple[Journal, ...]
    """By generation, the oldest first."""
    acked: frozenset[tuple[int, int]]
    """(generation, rank)."""
    shim_pid: int
    """0 where the shim is gone."""
    freed: int = 0
    """The newest generation whose GPUs were proven free."""
    closed: int = 0
    """The newest generation whose epilog has ended."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """A stream to the controller is open; it waits for our hello."""


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The controller answered the hello. ``tell_all``: it may have lost what it has acknowledged."""

    epoch: int
    tell_all: bool = False


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream is gone, and with it whatever was not acknowledged."""


@dataclass(frozen=True, slots=True)
class ControllerHeard:
    """The controller answered a message sent at ``sent_s``: seconds since boot, suspended time included."""

    sent_s: float


@dataclass(frozen=True, slots=True)
class Assigned:
    """The controller wants something of a worker."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ExitAcked:
    """An exit is durable in the controller."""

    sequence: int


@dataclass(frozen=True, slots=True)
class WorkerPrepared:
    """Checks passed, ports bound, a shim is there."""

    key: WorkerId
    generation: int
    port: int
    master_port: int
    shim_pid: int
    container: Container | None = None
    code: PreparedCode | None = None
    user: WorkerUser | None = None
    """The account that the job names, as this host knows it; None where it names none."""


@dataclass(frozen=True, slots=True)
class PreparationTakesLong:
    """A preparation reports a long step, such as "installing requirements"."""

    key: WorkerId
    generation: int
    doing: str


@dataclass(frozen=True, slots=True)
class PreparationFailed:
    """A preparation failed; ``message`` says why, naming the host."""

    key: WorkerId
    generation: int
    message: str
    host_fault: bool = False
    """The host failed its checks; the program may be all right."""


@dataclass(frozen=True, slots=True)
class RankStarted:
    """The shim forked a rank."""

    key: WorkerId
    generation: int
    rank: int
    pid: int
    warm: bool = False
    """It was waiting with its imports done."""


@dataclass(frozen=True, slots=True)
class RankExited:
    """A rank ended, and the record of its end is durable on this host."""

    key: WorkerId
    exit: Exit


@dataclass(frozen=True, slots=True)
class WorkerEmptied:
    """Proven: no process of this generation, or an older one, is left."""

    key: WorkerId
    generation: int


@dataclass(frozen=True, slots=True)
class GpusRead:
    """Memory and processes on the host's GPUs were read; with a key it answers ``ReadGpus``."""

    usage: tuple[GpuUsage, ...] | Blind
    key: WorkerId | None = None
    generation: int = 0
    foreign: frozenset[int] = frozenset()
    """Pids that can't be the worker's, such as those of processes that are older than its shim."""


@dataclass(frozen=True, slots=True)
class WorkerStuck:
    """Processes of the worker outlive KILL."""

    key: WorkerId
    generation: int
    message: str


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """The shim did not launch, or was not asked to."""

    key: WorkerId
    generation: int
    message: str
    host_fault: bool = False


@dataclass(frozen=True, slots=True)
class PeersSilent:
    """The shim hears nothing more of these workers of its job: (worker index, generation) of all of them."""

    key: WorkerId
    silent: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WarmStartNoted:
    """The shim has prepared a warm start of the next generation, or says why not; ``parked`` processes wait for it."""

    key: WorkerId
    parked: int
    message: str


@dataclass(frozen=True, slots=True)
class EpilogEnded:
    """The admin's command after a generation has ended; ``problem`` says how it failed, naming the host."""

    key: WorkerId
    generation: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShimGreeted:
    """A shim is connected, maybe again: what was said to it before may be lost. A replay of its records follows."""

    key: WorkerId
    shim_pid: int
    generation: int
    live: bool
    """Whether this generation has, or may have, processes."""


@dataclass(frozen=True, slots=True)
class ShimLost:
    """The shim's process is gone."""

    key: WorkerId


@dataclass(frozen=True, slots=True)
class OrphansCleared:
    """Proven after a shim's death: nothing of the worker is left. ``journal`` is None where it never launched."""

    key: WorkerId
    generation: int
    journal: Journal | None
    found: int
    """Processes that had to be killed."""


@dataclass(frozen=True, slots=True)
class WorkerForgotten:
    """The worker's files, except its logs, are gone."""

    key: WorkerId


@dataclass(frozen=True, slots=True)
class OutputUnwanted:
    """The controller wants everything deleted that is here of a job, which was deleted."""

    job: str


@dataclass(frozen=True, slots=True)
class OutputRemoved:
    """A deleted job's output is gone; ``problem`` says why it is not."""

    job: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShutdownAhead:
    """The host has begun to shut down: ranks that are to be warned get their notice."""


@dataclass(frozen=True, slots=True)
class ShutdownBegan:
    """The host shuts down, and any notice is over: whatever runs is stopped."""


Event = (
    WorkerFound
    | Dialled
    | Welcomed
    | Disconnected
    | ControllerHeard
    | Assigned
    | ExitAcked
    | WorkerPrepared
    | PreparationTakesLong
    | PreparationFailed
    | RankStarted
    | RankExited
    | WorkerEmptied
    | GpusRead
    | WorkerStuck
    | PeersSilent
    | WarmStartNoted
    | LaunchRefused
    | EpilogEnded
    | ShimGreeted
    | ShimLost
    | OrphansCleared
    | WorkerForgotten
    | OutputUnwanted
    | OutputRemoved
    | ShutdownAhead
    | ShutdownBegan
)


# --- actions ---------------------------------------------------------------------------------------------


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
