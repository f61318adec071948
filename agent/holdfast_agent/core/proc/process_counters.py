"""Counters of a process tree that only grow, although its processes come and go.

Theory of operation. The kernel adds a child's counters to its parent's when the parent waits for it. A tree's sum
would count such a child twice: while it lived, and again at its end. So a process that vanishes leaves its last
known counters to its parent as a *credit*, taken off the parent's next growth; what goes beyond it is what
short-lived processes did between two looks.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.hang.pipeline.samples import TreeSample

# Looks for which a credit is good: the parent's counters may have been read just before it waited.
_CREDIT_LOOKS = 2


class Counters(NamedTuple):
    """Counters of one process since its start."""

    own_ticks: int = 0
    reaped_ticks: int = 0
    storage_bytes: int = 0
    major_faults: int = 0
    written: int = 0


class Growth(NamedTuple):
    """Change of one process's counters between two samples; ``reaped_ticks`` are from processes never sampled."""

    own_ticks: int
    reaped_ticks: int
    storage_bytes: int
    major_faults: int
    written: int = 0


class Account:
    """Counters of one process, without those of children that were sampled themselves."""

    __slots__ = ("_bytes_due", "_looks", "_ticks_due", "last")

    def __init__(self) -> None:
        self.last = Counters()
        self._ticks_due = self._bytes_due = self._looks = 0

    def credit(self, child: Counters) -> None:
        """Note a sampled child that vanished, lest its counters count again once this process has reaped it."""
        self._ticks_due += child.own_ticks + child.reaped_ticks
        self._bytes_due += child.storage_bytes
        self._looks = _CREDIT_LOOKS

    def take(self, now: Counters) -> Growth:
        """Change since the last sample; at the first sample, everything since the start."""
        last, self.last = self.last, now
        reaped = max(0, now.reaped_ticks - last.reaped_ticks)
        stored = max(0, now.storage_bytes - last.storage_bytes)
        if self._looks:
            reaped, self._ticks_due = max(0, reaped - self._ticks_due), max(0, self._ticks_due - reaped)
            stored, self._bytes_due = max(0, stored - self._bytes_due), max(0, self._bytes_due - stored)
            self._looks -= 1
            if not self._looks:
                self._ticks_due = self._bytes_due = 0
        return Growth(
            max(0, now.own_ticks - last.own_ticks),
            reaped,
            stored,
            max(0, now.major_faults - last.major_faults),
            max(0, now.written - last.written),
        )


class TreeTally:
    """The sum over some descendants of a rank."""

    __slots__ = ("_bytes", "_faults", "_spawned", "_tick_s", "_ticks", "_written")

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._ticks = self._bytes = self._faults = self._spawned = self._written = 0

    def spawned(self) -> None:
        """Count one more process."""
        self._spawned += 1

    def add(self, growth: Growth) -> None:
        """Add the change of one process of the tree."""
        self._ticks += growth.own_ticks + growth.reaped_ticks
        self._bytes += growth.storage_bytes
        self._faults += growth.major_faults
        self._written += growth.written

    def add_ticks(self, ticks: int) -> None:
        """CPU time of descendants that were never seen."""
        self._ticks += ticks

    def sample(self) -> TreeSample:
        """The totals so far."""
        return TreeSample(self._ticks * self._tick_s, self._bytes, self._faults, self._spawned, self._written)
