"""Entities that the newest part of the log is about, for readers who only want to know what has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

MOST = 20_000
"""Records that are remembered: a restart of 8,192 ranks leaves twice as many, and is one change."""


class RecentChanges:
    """Sequences and entities, in memory alone."""

    def __init__(self, sequence: int, most: int = MOST) -> None:
        """``sequence``: of the last record that is in the log already."""
        self.newest = sequence
        self._from = sequence
        self._most = most
        self._kept: deque[tuple[int, str]] = deque()

    def extend(self, records: Iterable[tuple[int, str]]) -> None:
        """Take in (sequence, entity) of each record, in their order."""
        for sequence, entity in records:
            if self._kept and self._kept[-1][1] == entity:
                self._kept.pop()
            self._kept.append((sequence, entity))
            self.newest = sequence
        while len(self._kept) > self._most:
            self._from, _ = self._kept.popleft()

    def since(self, sequence: int) -> set[str] | None:
        """Entities of the records after ``sequence``; None where that is further back than is remembered, or ahead."""
        if not self._from <= sequence <= self.newest:
            return None
        found = set()
        for known, entity in reversed(self._kept):
            if known <= sequence:
                break
            found.add(entity)
        return found
