"""A thread that reads what may block, with a deadline: what blocks it is left alone, and later reads go round it.

A read of /proc, or of a file on a server that is gone, can wait for ever in the kernel. All such calls of a job
go through its ``Turn``, which notes what they are about. When the job is late its thread is abandoned there, and
the subject of the call is *stuck* until the call returns, and another thread does the jobs to come.

All jobs work on the same state, so only one thread at a time runs Python on it: the lock is let go of during each
call, and a thread that was abandoned meanwhile touches nothing when it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio

P = ParamSpec("P")
T = TypeVar("T")
_MOST_THREADS = 4


class Abandoned(Exception):
    """This job's time was up; another one has taken its place."""


class Subject:
    """Something that is read. ``stuck`` while a call about it hasn't come back."""

    stuck: bool = False


class Turn:
    """One job's leave to read."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._subject: Subject | None = None
        self._blamed: Subject | None = None
        self._abandoned = False

    def call(self, subject: Subject, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Call the function; returns or raises as it does, or raises ``Abandoned`` if it took too long."""
        self._subject = subject
        self._lock.release()
        try:
            return function(*args, **options)
        finally:
            self._lock.acquire()
            self._subject = None
            if self._abandoned:
                raise Abandoned

    def abandon(self) -> Subject | None:
        """Give the job up; what it was reading is stuck from now on."""
        with self._lock:
            self._abandoned = True
            self._blamed = self._subject
            if self._blamed is not None:
                self._blamed.stuck = True
        return self._blamed

    def run(self, job: Callable[[Turn], None]) -> None:
        """Do the job, in this thread. Raises what it raises, but ``Abandoned``."""
        with self._lock:
            try:
                job(self)
            except Abandoned:
                pass
            finally:
                if self._blamed is not None:
                    self._blamed.stuck = False


class _Thread(threading.Thread):
    """Does one job after another; a daemon, so that one that is stuck never keeps the agent from ending."""

    def __init__(self, idle: list[_Thread]) -> None:
        super().__init__(name="holdfast sampling", daemon=True)
        self._jobs: queue.SimpleQueue[tuple[Turn, Callable[[Turn], None], Callable[[BaseException | None], None]]]
        self._jobs = queue.SimpleQueue()
        self._idle = idle

    def do(self, turn: Turn, job: Callable[[Turn], None], done: Callable[[BaseException | None], None]) -> None:
        self._jobs.put((turn, job, done))

    def run(self) -> None:
        while True:
            turn, job, done = self._jobs.get()
            failure: BaseException | None = None
            try:
                turn.run(job)
            except Exception as error:  # noqa: BLE001  the waiter raises it
                failure = error
            self._idle.append(self)
            done(failure)
            del turn, job, done, failure


class Readers:
    """The threads; one, as long as nothing blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Thread] = []
        self._started = 0

    async def run(self, job: Callable[[Turn], None], deadline_s: float) -> bool:
        """Whether the job was done in time; False at once while all threads are stuck, or the host has none left.

        Raises what the job raises.
        """
        if not self._idle:
            if self._started >= _MOST_THREADS:
                return False
            thread = _Thread(self._idle)
            try:
                thread.start()
            except RuntimeError:  # no process or thread may be started now
                return False
            self._started += 1
        else:
            thread = self._idle.pop()
        loop = asyncio.get_running_loop()
        turn = Turn(self._lock)
        over: asyncio.Future[None] = loop.create_future()

        def end(failure: BaseException | None) -> None:
            if over.done():
                return
            if failure is None:
                over.set_result(None)
            else:
                over.set_exception(failure)

        def done(failure: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the agent ends
                loop.call_soon_threadsafe(end, failure)

        thread.do(turn, job, done)
        try:
            with anyio.fail_after(deadline_s):
                await over
        except TimeoutError:
            turn.abandon()
            return False
        except asyncio.CancelledError:
            turn.abandon()
            raise
        return True

    def alone(self) -> threading.Lock:
        """To be held while the state is touched from outside a job."""
        return self._lock
