"""Virtual time: one heap of (time, sequence, what happens). Nothing in here knows what a cluster is."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


class Violation(Exception):
    """Something that must always hold doesn't. ``oracle`` names which."""

    def __init__(self, oracle: str, text: str) -> None:
        super().__init__(f"{oracle}: {text}")
        self.oracle = oracle
        self.text = text


class Crash(BaseException):
    """The process that does something right now dies before it. No ``Exception``: nothing may swallow it."""


@dataclass(eq=False)
class Life:
    """One process's life. What was planned for it doesn't happen once it is over, and waits while it is frozen."""

    name: str
    alive: bool = True
    frozen: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """What came while it was frozen."""


@dataclass
class Engine:
    """The heap. Times are true seconds since the start of the world."""

    now: float = 0.0
    events: int = 0
    _sequence: int = 0
    _heap: list[tuple[float, int, Callable[[], None], Life | None, Callable[[], None] | None]] = field(
        default_factory=list
    )

    def after(
        self,
        delay_s: float,
        act: Callable[[], None],
        life: Life | None = None,
        died: Callable[[], None] | None = None,
    ) -> None:
        """Do ``act`` after a time, as a deed of ``life``; ``died`` is what follows if it crashes in that."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + max(delay_s, 0.0), self._sequence, act, life, died))

    def run(self, until: float) -> None:
        """Everything up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            at, _, act, life, died = heapq.heappop(heap)
            self.now = at
            if life is not None:
                if not life.alive:
                    continue
                if life.frozen:
                    life.waiting.append(act)
                    continue
            self.events += 1
            try:
                act()
            except Crash:
                assert died is not None, "something crashed that can't"
                died()
        self.now = max(self.now, until)
