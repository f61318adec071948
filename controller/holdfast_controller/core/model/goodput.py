"""The goodput ledger of one job: what its GPUs spent their time on, from ``hold`` to ``let_go``.

A tape is the time of workers that have the same history. Its spans cover that time without a gap, and whatever is
learned later moves a boundary or a name, so the sums of a tape never change. Spans that can't change any more are
added to ``sums`` and leave the tape. All times are integers: milliseconds since the epoch, non-decreasing for a job.
"""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass

SHORTEST_MS, LONGEST_MS = 1e-9, 1e12
"""A step that takes less than a picosecond, or decades, is a program's or an agent's nonsense."""
MOST_SLOWER = 10_000.0
"""So many times a step takes longer is shown at the most."""


class Category(enum.Enum):
    """Use of an allocated GPU's time. Every millisecond is in exactly one. Values are stored and sent."""

    PREPARE = "prepare"
    INSTALL = "install"
    LAUNCH = "launch"
    WARM_UP = "warm_up"
    TRAIN = "train"
    TRAIN_UNSAVED = "train_unsaved"
    LOST = "lost"
    SAVE = "save"
    EVALUATE = "evaluate"
    PAUSE = "pause"
    STALL = "stall"
    DETECT = "detect"
    DIAGNOSE = "diagnose"
    STOP = "stop"
    BACK_OFF = "back_off"
    HELD = "held"
    SPARE = "spare"
    RELAUNCH = "relaunch"
    WIND_DOWN = "wind_down"
    UNSEEN = "unseen"
    RAN = "ran"
    QUARANTINE = "quarantine"


class Payer(enum.Enum):
    """The party that time is charged to. Values are stored and sent."""

    JOB = "job"
    PROGRAM = "program"
    HARDWARE = "hardware"
    NETWORK = "network"
    OPERATOR = "operator"
    SCHEDULER = "scheduler"
    USER = "user"
    HOLDFAST = "holdfast"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Span:
    """A stretch of a tape; ``end`` is None while it goes on. ``interruption`` counts those of the job; 0: none."""

    start: int
    end: int | None
    category: Category
    cause: str
    interruption: int = 0


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's share as the ledger weighs it: its GPUs, or the worker's ranks in a job without GPUs."""

    host: str
    model: str
    weight: int


@dataclass(slots=True)
class Tape:
    """Time of workers that have the same history; ``members`` by worker index."""

    members: dict[int, Seat]
    spans: list[Span]
    weight: int
    shared: bool = False
    """``members`` is referred to by a ``Usage``: it is copied before it changes."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of a generation in which it did something else than train."""

    start: int
    end: int
    category: Category


