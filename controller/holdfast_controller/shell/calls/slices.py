"""Long answers in short slices: building one holds up no other caller.

The event loop serves every caller and every host, so whatever takes long is cut: after ``SLICE_S`` of work an answer
makes a pause, and of all answers to callers who ask for much one at a time has a slice, in turns. What can't
be cut, such as the text of one large job, goes to the one thread of ``apart``: several would take the interpreter
from the loop more often.

What several ask for who look at the page is the work of ``READERS``, and in no hurry: its slices are shorter, each has
a pause behind it, and none begins while a commit is under way, whose thread would wait for the interpreter.

Many short calls are as much as a long one: while others call too, all calls of one party together have
``SHORT_SHARE`` of the time, and alone as much as there is.

A list ends a page early when its next entry would take it beyond ``PAGE_BYTES``.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from holdfast_controller.core.model.accounts.token_buckets import Buckets

SLICE_S = 0.002
"""Of the processor's time: on a busy machine others are not to wait for what it does beside."""
READERS = "readers of the page"
"""The party of what several parties wait for."""
READERS_SLICE_S = 0.001
"""A relaunch comes to the loop some forty times, so each slice without a pause behind it holds it up by forty."""
SHORT_S, SHORT_SHARE = 0.025, 0.25
"""So much work of one caller at once, and that share of the time from then on, is none that takes long: it lets others
go on, and waits for no turn. Many short answers, one after the other, are as much as a long one."""
OTHERS_S = 0.25
"""So long after a call its party counts as one that calls."""
PAUSES, READERS_PAUSES = 2, 5
"""So many times as long as a slice is the pause after it: the next answer in turn works meanwhile."""
STARVED = 20
"""A slice counts as having held the loop for so many times its work at most."""
SENT_S = 3e-9
"""Of the processor's time for each byte that is sent: copied, encrypted, handed to the kernel."""
PAGE_BYTES = 512 << 10
PAGE_ENTRIES = 1_000
"""Of a page whose size is not asked for."""
WHOLE_BYTES = 16 << 20
"""Of a list that is asked for without a page's size, as clients of release 0.1 do that know no pages of it."""
APART_BYTES = 64 << 10
"""Of text or messages; less is read and written in a millisecond or two."""

ASKED_BY: ContextVar[str] = ContextVar("asked_by", default="")
"""The party whose call is being answered."""

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound="Entry")
_thread = ThreadPoolExecutor(1, thread_name_prefix="apart")


