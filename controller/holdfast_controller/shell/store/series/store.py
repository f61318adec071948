"""Series of ranks, kept by a thread of their own: whatever the disk does, no decision waits for it.

What is to be kept waits in memory, up to ``WAITING_BYTES``; when that is full, nothing more is taken, and agents keep
theirs. Readings have a deadline. The thread is a daemon's: a disk that hangs doesn't keep the controller from ending.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast.errors import HoldfastError, Unavailable
from holdfast_controller.shell.store.series.file import Limits, Piece, SeriesFile

WAITING_BYTES = 16 << 20
BATCH = 500
BATCH_EVERY_S = 1.0
TRY_AGAIN_S = 10.0
TIDY_EVERY_S = 60.0
READ_WITHIN_S = 10.0
READS_MOST, READS_OF_ONE = 8, 4
"""At once, and of these for one user, whose further ones wait for the earlier."""
CLOSED_WITHIN_S = 2.0

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Read:
    work: Callable[[SeriesFile], Any]
    answer: Future[Any]


class SeriesStore:
    """Keeps pieces, and answers questions about what is kept. Its methods are for the event loop and never wait."""

    def __init__(
        self,
        file: SeriesFile,
        limits: Callable[[], Limits],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        """Why nothing can be kept at present; empty when all is well."""
        self.kept = 0
        """Pieces since the start."""
        self.bytes = 0
        """Of the file that are in use, as last seen."""
        self._file = file
        self._limits = limits
        self._wall = wall
        self._monotonic = monotonic
        self._waiting: deque[Piece] = deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._reads: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._reading = 0
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By user."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="series", daemon=True)

    def start(self) -> None:
        """Begin to keep what is handed in."""
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether nothing can be taken now."""
        return self._waiting_bytes >= WAITING_BYTES

    @property
    def waiting(self) -> int:
        """Pieces that are not on disk yet."""
        return len(self._waiting)

    def put(self, piece: Piece) -> bool:
        """Have a piece kept; False where it can't be taken now."""
        if self.full:
            return False
        with self._lock:
            self._waiting.append(piece)
            self._waiting_bytes += len(piece.data)
        return True

    async def ask(self, work: Callable[[SeriesFile], R], reader: str = "") -> R:
        """Return what ``work`` finds in the file. Raises ``Unavailable`` where that takes too long, or fails.

        ``reader``: the user who asks; empty where the controller does.
        """
        async with self._turns.setdefault(reader, asyncio.Semaphore(READS_OF_ONE)):
            return await self._ask(work)

    async def _ask(self, work: Callable[[SeriesFile], R]) -> R:
        if self._reading >= READS_MOST or not self._thread.is_alive():
            raise Unavailable("Series are read too often, or their disk hangs.", fix=_LATER)
        read = _Read(work, Future())
        self._reading += 1
        self._reads.put(read)
        try:
            found: R = await asyncio.wait_for(asyncio.wrap_future(read.answer), READ_WITHIN_S)
            return found
        except TimeoutError:
            problem = f"The series were not read within {READ_WITHIN_S:g} s: their disk is slow or hangs."
            raise Unavailable(problem, fix=_LATER) from None
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"The series can't be read: {error}.", fix=_LATER) from error
        finally:
            self._reading -= 1

    async def forget_all_but(self, known: Callable[[str], bool]) -> None:
        """Drop what is kept of jobs that aren't known any more."""
        jobs = await self.ask(lambda file: file.jobs())
        gone = [job for job in jobs if not known(job)]
        if gone:
            await self.ask(lambda file: file.forget(gone))

    def close(self) -> None:
        """Write what waits, if the disk lets us soon."""
        self._closing = True
        self._reads.put(None)
        if self._thread.is_alive():
            self._thread.join(CLOSED_WITHIN_S)

    # --- on the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        write_at = tidy_at = self._monotonic()
        while not self._closing:
            wait_s = max(0.0, min(write_at, tidy_at) - self._monotonic())
            try:
                read = self._reads.get(timeout=min(wait_s, BATCH_EVERY_S))
            except queue.Empty:
                read = None
            if read is not None:
                self._answer(read)
            now_s = self._monotonic()
            if now_s >= write_at:
                write_at = now_s + (BATCH_EVERY_S if self._write() else TRY_AGAIN_S)
            if now_s >= tidy_at:
                tidy_at = now_s + (0.0 if self._tidy() else TIDY_EVERY_S)
        self._write()
        self._file.close()

    def _answer(self, read: _Read) -> None:
        if not read.answer.set_running_or_notify_cancel():
            return
        try:
            read.answer.set_result(read.work(self._file))
        except (sqlite3.Error, OSError) as error:
            self._file.recover(error)
            read.answer.set_exception(error)
        except (HoldfastError, ValueError, ArithmeticError, LookupError) as error:
            read.answer.set_exception(error)

    def _write(self) -> bool:
        """Write what waits; False where that failed: it waits on."""
        while self._waiting:
            with self._lock:
                batch = [self._waiting[at] for at in range(min(BATCH, len(self._waiting)))]
            if not self._try(partial(self._file.write, batch)):
                return False
            with self._lock:
                for piece in batch:
                    self._waiting.popleft()
                    self._waiting_bytes -= len(piece.data)
            self.kept += len(batch)
        return True

    def _tidy(self) -> bool:
        more = [False]

        def work() -> None:
            more[0] = self._file.tidy(self._wall(), self._limits())
            self.bytes = self._file.size()

        return self._try(work) and more[0]

    def _try(self, work: Callable[[], None]) -> bool:
        """Do it; False where the disk or the file is in trouble, which is logged once."""
        try:
            work()
        except (sqlite3.Error, OSError) as error:
            self._file.recover(error)
            if not self.problem:
                log.warning("series.unwritable", error=str(error))
            self.problem = str(error)
            return False
        if self.problem:
            log.info("series.writable")
        self.problem = ""
        return True


_LATER = "Try again later; what the controller decides doesn't depend on them."
