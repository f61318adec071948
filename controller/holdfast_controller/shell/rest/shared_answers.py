"""Answers that many readers of the page share: the same question with the same rights costs one rendering.

Fifty people who look at one overview ask the same each time that something happens. An answer is shared only by those
who ask for the same address, have the same rights at the moment at which they get it, and asked when the log was
where it was as the rendering began; so none of them reads what was true before the question, or what
only others may know. What isn't in the log, the time since a host was heard say, is ``FRESH_S`` old at most.

The renderings of one question have a part of the time, one in ``SHARE``, however many look and however fast the log
grows, and less of a machine that is busy. ``BURST_S`` of them may be made at once: a person who goes from page to
page, or acts and looks, waits for none. Who asks beyond that waits for it, ``LONGEST_S`` at most, and holds no place
among the calls in progress. It is the work of its reader, or, where several parties wait for it, of ``READERS``, who
have one party's share of the controller's time (``slices``).
"""

from __future__ import annotations

import asyncio
import math
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from holdfast_controller.shell.calls.slices import APART_BYTES, ASKED_BY, apart

FRESH_S = 1.0
SHARE = 40
BURST_S = 0.5
READERS = "readers of the page"
LONGEST_S = 4.0
"""From the beginning of one rendering to that of the next, at the longest."""
KEPT = 256
"""Questions whose newest answer is remembered."""
KEPT_BYTES = 64 << 20
PACKED_BYTES = 1_024
"""From which on an answer is compressed, once for all, for those who take it so."""


@dataclass(eq=False)
class _Rendering:
    position: Hashable
    began: float
    work: asyncio.Task[Shared]


@dataclass(frozen=True)
class Shared:
    """The bytes of an answer, as they are and compressed; empty where that is not worth it."""

    body: bytes
    packed: bytes
    media_type: str

    def response(self, encodings: str) -> Response:
        """An answer for one reader, who takes these encodings."""
        headers = {"Content-Type": self.media_type, "Vary": "Accept-Encoding"}
        if self.packed and "gzip" in encodings.lower():
            return Response(self.packed, headers=headers | {"Content-Encoding": "gzip"})
        return Response(self.body, headers=headers)

    @property
    def size(self) -> int:
        """Its bytes in memory."""
        return len(self.body) + len(self.packed)


@dataclass(eq=False)
class _Question:
    newest: _Rendering | None = None
    following: asyncio.Task[Shared] | None = None
    """That of those who wait for the next rendering, until it begins."""
    parties: set[str] = field(default_factory=set)
    """Those who wait for it."""
    size: int = 0
    spent_s: float = 0.0
    """By its renderings, as far as their part of the time has not made up for it."""


class SharedAnswers:
    """The newest answer to each question; ``position`` gets that of the log, and of what else they come from."""

    def __init__(
        self,
        position: Callable[[], Hashable],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._position = position
        self._clock = clock
        self._sleep = sleep
        self._questions: OrderedDict[Hashable, _Question] = OrderedDict()
        self._bytes = 0
        self._one = asyncio.Lock()
        self.rendered = 0
        """Answers that were rendered, and not shared."""

    async def answer(
        self,
        key: Hashable,
        party: str,
        place: Callable[[], ExitStack],
        render: Callable[[], Coroutine[Any, Any, Response]],
    ) -> Shared:
        """The answer to the question ``key``, of a rendering that began at this position of the log, or begins now.

        ``party`` asks. ``render`` makes it in a task of its own, which holds what ``place`` gives. Raises what either
        raises.
        """
        question = self._questions.setdefault(key, _Question())
        self._questions.move_to_end(key)
        self._trim()  # now, and not once there is an answer: there may be none
        known = question.newest
        fresh = known is not None and self._clock() - known.began < FRESH_S
        if known is not None and fresh and known.position == self._position() and not _failed(known.work):
            return await asyncio.shield(known.work)
        question.parties.add(party)
        if question.following is None:
            question.following = asyncio.get_running_loop().create_task(self._next(key, question, place(), render))
            question.following.add_done_callback(_seen)
        return await asyncio.shield(question.following)

    async def _next(
        self,
        key: Hashable,
        question: _Question,
        place: ExitStack,
        render: Callable[[], Coroutine[Any, Any, Response]],
    ) -> Shared:
        with place:
            await self._spared(question)
            work, question.following = question.following, None
            assert work is not None
            parties, question.parties = question.parties, set()
            ASKED_BY.set(next(iter(parties)) if len(parties) == 1 else READERS)
            known = question.newest = _Rendering(self._position(), self._clock(), work)
            self.rendered += 1
            try:
                found = await _packed(await render())
            finally:
                question.spent_s = min(question.spent_s + self._clock() - known.began, BURST_S + LONGEST_S / SHARE)
            self._keep(key, question, found.size)
            return found

    async def _spared(self, question: _Question) -> None:
        """Wait until the next rendering of the question may begin."""
        last = question.newest
        if last is None:
            return
        since_s = self._clock() - last.began
        over_s = SHARE * (question.spent_s - BURST_S)
        if (spare_s := min(over_s, LONGEST_S) - since_s) > 0:
            await self._sleep(spare_s)
        question.spent_s = max(question.spent_s - (self._clock() - last.began) / SHARE, 0.0)

    async def in_turn(self) -> None:
        """Return when it is this reader's turn: of those who got one answer each is sent it in a turn of the loop of
        its own, so that others' calls come between.
        """
        async with self._one:
            await asyncio.sleep(0)

    def _keep(self, key: Hashable, question: _Question, size: int) -> None:
        if self._questions.get(key) is question:
            self._bytes += size - question.size
            question.size = size
        self._trim(KEPT_BYTES)

    def _trim(self, kept_bytes: float = math.inf) -> None:
        while len(self._questions) > KEPT or self._bytes > kept_bytes:
            _, forgotten = self._questions.popitem(last=False)
            self._bytes -= forgotten.size


def _failed(work: asyncio.Task[Shared]) -> bool:
    return work.done() and (work.cancelled() or work.exception() is not None)


def _seen(work: asyncio.Task[Shared]) -> None:
    """Take note of what a task raised, which is for readers that may have gone away."""
    if not work.cancelled():
        work.exception()


async def _packed(made: Response) -> Shared:
    body = bytes(made.body)
    media_type = made.headers["content-type"]
    if len(body) < PACKED_BYTES:
        return Shared(body, b"", media_type)
    return Shared(body, await apart(_gzip, body) if len(body) > APART_BYTES else _gzip(body), media_type)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(body) + packer.flush()
