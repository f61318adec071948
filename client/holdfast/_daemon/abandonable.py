"""Calls that may block for ever, in threads that can be left behind: few of each owner, so that all get their share.

A read of a file on a server that is gone, or of /proc of a process in trouble, may wait in the kernel until the machine
is restarted. No such thread is waited for: not by the caller, whose patience is bounded, and not by the daemon's end,
for which the threads are daemons. But a thread that was left behind counts as its owner's until it comes back, so no
owner ever holds more than ``each`` threads, and all together no more than ``most``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Job = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class Late(Exception):
    """The call did not come back in time, or none could be started."""


class _Thread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="holdfast reading", daemon=True)
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            function, done = job
            result, failure = None, None
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  the waiter raises it
                failure = error
            done(result, failure)
            del job, function, done, result, failure


class Threads:
    """Threads of one event loop: at most ``each`` at a time for one owner, and ``most`` for all."""

    def __init__(self, each: int, most: int) -> None:
        self._each, self._most = each, most
        self._busy: collections.Counter[Hashable] = collections.Counter()
        self._waiting: list[tuple[Hashable, asyncio.Future[None]]] = []
        self._idle: list[_Thread] = []

    async def call(
        self, owner: Hashable, within_s: float, function: Callable[[Unpack[Ts]], T], *arguments: *Ts
    ) -> T:
        """Return or raise as ``function`` does, or raise ``Late``. A cancellation leaves the call behind, too."""
        try:
            async with asyncio.timeout(within_s):
                await self._turn(owner)
                loop = asyncio.get_running_loop()
                over: asyncio.Future[T] = loop.create_future()
                try:
                    thread = self._idle.pop() if self._idle else self._started()
                except RuntimeError as error:  # no thread to be had
                    self._leave(owner)
                    raise Late from error
                end = partial(self._end, owner, thread, over)

                def done(result: Any, failure: BaseException | None) -> None:
                    with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                        loop.call_soon_threadsafe(end, result, failure)

                thread.jobs.put((partial(function, *arguments), done))
                return await over
        except TimeoutError as error:
            raise Late from error

    def close(self) -> None:
        """End the threads that have nothing to do."""
        for thread in self._idle:
            thread.jobs.put(None)
        self._idle.clear()

    @staticmethod
    def _started() -> _Thread:
        thread = _Thread()
        thread.start()
        return thread

    async def _turn(self, owner: Hashable) -> None:
        """Wait until the owner may have one more thread."""
        if self._may(owner):
            self._busy[owner] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((owner, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(owner)
            else:
                self._waiting.remove((owner, turn))
            raise

    def _may(self, owner: Hashable) -> bool:
        return self._busy[owner] < self._each and self._busy.total() < self._most

    def _end(
        self, owner: Hashable, thread: _Thread, over: asyncio.Future[T], result: T, failure: BaseException | None
    ) -> None:
        self._idle.append(thread)
        self._leave(owner)
        if over.done():
            return
        if failure is not None:
            over.set_exception(failure)
        else:
            over.set_result(result)

    def _leave(self, owner: Hashable) -> None:
        """The next turn is of the owner that has the fewest; of these, of who has waited longest."""
        self._busy[owner] -= 1
        if not self._busy[owner]:
            del self._busy[owner]
        waiting = [entry for entry in self._waiting if not entry[1].done() and self._may(entry[0])]
        if waiting:
            entry = min(waiting, key=lambda entry: self._busy[entry[0]])
            self._waiting.remove(entry)
            self._busy[entry[0]] += 1
            entry[1].set_result(None)