async def apart(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of ``work``, done beside the event loop, after what was given there before."""
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: work(*args, **kwargs))


async def apart_if_large(size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of ``work`` on text or messages of so many bytes, done beside the loop if these are many."""
    return await apart(work, *args, **kwargs) if size > APART_BYTES else work(*args, **kwargs)


async def at_once() -> None:
    """Wait for nothing."""


class Turns:
    """The slices of one server: of all answers that take long, one at a time has one."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._short = Buckets(SHORT_S, SHORT_SHARE)
        self._calls = Buckets(SHORT_S, SHORT_SHARE)
        self._called: dict[str, float] = {}
        """The last two parties that called, and when."""
        self.between_commits: Callable[[], Awaitable[None]] = at_once
        """Waits until what was decided so far is committed: the driver's, while there is one."""

    async def answer(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """The answer to a call of ``ASKED_BY``, which waits while its party has had its share and others call too."""
        party, now = ASKED_BY.get(), time.monotonic()
        self._called.pop(party, None)
        self._called[party] = now
        if len(self._called) > 2:
            del self._called[next(iter(self._called))]
        if all(each == party or now - at > OTHERS_S for each, at in self._called.items()):
            return await call()
        self._calls.charge(
            party, SLICE_S, now
        )  # what it takes is known once it is done, and many may begin at once
        if owed_s := self._calls.owed_s(party, now):
            await asyncio.sleep(owed_s)
        work = _Metered(call())
        try:
            return await work
        finally:
            self._calls.charge(party, work.cpu_s - SLICE_S, time.monotonic())

    def begin(self) -> Slices:
        """The slices of one answer to ``ASKED_BY``, whose first begins now."""
        return Slices(self, self._one, self._short, ASKED_BY.get())


class _Metered(Generic[R]):
    """Await it once, for the result of ``work``."""

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self._work = work
        self.cpu_s = 0.0
        """Of the processor's time, spent in this thread on the work so far and not on others meanwhile."""

    def __await__(self) -> Generator[Any, Any, R]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            began = time.thread_time()
            try:
                awaited = step()
            except StopIteration as done:
                result: R = done.value
                return result
            finally:
                self.cpu_s += time.thread_time() - began
            try:
                step = partial(self._work.send, (yield awaited))
            except GeneratorExit:
                self._work.close()
                raise
            except BaseException as error:  # noqa: BLE001  # the work sees it
                step = partial(self._work.throw, error)


class Slices:
    """Call ``rest`` between two pieces of work, none of which takes long."""

    def __init__(self, turns: Turns, one: asyncio.Lock, short: Buckets, asked_by: str) -> None:
        self._turns, self._one, self._short, self._asked_by = turns, one, short, asked_by
        self._slice_s = READERS_SLICE_S if asked_by == READERS else SLICE_S
        self._began, self._since = time.thread_time(), time.monotonic()
        self._before_s = 0.0
        """Of the processor's time, in the slices that are over."""

    @property
    def worked_s(self) -> float:
        """The processor's time that it has taken so far. Ask for it before the next pause."""
        return self._before_s + time.thread_time() - self._began

    async def through(self, pieces: Generator[None, None, R]) -> R:
        """The result of work that is done in pieces, none of which takes long."""
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                result: R = done.value
                return result
            await self.rest()

    async def rest(self) -> None:
        """Let others go on, if the slice is over, and return when there is another."""
        now = time.monotonic()
        if now - self._since < self._slice_s:  # to ask for the processor's time takes ten times as long
            return
        worked_s = time.thread_time() - self._began
        if worked_s < self._slice_s:
            return
        # Where processors are short, others wait for it longer than it works; it may have waited itself, too.
        held_s = min(max(worked_s, now - self._since), STARVED * worked_s)
        self._short.charge(self._asked_by, held_s, now)
        if self._asked_by != READERS and not self._short.owed_s(self._asked_by, now):
            await asyncio.sleep(0)
        else:
            await self._make_way(held_s)
        self._before_s += worked_s
        self._began, self._since = time.thread_time(), time.monotonic()

    async def end(self, size: int) -> None:
        """Before an answer of so many bytes leaves: count the work that is left of it, and that of sending it.

        Of one caller many answers, each within a slice, would else take all of the time.
        """
        worked_s, now = time.thread_time() - self._began + size * SENT_S, time.monotonic()
        self._short.charge(self._asked_by, worked_s, now)
        if self._short.owed_s(self._asked_by, now):
            await self._make_way(worked_s)

    async def _make_way(self, held_s: float) -> None:
        async with self._one:
            # A call of others comes to the loop several times; most of these times have to find it free.
            await asyncio.sleep((READERS_PAUSES if self._asked_by == READERS else PAUSES) * held_s)
            if self._asked_by == READERS:
                await self._turns.between_commits()


class Entry(Protocol):
    """An entry of a list: a message, or what knows the size of one."""

    def ByteSize(self) -> int:  # a message's own
        """The bytes that it takes."""
        ...


class Page:
    """How much of a list goes into one answer: at most ``entries``, and ``most`` bytes, but at least one entry."""

    def __init__(self, entries: int, most: int = PAGE_BYTES) -> None:
        self._entries, self._bytes, self._most = entries, 0, most
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether it has as many entries as it may."""
        return self._count >= self._entries

    def takes(self, entry: Entry) -> bool:
        """Whether the entry still goes into the page; counted if it does."""
        size = entry.ByteSize()
        if self._count and (self._count >= self._entries or self._bytes + size > self._most):
            return False
        self._count += 1
        self._bytes += size
        return True

    @property
    def size(self) -> int:
        """Its bytes so far."""
        return self._bytes


class Asked(Protocol):
    """A request for a page of a list."""

    page_size: int
    page_token: str


async def paged(
    keys: Sequence[str], asked: Asked, picture: Callable[[str], E | Awaitable[E | None] | None]
) -> tuple[list[E], str]:
    """A page of a list in the order of its ``keys``, and the token of the next one, which is this one's last key.

    ``picture`` returns None for an entry that is gone by the time that it is reached, or what may be awaited for it.
    """
    first = bisect.bisect_right(keys, asked.page_token) if asked.page_token else 0
    whole = not asked.page_size and not asked.page_token
    page, slices = Page(len(keys), WHOLE_BYTES) if whole else Page(asked.page_size or PAGE_ENTRIES), TURNS.begin()
    found: list[E] = []
    last = ""
    for key in keys[first:]:
        await slices.rest()
        drawn = picture(key)
        entry = await drawn if isinstance(drawn, Awaitable) else drawn
        if entry is None:
            continue
        if not page.takes(entry):
            await slices.end(page.size)
            return found, last
        found.append(entry)
        last = key
    await slices.end(page.size)
    return found, ""


TURNS = Turns()
"""Those of this controller."""
