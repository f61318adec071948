"""The queue: which jobs wait for hosts, in the order in which they are served.

Kept sorted as jobs come and go, so that nobody sorts it to look at its head or to tell a job's place in it: both
take microseconds with ten thousand jobs waiting.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

Turn = tuple[bool, int, bool, int]
"""Sorts: those that were running before they failed, by priority, who gives way to nobody, by submission."""

PLACEMENT_TRIES = 3
"""Of a job that doesn't wait for room."""


@dataclass
class Queue:
    """Jobs by their turn, lowest first. The turn of a job doesn't change while it waits."""

    _order: list[tuple[Turn, str]] = field(default_factory=list)
    _turns: dict[str, Turn] = field(default_factory=dict)

    def add(self, job_id: str, turn: Turn) -> None:
        """Take a job in at its turn; one that waits already stays where it is."""
        if job_id not in self._turns:
            self._turns[job_id] = turn
            bisect.insort(self._order, (turn, job_id))

    def discard(self, job_id: str) -> None:
        """It waits no longer, if it did."""
        turn = self._turns.pop(job_id, None)
        if turn is not None:
            del self._order[bisect.bisect_left(self._order, (turn, job_id))]

    def position(self, job_id: str) -> int:
        """How many are ahead of a job that waits."""
        return bisect.bisect_left(self._order, (self._turns[job_id], job_id))

    def __iter__(self) -> Iterator[str]:
        """From the head on. Take a copy where the queue may change meanwhile."""
        return (job_id for _, job_id in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._turns
