"""Hangs: the durable record of each (``Hang``), and the detector's state while this controller runs."""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.finding import Rule
from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.pipeline.nccl_ras import Mismatch
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.recovery import RankName

HANG_GRACE_S = 5.0
"""Between TERM and KILL of a gang that hangs, if the job's own grace isn't shorter: it would use no more."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Collective counts that differ and stand still, or ranks that others wait for, on our monotonic clock."""

    found: Mismatch
    since_s: float


@dataclass
class Dump:
    """Evidence that was asked for: what has come so far. ``number`` counts within the generation."""

    number: int
    awaited: set[int]
    suspects: tuple[RankName, ...] = ()
    lost: set[int] = field(default_factory=set)
    """Workers whose answer was lost; where all are, each is asked again, once, when it is heard of."""
    again: set[int] = field(default_factory=set)
    parts: list[Evidence] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    """Evidence to store, by worker."""
    attachments: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Samples of the time before, and dumps of flight recorders, to store with it."""
    diagnosis: Diagnosis | None = None
    told: bool = False


@dataclass
class SharedCause:
    """Jobs that hang together. Times on our monotonic clock; ``mount`` is the storage they wait for, if any."""

    since_s: float
    """When the first of them would have been acted on."""
    mount: str
    jobs: dict[str, None]
    relaunched: dict[str, float] = field(default_factory=dict)
    """When each of them had its turn."""
    cleared_s: float | None = None
    """When one of them was last seen to move again by itself."""
    told_again: bool = False
    swept_s: float = 0.0
    """When all of its jobs were last looked at."""


@dataclass(frozen=True, slots=True)
class KeptWatch:
    """A watch as it is written down: of which generation, with times relative to the moment of keeping."""

    generation: int
    watch: JobWatch


class HangOutcome(enum.Enum):
    """The outcome of a hang."""

    RESTARTED = "RESTARTED"
    WOULD_RESTART = "WOULD_RESTART"
    """The job asks to be notified only."""
    SUPPRESSED = "WITHHELD"
    """Confirmed, but not acted on now."""
    BUDGET_SPENT = "BUDGET_SPENT"
    """No hang restart was left: the job failed."""
    OVER = "OVER"
    """The job made progress again by itself."""
    ENDED = "ENDED"
    """The job or the generation ended before anything was decided."""


@dataclass
class Hang:
    """A hang that the user was notified of, from its first notice to its end. Wall-clock seconds."""

    number: int
    generation: int
    since: Wall
    noticed_at: Wall
    rule: Rule
    sentence: str
    suspects: tuple[RankName, ...]
    hosts: tuple[str, ...] = ()
    """Of the suspects."""
    step: float | None = None
    stacks: str = ""
    diagnosed_at: Wall | None = None
    outcome: HangOutcome | None = None
    """None while it is open."""
    note: str = ""
    judged_at: Wall | None = None
    over_at: Wall | None = None
    """When it was seen to move again, or ended with its job or generation."""
    stuck_hosts: tuple[str, ...] = ()
    """Hosts that could not be emptied when it was acted on."""

    @property
    def open(self) -> bool:
        """Whether the hang is still open: no final action was taken and the job does not progress."""
        return self.over_at is None and self.outcome in (None, HangOutcome.SUPPRESSED, HangOutcome.WOULD_RESTART)
