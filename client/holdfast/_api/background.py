"""An event loop in a thread, on which synchronous calls run: also where the caller has a running loop of its own.

One for the whole process, because gRPC's asyncio side wants one: it starts with the first open client and ends with
the last, and leaves no thread and no socket.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, WrongState

T = TypeVar("T")


class _Loop:
    """The thread and its loop."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.users = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="holdfast-client", daemon=True)
        self.thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on this loop."""
        return threading.get_ident() == self.thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


_lock = threading.Lock()
_shared: _Loop | None = None


def _taken() -> _Loop:
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = _Loop()
        _shared.users += 1
        return _shared


def _given_back(used: _Loop) -> None:
    global _shared
    with _lock:
        used.users -= 1
        last = used.users == 0
        if last and _shared is used:
            _shared = None
    if last:
        used.stop()


class Background:
    """One client's share of the loop. Every method may be called from any thread but the loop's own."""

    def __init__(self) -> None:
        self._used: _Loop | None = None
        self._closed = False
        self._lock = threading.RLock()
        """Of a thread that holds it a reader may be collected, whose end is another call."""
        self._running: set[concurrent.futures.Future[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, cancelled where the caller is interrupted. Raises ``WrongState`` once closed."""
        try:
            future = self._started(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, concurrent.futures.CancelledError) and self._closed:
                raise _closed() from None
            if isinstance(error, HoldfastError):
                # The way through the loop's thread and gRPC would push the sentence out of a notebook's view, and its
                # frames would keep the channel, with its threads, for as long as the caller keeps the error.
                error.__context__ = None
                raise error.with_traceback(None) from None
            raise
        finally:
            with self._lock:
                self._running.discard(future)

    def _started(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._lock:
            if self._closed:
                raise _closed()
            if self._used is None:
                self._used = _taken()
            if self._used.is_here:
                raise WrongState(
                    "A callback of the client can't make calls: they would wait for themselves.",
                    fix="Note what it says, and call from a thread of your own.",
                )
            if self._used.pid != os.getpid():
                raise WrongState(
                    "This client belongs to the process that this one was forked from.",
                    fix="Make one in each process, which is started afresh: multiprocessing.get_context('spawn')",
                )
            future = asyncio.run_coroutine_threadsafe(work, self._used.loop)
            self._running.add(future)
            return future

    def iterate(self, made: Callable[[], AsyncGenerator[list[T]]]) -> Iterator[T]:
        """The items of the lists that an asynchronous generator gives, which ends when the reader leaves."""
        batches = made()
        turn = asyncio.Lock()

        async def following() -> list[T] | None:
            async with turn:
                return await anext(batches, None)

        async def ended() -> None:
            async with turn:  # what a reader who was interrupted had asked for is given up first
                await batches.aclose()

        try:
            while (batch := self.run(following())) is not None:
                yield from batch
        finally:
            self._finish(ended())

    def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` to its end; only begin it where the loop itself has dropped the last reference to a reader."""
        used = self._used
        if used is not None and used.is_here:
            used.loop.create_task(work)
            return
        with contextlib.suppress(WrongState):  # closed: then it has ended with its client
            self.run(work)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``last``, give up what is still going on, and let the loop go. More than once does no harm.

        Raises ``WrongState`` on the loop itself, and closes nothing.
        """
        with self._lock:
            if self._used is not None and self._used.is_here:
                raise WrongState(
                    "A callback of the client can't close it: that would wait for itself.",
                    fix="Note what it says, and close from a thread of your own.",
                )
            used, self._used, done = self._used, None, self._closed
            self._closed = True
            running = list(self._running)
        if used is None or done or used.pid != os.getpid():
            return
        for future in running:
            future.cancel()
        try:
            asyncio.run_coroutine_threadsafe(last(), used.loop).result()
        finally:
            _given_back(used)


def _closed() -> WrongState:
    return WrongState("The client is closed.", fix="Make another: holdfast.Client()")
