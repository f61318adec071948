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
import secrets
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from holdfast_controller.shell.calls.slices import ASKED_BY, READERS, TURNS, apart_if_large
from holdfast_controller.shell.rest.printed import Listed, text_of
from holdfast_controller.shell.rest.streams import gzip_block

FRESH_S = 1.0
SHARE = 40
BURST_S = 0.5
LONGEST_S = 4.0
"""From the beginning of one rendering to that of the next, at the longest."""
PAUSE_S = 0.001
"""Between the turns of two readers: most of the forty times that a relaunch comes to the loop have to find it free."""
KEPT = 256
"""Questions whose newest answer is remembered."""
KEPT_BYTES = 64 << 20
AGED_S = 15.0
"""So old may the parts of a followed list be that don't count as a change."""
PACKED_BYTES = 1_024
"""From which on an answer is compressed, once for all, for those who take it so."""


@dataclass(eq=False)
class _Rendering:
    position: tuple[int, Hashable]
    began: float
    work: asyncio.Task[Shared]


class Shared:
    """An answer: its bytes, compressed where that is worth it, and how it differs from the one before."""

    def __init__(self, made: Response, before: Shared | None, tag: str, at: float) -> None:
        """``before``: the answer before to the same question. ``tag`` is this one's, unless it says the same."""
        self.media_type = made.headers["content-type"]
        self._made = made
        self._body = b"" if isinstance(made, Listed) else bytes(made.body)
        self._packed: asyncio.Task[bytes] | None = None
        self._frames: dict[str, asyncio.Task[bytes]] = {}
        """By the tag of the answer that is changed: one for all who follow it, though all ask at the same moment."""
        self.tag: str = tag
        self.whole_at: float = at
        self._before: Shared | None = None
        aged = isinstance(made, Listed) and made.ages and before is not None and at - before.whole_at >= AGED_S
        if before is not None and not aged:
            self.whole_at = before.whole_at
        if before is not None and not aged and before._says() == self._says():
            self.tag, self._before, self._frames = before.tag, before._before, before._frames
        elif not aged:
            self._before = before
        if before is not None:
            before._before = None  # or all that were ever made would be remembered

    def _says(self) -> object:
        made = self._made
        return (made.key, made.entries, made.token) if isinstance(made, Listed) else self._body

    @property
    def body(self) -> bytes:
        """The answer without compression."""
        if not self._body and isinstance(self._made, Listed):
            self._body = self._made.whole()
        return self._body

    async def response(self, encodings: str) -> Response:
        """An answer for one reader, who takes these encodings."""
        headers = {"Content-Type": self.media_type, "Vary": "Accept-Encoding", "ETag": f'"{self.tag}"'}
        if len(self.body) < PACKED_BYTES or "gzip" not in encodings.lower():
            return Response(self.body, headers=headers)
        if self._packed is None:  # once for all
            self._packed = asyncio.get_running_loop().create_task(apart_if_large(len(self.body), _gzip, self.body))
        packed = await asyncio.shield(self._packed)
        return Response(packed, headers=headers | {"Content-Encoding": "gzip"})

    def followed(self, again: Callable[[int], Awaitable[Shared]]) -> Followed:
        """The answer for one who follows it; ``again`` gets the one as of a position of the log, or raises."""
        return Followed(self, again)

    async def frame(self, address: str, known: str) -> bytes:
        """The event that makes this answer of the one ``known`` to a reader, or of none, as a block of gzip."""
        if known == self.tag:
            return b""
        base = self._before if self._before is not None and self._before.tag == known else None
        known = known if base is not None else ""
        if known not in self._frames:
            self._frames[known] = asyncio.get_running_loop().create_task(self._framed(address, known, base))
        return await asyncio.shield(self._frames[known])

    async def _framed(self, address: str, known: str, base: Shared | None) -> bytes:
        def event() -> bytes:
            said = text_of({"path": address, "from": known, "tag": self.tag})[:-1]
            return f"event: answer\ndata: {said},{self._change(base)}}}\n\n".encode()

        if base is None:  # a thousand hosts as a whole hold the loop for 5 ms
            return await apart_if_large(self.size, lambda: gzip_block(event()))
        made = event()
        return await apart_if_large(len(made), gzip_block, made)

    def _change(self, base: Shared | None) -> str:
        """The fields that make this answer of another one, or of none."""
        made, old = self._made, base._made if base is not None else None
        if not isinstance(made, Listed):
            return f'"answer":{self.body.decode()}'
        known = {each: at for at, each in enumerate(old.entries)} if isinstance(old, Listed) else {}
        parts: list[str] = []
        first = last = -1
        for number, entry in enumerate(made.entries):
            at = known.get(entry, -1)
            if at >= 0 and first >= 0 and at == last + 1:
                last = at
                continue
            if first >= 0:
                parts.append(f"[{first},{last}]")
            first = last = at
            if at < 0:
                parts.append(made.text(number))
        if first >= 0:
            parts.append(f"[{first},{last}]")
        return f'"list":{text_of(made.key)},"nextPageToken":{text_of(made.token)},"parts":[{",".join(parts)}]'

    @property
    def size(self) -> int:
        """Its bytes in memory, about."""
        made = self._made
        return (
            len(made.text(0)) * len(made.entries) if isinstance(made, Listed) and made.entries else len(self._body)
        )


