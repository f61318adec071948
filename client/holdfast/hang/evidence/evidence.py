"""Evidence of a worker that may hang, recorded before anything is done to it: one value per worker and diagnosis.

Every rank is looked at twice, some seconds apart, so that standing still and moving can be distinguished.
Whatever could not be read says so in words in its own place; evidence is never missing as a whole.
All sizes are bounded where the values are made (see the limits below),
and once more, in total, where they are written (``evidence_json``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.printable import spaced_line
from holdfast.hang.evidence.flight_recorder import Blame, FlightRecord, blamed
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.stacks import Diagnosis, RankStack, compared, essence

MAX_THREADS = 64
MAX_FRAMES = 64
# Of a deeper stack the innermost frames are kept, and so many of the outermost, which tell how it all began.
OUTER_FRAMES = 8
MAX_CHILDREN = 16
MAX_LINES = 20
MAX_TEXT = 400
# A process that spent this share of the time between two looks on a core is burning it.
BURNING = 0.5


class Movement(enum.Enum):
    """Conclusion from two looks at one process."""

    SAME = "same"
    MOVING = "moving"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread, innermost frame first. ``frames_cut`` frames are left out before the last ``OUTER_FRAMES``."""

    tid: int
    name: str = ""
    frames: tuple[Frame, ...] = ()
    main: bool = False
    # Whether it holds the interpreter's lock, and whether it was on a core; False where the tool can't tell.
    holds_gil: bool = False
    active: bool = False
    frames_cut: int = 0


@dataclass(frozen=True, slots=True)
class Dump:
    """The stacks of one process, the main thread first. ``problem`` says why there are none, or not all."""

    tool: str = ""
    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""
    threads_cut: int = 0
    took_s: float = 0.0

    @property
    def main(self) -> ThreadStack | None:
        """The main thread, where it was found."""
        return next((thread for thread in self.threads if thread.main), None)


