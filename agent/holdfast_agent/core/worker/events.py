"""The agent's events, in past tense: what happened on its host, and what the controller said."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._session.assignment import Assignment
from holdfast._session.reports import Exit, RankBinding, WorkerId
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.model.gpus import Blind, GpuUsage
from holdfast_agent.core.model.launch import Container, PreparedCode


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
    bindings: tuple[tuple[int, RankBinding], ...] = ()
    """Rank and what it was bound to."""


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
    binds: bool = True
    """Whether its shim binds ranks; one of an older release doesn't."""


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
    in_process: bool = False
    """It was a rank of the generation before, and went on in its process."""


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
    """The shim has prepared a warm start of the next generation, or says why not; ``parked`` processes wait for it.

    ``survivors`` are pids of ranks that have left the last generation and wait for the next one, too.
    """

    key: WorkerId
    parked: int
    message: str
    survivors: frozenset[int] = frozenset()


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