class Followed(Response):
    """An answer that is sent as what has changed of it."""

    def __init__(self, shared: Shared, again: Callable[[int], Awaitable[Shared]]) -> None:
        super().__init__(media_type=shared.media_type)
        self.shared, self.again = shared, again


@dataclass(eq=False)
class _Question:
    newest: _Rendering | None = None
    answer: Shared | None = None
    following: asyncio.Task[Shared] | None = None
    """That of those who wait for the next rendering, until it begins."""
    parties: set[str] = field(default_factory=set)
    """Those who wait for it."""
    size: int = 0
    spent_s: float = 0.0
    """By its renderings, as far as their part of the time has not made up for it."""


class Queue:
    """Readers who got one answer, each of whom is sent it in a turn of the event loop of its own: so others' calls
    come between.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._one, self._sleep = asyncio.Lock(), sleep

    async def in_turn(self) -> None:
        """Return when it is this reader's turn."""
        async with self._one:
            await self._sleep(PAUSE_S)
            await TURNS.between_commits()


class SharedAnswers:
    """The newest answer to each question; ``position`` gets that of the log, and of what else they come from."""

    def __init__(
        self,
        position: Callable[[], tuple[int, Hashable]],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._position = position
        self._clock = clock
        self._sleep = sleep
        self._questions: OrderedDict[Hashable, _Question] = OrderedDict()
        self._bytes = 0
        self._queue = Queue(sleep)
        self.rendered = 0
        """Answers that were rendered, and not shared."""
        self._mine = secrets.token_hex(4)

    async def answer(
        self,
        key: Hashable,
        party: str,
        place: Callable[[], ExitStack],
        render: Callable[[], Coroutine[Any, Any, Response]],
        after: int | None = None,
    ) -> Shared:
        """The answer to the question ``key``, of a rendering that began at this position of the log, or begins now.
        For one who follows it, of one that began at the position ``after``, or later.

        ``party`` asks. ``render`` makes it in a task of its own, which holds what ``place`` gives. Raises what either
        raises.
        """
        question = self._questions.setdefault(key, _Question())
        self._questions.move_to_end(key)
        self._trim()  # now, and not once there is an answer: there may be none
        known = question.newest
        fresh = known is not None and self._clock() - known.began < FRESH_S
        if known is not None and fresh and not _failed(known.work):
            position = self._position()
            followed = after is not None and known.position[0] >= after and known.position[1] == position[1]
            if followed or known.position == position:
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
            await self._queue.in_turn()  # others begin at the same moment
            work, question.following = question.following, None
            assert work is not None
            parties, question.parties = question.parties, set()
            ASKED_BY.set(next(iter(parties)) if len(parties) == 1 else READERS)
            known = question.newest = _Rendering(self._position(), self._clock(), work)
            self.rendered += 1
            try:
                made = await render()
                found = question.answer = Shared(made, question.answer, self._tag(), self._clock())
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

    def _tag(self) -> str:
        """The tag of the newest rendering, which no other one has, also of an earlier controller."""
        return f"{self._mine}.{self.rendered}"

    async def in_turn(self) -> None:
        """Return when it is this reader's turn; see ``Queue``."""
        await self._queue.in_turn()

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


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(body) + packer.flush()