@dataclass(frozen=True, slots=True)
class Reached:
    """A step of the program, and when it was reached."""

    at: int
    step: float
    of: float | None = None
    """What it counts up to where the output doesn't call it a step; None for a step."""

    @property
    def in_words(self) -> str:
        """Such as ``step 1760``, or ``40 of 200`` for what isn't called a step."""
        return f"step {self.step:.12g}" if self.of is None else f"{self.step:.12g} of {self.of:.12g}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that were done one after the other, and the time that they took."""

    ms: int
    steps: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of one generation as its agents reported it, from ``since`` to ``until``.

    ``first`` and ``last`` are None where no step was reported; ``began`` and ``moved`` are the first and the last
    sign of progress of any kind. ``saved`` are completed saves, the oldest first; their step is -1 where unknown.
    ``resumed`` is the step that the program says it resumed from.
    """

    since: int
    until: int
    began: int | None = None
    moved: int | None = None
    first: Reached | None = None
    last: Reached | None = None
    resumed: float | None = None
    saved: tuple[Reached, ...] = ()
    apart: tuple[Interval, ...] = ()
    """Saves that training waited for, evaluations, declared idle time, steps gone back on: disjoint, in order."""
    stretches: tuple[Stretch, ...] = ()
    """Its steps, in order; bounded."""


@dataclass(slots=True)
class ProgressWatch:
    """Progress of the running generation so far; times in ms on the wall clock."""

    generation: int
    since: int = 0
    """Nothing is known of the time before; 0: it is as old as its generation."""
    newest: int = 0
    """Time of the newest vector."""
    began: int | None = None
    moved: int | None = None
    works: bool = False
    """The program has begun its work, as its agents tell by more than its first lines."""
    works_since: int | None = None
    """Since when they say so."""
    first: Reached | None = None
    last: Reached | None = None
    resumed: float | None = None
    saved: list[Reached] = field(default_factory=list)
    apart: list[Interval] = field(default_factory=list)
    stepless: int = 0
    """Time of the newest vector before the first step."""
    counted: dict[int, float] = field(default_factory=dict)
    """By worker: the newest step that was read from its output."""
    counts_again: bool = False
    """What was counted before the first step was something else, or counted within each epoch."""
    believed: dict[int, bool] = field(default_factory=dict)
    """By worker that has reported steps: they have not fallen without a word of a resumption, and still report them."""
    told: dict[int, float] = field(default_factory=dict)
    """By worker: the newest step that it reported."""
    ahead: set[int] = field(default_factory=set)
    """Workers whose steps are those from before another one went on from an older step."""
    doing: dict[int, Category] = field(default_factory=dict)
    """By worker: what it does instead of training."""
    doing_since: int = 0
    writing: dict[int, Reached] = field(default_factory=dict)
    """By worker: when it began to write a checkpoint, and at which step."""
    pace: list[Reached] = field(default_factory=list)
    """About one step a minute, of the last hour."""
    best_hour_ms: float = 0.0
    """Time of a step in the best hour; 0 before there was one."""
    stretches: list[Stretch] = field(default_factory=list)
    stretch_from: Reached | None = None
    """The step after the last stretch."""
    shortest_ms: int = 0
    """Steps become a stretch when they have taken so long."""


@dataclass(slots=True)
class Unsettled:
    """Work of the newest generation that reported steps: how much of it is kept, the next one will show."""

    progress: Progress
    cause: str = ""
    """Cause of what ended the generation; empty while it runs."""


@dataclass(slots=True)
class JobLedger:
    """The ledger of a job that has not ended. Weights are GPUs, or ranks in a job without any."""

    since: int
    """When its first share was held, or the ledger began."""
    clock: int
    """Time of its newest event."""
    started_at: int | None = None
    """When all ranks of the newest generation that was started as a whole ran."""
    starting: bool = False
    """That one has ended, and of the next not all ranks are seen running yet."""
    start_cause: str = ""
    """Why it was started; empty in a ledger of an older release."""
    start_interruption: int = 0
    """Of these the last before it: single workers may be restarted since."""
    complete: bool = True
    """Whether the ledger is as old as the job; False where it began with an upgrade of the controller."""
    live: list[Tape] = field(default_factory=list)
    spares: dict[int, Tape] = field(default_factory=dict)
    """Of the job's own spares, by index behind those of the workers."""
    gone: list[Tape] = field(default_factory=list)
    """Tapes that have ended, with spans that may yet change."""
    sums: dict[str, int] = field(default_factory=dict)
    """Settled time, weight x ms, by ``DAY|category|cause``; DAY counts UTC days since the epoch."""
    cause: str = ""
    """Of the newest interruption; empty before the first."""
    interruption: int = 0
    unsettled: Unsettled | None = None
    hang_since: int | None = None
    """Start of the open hang."""
    failed_at: int | None = None
    """First failing exit of the generation."""
    failure: str = ""
    """Its reason."""
    emptied_at: int | None = None
    """Newest exit since the last interruption."""
    not_before: int | None = None
    """Until then the next launch waits, whatever is ready."""
    steps: bool = False
    saves: bool = False
    progress: bool = False
    """Whether steps, saves, any progress was reported in the job's life."""
    stretches: list[Stretch] = field(default_factory=list)
    """Steps of generations that have ended; bounded."""
    saved: list[Reached] = field(default_factory=list)
    """Their completed saves, the oldest first; bounded."""

    @property
    def ran_since(self) -> int | None:
        """Since when all ranks of the newest generation run, or now if they don't; None before the first does."""
        return self.clock if self.starting else self.started_at


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A share that its job has left and its host still holds. ``since`` in ms."""

    since: int
    seat: Seat
    ranks: bool
    """The weight is in ranks."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Settled time of some workers of a job, to be booked by day: ``ms`` by ``DAY|category|cause``, unweighted."""

    project: str
    owner: str
    ranks: bool
    """Weights are ranks: the job has no GPUs."""
    members: dict[int, Seat]
    ms: dict[str, int]
    job_id: str = ""
    """Empty for a share that its job has left."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The closing statement of a job's ledger."""

    job_id: str
    ledger: JobLedger
    ended: int
    ranks: bool
    """Its sums are rank-ms: the job has no GPUs."""


class HostFact(enum.Enum):
    """Facts that are counted of a host. Values are stored."""

    UP = "up"
    """Time in service."""
    LOST = "lost"
    """It was silent past its lease."""
    REBOOTED = "rebooted"
    """It booted without a word."""
    GPU = "gpu"
    """A GPU was condemned."""
    RANKS = "ranks"
    """Ranks were lost to it."""
    FINDING = "finding"
    """What was found of its hardware has kept it from work."""
    REPAIR = "repair"
    """From a failure until it was over."""


@dataclass(slots=True)
class HostRecord:
    """The state of a host's record of failures. Times in ms."""

    since: int
    """When the host joined, or an admin last said that it was repaired."""
    until: int
    """Its time is booked until then."""
    up: bool
    """Whether it is in service."""
    busy: bool
    """Whether it has work."""
    failed_at: int | None = None
    """First sign of its newest failure."""
    lost_at: int | None = None
    """While it is lost: when it was last heard. None where that was planned."""
    leapt: int = 0
    """By so much the controller's clock has leapt since: the record keeps the beginning that it is booked under."""

    @property
    def begun(self) -> int:
        """Its beginning by the clock as it is now set."""
        return self.since + self.leapt


@dataclass(frozen=True, slots=True)
class HostBooking:
    """Something to be counted of a host, in its record that began at ``since``; times in ms."""

    host: str
    since: int
    what: HostFact
    busy: bool
    start: int
    end: int


@dataclass(slots=True)
class Bookings:
    """Bookings that the events since the last commit have caused: not part of the state, but of the next commit."""

    usage: list[Usage] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    hosts: list[HostBooking] = field(default_factory=list)

    @property
    def some(self) -> bool:
        """Whether there is anything to keep."""
        return bool(self.usage or self.statements or self.hosts)