@dataclass(frozen=True, slots=True)
class Vector:
    """State of one process from /proc; ``problem`` is set if there is none, for instance because it has ended."""

    # The letter of /proc/PID/stat.
    state: str = ""
    # What the main thread waits for in the kernel, and in which system call, where that may be known.
    wchan: str = ""
    syscall: str = ""
    cpu_s: float = 0.0
    # Voluntary switches of the main thread alone.
    main_switches: int | None = None
    threads: int = 0
    # Pid of a debugger; 0 without one.
    tracer: int = 0
    kernel_stack: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One process at one time, in seconds since the diagnosis began. ``native`` is None where none was wanted."""

    at_s: float
    vector: Vector
    python: Dump = Dump()
    native: Dump | None = None


@dataclass(frozen=True, slots=True)
class ProcessEvidence:
    """One process, looked at up to twice."""

    pid: int
    command: str = ""
    looks: tuple[Look, ...] = ()

    @property
    def last(self) -> Look | None:
        """The newest look that found any stack; else the newest."""
        found = [look for look in self.looks if look.python.threads]
        kept = found or list(self.looks)
        return kept[-1] if kept else None

    @property
    def movement(self) -> Movement:
        """Whether the main thread moved between two looks, by its Python frames and, where known, its native ones."""
        native = _pair([look.native for look in self.looks])
        pairs = [_pair([look.python for look in self.looks]), native]
        moved = [essence(before.frames) != essence(after.frames) for before, after in filter(None, pairs)]
        if any(moved):
            return Movement.MOVING
        # On a core, at one line of Python, in different places of the interpreter: a spin looks so, and so does work.
        spins = native is not None and native[0].frames != native[1].frames and (self.cores or 0.0) >= BURNING
        return Movement.SAME if moved and not spins else Movement.UNKNOWN

    @property
    def native_compared(self) -> bool:
        """Whether C frames were seen twice."""
        return _pair([look.native for look in self.looks]) is not None

    @property
    def cores(self) -> float | None:
        """How many cores it kept busy between its first look and its last; None where that is not known."""
        read = [look for look in self.looks if not look.vector.problem]
        if len(read) < 2 or read[-1].at_s <= read[0].at_s:
            return None
        return (read[-1].vector.cpu_s - read[0].vector.cpu_s) / (read[-1].at_s - read[0].at_s)

    @property
    def switches(self) -> int | None:
        """Voluntary switches of the main thread between the looks; None where that is not known."""
        read = [look.vector.main_switches for look in self.looks if look.vector.main_switches is not None]
        return read[-1] - read[0] if len(read) > 1 else None


def _pair(dumps: Sequence[Dump | None]) -> tuple[ThreadStack, ThreadStack] | None:
    mains = [dump.main for dump in dumps if dump is not None]
    found = [main for main in mains if main is not None and main.frames]
    return (found[0], found[-1]) if len(found) > 1 else None


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """One rank. Children are looked at only of a suspect. ``recorder`` is where the framework's own record lies."""

    rank: int
    process: ProcessEvidence
    suspect: bool = False
    children: tuple[ProcessEvidence, ...] = ()
    children_cut: int = 0
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    recorder: str = ""
    # What it holds, where it could be read.
    flight: FlightRecord | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """One of the worker's GPUs. ``pids`` None where the driver doesn't tell."""

    uuid: str
    index: int = 0
    model: str = ""
    memory_bytes: int = 0
    used_bytes: int | None = None
    pids: tuple[int, ...] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was recorded of one worker. ``taken_at_s`` is the wall clock of its host, in Unix seconds."""

    job: str
    worker: str
    host: str
    generation: int
    taken_at_s: float
    took_s: float = 0.0
    interval_s: float = 0.0
    ranks: tuple[RankEvidence, ...] = ()
    gpus: tuple[GpuEvidence, ...] = ()
    # NCCL's own view of the job, as its RAS subsystem words it.
    ras: str = ""
    # The same ``interval_s`` later.
    ras_after: str = ""
    notes: tuple[str, ...] = ()

    def stacks(self, look: int) -> tuple[RankStack, ...]:
        """The main threads at the first (0) or second (1) look, as the detector compares and groups them."""
        return tuple(self._stack(rank, look) for rank in self.ranks)

    def _stack(self, rank: RankEvidence, index: int) -> RankStack:
        looks = rank.process.looks
        if index >= len(looks):
            return RankStack(self.worker, rank.rank, (), "not looked at")
        dump, vector = looks[index].python, looks[index].vector
        frames = dump.main.frames if dump.main else ()
        return RankStack(self.worker, rank.rank, frames, "" if frames else dump.problem or vector.problem)

    @property
    def moving(self) -> frozenset[tuple[str, int]]:
        """Ranks whose Python or native frames changed between the looks."""
        moved = (rank for rank in self.ranks if rank.process.movement is Movement.MOVING)
        return frozenset((self.worker, rank.rank) for rank in moved)


def diagnosis(parts: Iterable[Evidence], at_s: float) -> Diagnosis:
    """Conclusion from the evidence of all workers of a job; ``at_s`` is on the controller's clock.

    Equal Python frames of a rank that burns a core prove nothing; without native ones the answer is "unknown".
    """
    parts = tuple(parts)
    first = [stack for part in parts for stack in part.stacks(0)]
    second = [stack for part in parts for stack in part.stacks(1)]
    blame = recorder_blame(parts)
    found = replace(compared(first, second, at_s), recorded=blame.sentence if blame is not None else "")
    changed = found.changed.union(*(part.moving for part in parts))
    if changed:
        return replace(found, same=False, changed=changed)
    processes = [rank.process for part in parts for rank in part.ranks]
    burning = [p for p in processes if (p.cores or 0.0) >= BURNING]
    unsure = any(not p.native_compared or p.movement is Movement.UNKNOWN for p in burning)
    return replace(found, same=None) if unsure and found.same else found


def recorder_blame(parts: Iterable[Evidence]) -> Blame | None:
    """The ranks that keep their peers waiting by the flight recorders of all workers; None where they don't tell."""
    ranks = [rank for part in parts for rank in part.ranks]
    records = {rank.rank: rank.flight for rank in ranks if rank.flight is not None}
    return blamed(records, [rank.rank for rank in ranks]) if records else None


# -- Bounds ------------------------------------------------------------------------------------------------------


def clipped(text: str, limit: int = MAX_TEXT) -> str:
    """At most ``limit`` characters of one printable line."""
    line = spaced_line(text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def thread_stack(stack: ThreadStack, limit: int = MAX_FRAMES) -> ThreadStack:
    """The stack cut to at most ``limit`` frames: the innermost, and a few of the outermost."""
    if len(stack.frames) <= limit:
        return stack
    outer = min(OUTER_FRAMES, limit // 2)
    kept = stack.frames[: limit - outer] + stack.frames[len(stack.frames) - outer :]
    return replace(stack, frames=kept, frames_cut=stack.frames_cut + len(stack.frames) - limit)


def dump(tool: str, threads: Iterable[ThreadStack], problem: str = "", limit: int = MAX_THREADS) -> Dump:
    """A dump within bounds: the main thread first, then those that hold the lock or run."""
    ranked = sorted(threads, key=lambda thread: (not thread.main, not thread.holds_gil, not thread.active))
    kept = tuple(thread_stack(thread) for thread in ranked[:limit])
    return Dump(tool, kept, clipped(problem), max(0, len(ranked) - limit))
