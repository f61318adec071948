"""A job that is slower than it was: what is known of it, and what is watched meanwhile."""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.goodput import MOST_SLOWER


class Sign(enum.Enum):
    """A difference of a rank from the others of a slow job. Values are stored."""

    WAITED_FOR = "WAITED_FOR"
    OWN_STEPS = "OWN_STEPS"
    POWER = "POWER"
    NO_CORE = "NO_CORE"
    STOPPED = "STOPPED"
    CLOCK = "CLOCK"
    FINDING = "FINDING"
    NEIGHBOUR = "NEIGHBOUR"

    @property
    def words(self) -> str:
        """The sign in words, of one rank."""
        return _WORDS[self]

    @property
    def of_place(self) -> bool:
        """Whether it is about the place that the rank runs at; the others may come from more work, too."""
        return self in _OF_PLACE


_WORDS = {
    Sign.WAITED_FOR: "the others wait for it",
    Sign.OWN_STEPS: "its own steps take longer, and theirs do not",
    Sign.POWER: "the power of its GPU changed, and theirs did not",
    Sign.NO_CORE: "it is often ready to run and has no core",
    Sign.STOPPED: "it is stopped again and again",
    Sign.CLOCK: "the clock of its GPU is lower",
    Sign.FINDING: "its host has a finding about its hardware",
    Sign.NEIGHBOUR: "so are all ranks on its host",
}
_OF_PLACE = frozenset({Sign.NO_CORE, Sign.STOPPED, Sign.CLOCK, Sign.FINDING, Sign.NEIGHBOUR})
_ALIKE = frozenset({Sign.NO_CORE, Sign.STOPPED})
"""Read from the same counters of one process."""


def agree(signs: frozenset[Sign]) -> bool:
    """Whether two signs are there that don't come from the same readings, one of them of the place."""
    kinds = {Sign.NO_CORE if sign in _ALIKE else sign for sign in signs}
    return len(kinds) >= 2 and any(sign.of_place for sign in kinds)


@dataclass(frozen=True)
class Suspect:
    """A rank with signs, in the order of ``Sign``."""

    rank: int
    host: str
    signs: tuple[Sign, ...] = ()


@dataclass(frozen=True)
class Slowdown:
    """A job that takes ``recent_ms`` for a step, and took ``best_ms`` at its best. Since ``since``."""

    since: Wall
    best_ms: float
    recent_ms: float
    named: tuple[Suspect, ...] = ()
    """Ranks of one host that two independent signs agree on."""
    waited_for: int | None = None
    """A rank that the others wait for, while nothing of its place holds it back."""
    counted_at: Wall = NEVER
    """Its cost is added up until then."""

    @property
    def slower_pct(self) -> int:
        """By how much a step takes longer, in percent."""
        slower = self.recent_ms / self.best_ms - 1 if self.best_ms > 0 else 0.0
        return round(100 * min(max(0.0, slower), MOST_SLOWER))

    @property
    def lost(self) -> float:
        """The share of the job's time that the slowness costs."""
        return max(0.0, 1.0 - self.best_ms / self.recent_ms) if self.recent_ms > 0 else 0.0

    @property
    def host(self) -> str:
        """The host of those that are named; empty where none is."""
        return self.named[0].host if self.named else ""

    @property
    def who(self) -> str:
        """The ranks that it comes from, and by which signs; or that they aren't known."""
        if self.named:
            first = self.named[0]
            ranks = ", ".join(str(each.rank) for each in self.named[:_SHOWN])
            more = f" and {len(self.named) - _SHOWN} more" if len(self.named) > _SHOWN else ""
            word = "rank" if len(self.named) == 1 else "ranks"
            signs = ", and ".join(sign.words for sign in first.signs)
            return f"{word} {ranks}{more} on {first.host}: {signs}"
        if self.waited_for is not None:
            return (
                f"the others wait for rank {self.waited_for}, and nothing on its host holds it back: "
                "it may have more work than they"
            )
        return "no rank stands out"


_SHOWN = 4


# --- While this controller runs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RankSlot:
    """A rank's time in one slot, as shares of it; None is not known."""

    host: str
    waits: float | None = None
    no_core: float | None = None
    stopped: float | None = None
    aside: float = 0.0
    storage: float = 0.0
    clock_mhz: float | None = None
    util_pct: float | None = None
    power_w: float | None = None
    step_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot: time of a step, and of its ranks."""

    start_s: float
    end_s: float
    step_ms: float
    ranks: dict[int, RankSlot]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which the job had reached a step. Seconds on our monotonic clock."""

    at_s: float
    step: float
    times: dict[int, tuple[str, float, RankTimes]]
    """By rank: host, time of its vector, counters then."""


@dataclass
class SlowWatch:
    """Knowledge of a job's pace, in bounded memory. It goes on over its generations."""

    generation: int = 0
    mark: Mark | None = None
    apart: bool = False
    """Since the mark it evaluated, saved, or declared a pause: that slot says nothing."""
    slots: list[Slot] = field(default_factory=list)
    best_ms: float = 0.0
    """The lowest median of a reference; 0 before there was one."""
    spread: float = 0.0
    """Of the slots that it was made of, relative to it."""
    usual: dict[int, RankSlot] = field(default_factory=dict)
    """By rank: what its time went to while the job was at its best."""
    slow_since_s: float | None = None
    """Start of the slow slots, while the job is called slow."""
    slow_from: float = 0.0
    """By how much it had to be slower to be called so, relative to its best: it is until half of that is gone."""
    seen: list[dict[int, frozenset[Sign]]] = field(default_factory=list)
    """At the last looks, in order: the signs of each rank that had signs that agree."""
    lonely: tuple[int, int] | None = None
    """A rank that is waited for without another sign, and at how many looks in a row."""
