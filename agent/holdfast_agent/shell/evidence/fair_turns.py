"""Turns at something that few may use at a time: of those who wait, the party goes first that has the fewest."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator

import anyio


class FairTurns:
    """``most`` at a time. A party that asks for many takes none from another for longer than one of its turns."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._taken = Counter[str]()
        self._waiting: dict[str, deque[anyio.Event]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, party: str) -> AsyncGenerator[None]:
        """The block, when it is the party's turn."""
        await self._begin(party)
        try:
            yield
        finally:
            self._end(party)

    async def _begin(self, party: str) -> None:
        called = anyio.Event()
        self._waiting.setdefault(party, deque()).append(called)
        self._call_next()
        try:
            await called.wait()
        except BaseException:
            if called.is_set():
                self._end(party)
            else:
                self._leave(party, called)
            raise

    def _end(self, party: str) -> None:
        self._free += 1
        self._taken -= Counter((party,))
        self._call_next()

    def _call_next(self) -> None:
        while self._free and self._waiting:
            party = min(self._waiting, key=self._taken.__getitem__)
            called = self._waiting[party][0]
            self._leave(party, called)
            if party in self._waiting:
                self._waiting[party] = self._waiting.pop(party)  # behind others that have as many
            self._free -= 1
            self._taken[party] += 1
            called.set()

    def _leave(self, party: str, called: anyio.Event) -> None:
        self._waiting[party].remove(called)
        if not self._waiting[party]:
            del self._waiting[party]
