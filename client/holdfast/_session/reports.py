"""Reports of an agent on its workers: frozen values that both daemons and the simulation use as they are.

``codec`` carries them over the wire.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from holdfast._base.dataclass import dataclass


class WorkerId(NamedTuple):
    """One worker of one job; ``worker`` is its name, such as ``workerpool0-0``."""

    job: str
    worker: str

    def __str__(self) -> str:
        return f"{self.job}/{self.worker}"


class ExitReason(enum.Enum):
    """Why a rank is no longer running."""

    COMPLETED = "COMPLETED"
    NONZERO_EXIT = "NONZERO_EXIT"
    SIGNALED = "SIGNALED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CANNOT_START = "CANNOT_START"
    STOPPED = "STOPPED"
    HANG_KILLED = "HANG_KILLED"
    LOST_SHIM_DIED = "LOST_SHIM_DIED"
    LOST_REBOOT = "LOST_REBOOT"
    LOST_HOST = "LOST_HOST"
    NOT_STARTED = "NOT_STARTED"
    LOST_RECORD = "LOST_RECORD"
    """A controller whose disk is lost knew how it ended."""


ENDED_BY_THEMSELVES = frozenset(
    {ExitReason.COMPLETED, ExitReason.NONZERO_EXIT, ExitReason.SIGNALED, ExitReason.OUT_OF_MEMORY}
)
"""Reasons of ranks that their shim saw end though none had ordered it."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How one rank of one generation ended."""

    attempt: int
    """0 in what a shim has recorded: it does not know its attempt."""
    generation: int
    rank: int
    reason: ExitReason
    exit_code: int | None = None
    """None for a rank that a signal killed, or whose end is unknown."""
    signal: int | None = None
    """None unless a signal killed the rank."""
    core_dumped: bool = False
    message: str = ""
    """A sentence for people. Programs read the other fields."""
    end_time: float = 0.0
    """Seconds since the epoch, by the host's clock; 0 where unknown."""
    stderr_tail: tuple[str, ...] = ()
    raised: str = ""
    """The Python exception that the rank recorded for its launcher, such as ``ValueError: bad batch``."""
    host_fault: bool = False
    """The rank could not start, and no program can help that: a file server that is gone, a full disk."""

    @property
    def ok(self) -> bool:
        """Whether the rank finished its work."""
        return self.reason is ExitReason.COMPLETED

    @property
    def shell_code(self) -> int | None:
        """The code that a shell would show: 128+n for signal n; None where the end is unknown."""
        return 128 + self.signal if self.signal is not None else self.exit_code


@dataclass(frozen=True, slots=True)
class ExitReport:
    """The exit of a rank, sent until the controller acknowledges ``sequence``, which counts within one session."""

    sequence: int
    key: WorkerId
    exit: Exit
    port_taken: bool = False
    """The rank could not bind a port that it was given."""


class ReportedState(enum.Enum):
    """The state of a worker on its host, as far as the controller needs to know it."""

    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    CANNOT_PREPARE = "CANNOT_PREPARE"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    EMPTY = "EMPTY"
    """Proven: no process of any generation up to the reported one is left."""
    STUCK = "STUCK"
    """It could not be proven empty in time."""


@dataclass(frozen=True, slots=True)
class RankBinding:
    """Cores, memory and network cards of one rank. Numbers are in the kernel's lists, such as 0-15,64-79."""

    cpus: str = ""
    """CPUs that it may run on; empty where it isn't bound."""
    exclusive: bool = False
    """No other rank is bound to any of them."""
    memory_nodes: str = ""
    """NUMA nodes whose memory it is given first; empty where none is preferred."""
    nics: tuple[str, ...] = ()
    """The nearest to its GPUs first."""
    note: str = ""
    """Why it isn't bound as asked."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The state of one worker on its host. Ports are 0 until it is prepared."""

    key: WorkerId
    attempt: int
    generation: int
    state: ReportedState
    port: int = 0
    master_port: int = 0
    """Of the worker of rank 0 alone."""
    shim_pid: int = 0
    pids: tuple[tuple[int, int], ...] = ()
    """Rank and pid of each started rank, in rank order, while any may run."""
    message: str = ""
    """Why it is in this state, or what its preparation is doing."""
    host_fault: bool = False
    """With CANNOT_PREPARE: the host failed its checks; the program may be sound. With EMPTY: clean-up failed."""
    gpus: tuple[str, ...] = ()
    """UUIDs that its ranks were given, while any may run."""
    silent_peers: tuple[tuple[int, int], ...] = ()
    """(Worker index, generation) of workers of its job that no longer ask its shim for a lease."""
    warm_ranks: int = 0
    """How many of its ranks were waiting with their imports done when they were started."""
    warm: str = ""
    """What is prepared for a warm start of the next generation, or why nothing is; empty where none is asked for."""
    in_process_ranks: int = 0
    """How many of its ranks, all of them warm, were ranks of the generation before and went on in their process."""
    bindings: tuple[tuple[int, RankBinding], ...] = ()
    """Rank and what it is bound to, of those in ``pids``; without those whose job asks for no binding."""


def decode_status(status: int | None) -> tuple[int | None, int | None, bool]:
    """The exit code, the signal, and whether a core was dumped, of a raw wait status; None for an unknown end."""
    if status is None:
        return None, None, False
    if signal := status & 0x7F:
        return None, signal, bool(status & 0x80)
    return status >> 8 & 0xFF, None, False


_RAISED, _OOM = "; it raised ", "; the kernel has killed"


def raised_in(message: str) -> str:
    """The exception in an exit's message, for records of 0.1.0, which have no field for it.

    That release's agents appended the exception a second time.
    """
    raised = message.partition(_RAISED)[2].partition(_OOM)[0]
    half = raised[: (len(raised) - 2) // 2]
    return half if raised == f"{half}; {half}" else raised
