"""Watches a daemon's event loop: how long nothing else could run in it, why, and where its code was meanwhile.

Theory of operation. A timer of the loop notes the time ten or twenty times a second. One that fires more than
``STALL_S`` too late is a stall. Meanwhile a thread has looked at the same notes, seldom while they are fresh: if the
timer is overdue, it keeps the stack of the loop's thread and whether that thread waited in a system call. When the
stall is over, its cause follows from what was used: CPU time of this process (``CODE``), a call that waited
(``WAIT``), or neither, because the process was stopped, its machine was suspended or had no CPU left for it
(``MACHINE``). Times are seconds since boot, suspended time included, so a wall clock that is set is no stall.

Code that keeps the interpreter's lock (a regular expression) delays the thread, too. Its stack is then taken when the
lock is free again, which is in the function that made the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import json
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from types import FrameType

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast._daemon.metrics.daemon import LONGEST_STALL, STALLS
from holdfast._daemon.metrics.series import Series

BEAT_S = 0.05
"""Seconds between two notes of the time, unless asked for. A stall may have been so much longer than was measured."""
LOOK_S = 0.05
"""Seconds between two looks at a loop that is held, and how late such a look may come by itself."""
STALL_S = 0.1
"""A timer that fires so long after its time is a stall."""
LOG_EVERY_S = 10.0
"""Seconds between two log lines of stalls, each with the count of those between. One that is twice as long as the last
of them is logged at once."""
STILL_HELD_S = 5.0
"""A stall that goes on is logged after so long, and again whenever it has doubled."""
SELDOM, SELDOM_S = "HOLDFAST_LOOKS_SELDOM", 1.0
"""Set for the daemons of a guard, whose stalls no one reads: they note the time once a second."""
DEEPEST = 24
"""Innermost frames of a stack that are kept."""
REPORT = "HOLDFAST_STALLS"
"""Names a directory, in tests: each stall that code caused is appended there to a file of this process, as JSON."""


class Cause(enum.StrEnum):
    """Why nothing ran in the event loop."""

    CODE = "code"
    """Code of this process used the CPU without a pause."""
    WAIT = "wait"
    """The loop's thread waited in a call: a disk, a lock, a name to be looked up."""
    MACHINE = "machine"
    """The process did not run: it was stopped, its machine was suspended, or had no CPU for it."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which nothing else could run in the event loop. ``stack`` begins with the innermost frame."""

    seconds: float
    cpu_s: float
    """CPU time of the loop's thread in it."""
    gc_s: float
    """Seconds in which Python looked for cycles of garbage."""
    cause: Cause
    stack: tuple[str, ...]
    """``file:line function`` of each frame; empty where none was taken in time."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the loop's thread during a stall."""

    stack: tuple[str, ...]
    waits: bool


class LoopWatch:
    """Watches the running event loop from ``start`` to ``stop``. ``on_stall`` is called in the loop after each stall.

    ``beat_s``: seconds between two notes of the time. An idle process uses about 0.1 % of a core for ten in a second.
    """

    def __init__(self, on_stall: Callable[[Stall], None] = lambda _: None, beat_s: float = BEAT_S) -> None:
        self.series = Series()
        self._beat_s = max(beat_s, SELDOM_S) if SELDOM in os.environ and REPORT not in os.environ else beat_s
        self._on_stall = on_stall
        self._longest = dict.fromkeys(Cause, 0.0)
        self._beat = float("inf")
        self._gc_began, self._gc_s = 0.0, 0.0
        self._look: _Look | None = None
        self._logged_at, self._logged_s, self._unlogged = -LOG_EVERY_S, 0.0, 0
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        for cause in Cause:
            self.series.declare(STALLS, cause.value)
            self.series.set(LONGEST_STALL, 0.0, cause.value)

    def start(self) -> None:
        """Begin to watch. Call it in the loop, once what is loaded at the start is loaded."""
        self._loop = asyncio.get_running_loop()
        self._thread_id, self._native_id = threading.get_ident(), threading.get_native_id()
        gc.callbacks.append(self._on_gc)
        self._note()
        threading.Thread(target=self._keep_looking, name="loop-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch; its thread ends by itself soon after."""
        self._stopped = True
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
        if self._timer is not None:
            self._timer.cancel()

    def late_s(self) -> float:
        """How long the loop has been held so far, as far as it has not been reported to ``on_stall`` yet."""
        return _now() - self._beat - self._beat_s

    def _note(self) -> None:
        self._beat, self._cpu_s, self._process_s = _now(), time.thread_time(), time.process_time()
        self._look, self._gc_s = None, 0.0
        self._timer = self._loop.call_later(self._beat_s, self._on_beat)

    def _on_beat(self) -> None:
        late_s = self.late_s()
        if late_s > STALL_S:
            cpu_s = time.thread_time() - self._cpu_s
            look = self._look
            cause = _cause(late_s, cpu_s, time.process_time() - self._process_s, look)
            stack = look.stack if look else ()
            self._report(Stall(round(late_s, 3), round(cpu_s, 3), round(self._gc_s, 3), cause, stack))
        self._note()

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self._gc_s += time.perf_counter() - self._gc_began

    def _report(self, stall: Stall) -> None:
        cause = stall.cause.value
        self.series.observe(STALLS, stall.seconds, cause)
        self._longest[stall.cause] = max(self._longest[stall.cause], stall.seconds)
        self.series.set(LONGEST_STALL, self._longest[stall.cause], cause)
        if stall.cause is Cause.CODE and (directory := os.environ.get(REPORT)):
            with contextlib.suppress(OSError), open(f"{directory}/{os.getpid()}", "a") as file:
                file.write(json.dumps(asdict(stall)) + "\n")
        if self._beat - self._logged_at < LOG_EVERY_S and stall.seconds < 2 * self._logged_s:
            self._unlogged += 1
        else:
            log.warning("loop.stalled", **asdict(stall), not_logged=self._unlogged)
            self._logged_at, self._logged_s, self._unlogged = self._beat, stall.seconds, 0
        self._on_stall(stall)

    def _keep_looking(self) -> None:
        told_s, sleep_s = STILL_HELD_S, self._beat_s
        while not self._stopped:
            planned = _now() + sleep_s
            time.sleep(sleep_s)
            now, beat = _now(), self._beat
            held_s = now - beat - self._beat_s
            sleep_s = max(LOOK_S, LOOK_S - held_s)
            if held_s < LOOK_S:
                told_s = STILL_HELD_S
                continue
            stack = _stack(sys._current_frames().get(self._thread_id))
            if self._beat != beat:
                continue  # it is over, and this is the stack of something later
            before = self._look or _Look((), waits=False)
            # Without a stack the loop has nothing to do, or is about to fire its timer: what held it is over.
            look = self._look = _Look(stack or before.stack, before.waits)
            # Only now a look at a file, which lets go of the interpreter's lock: it may not come back in time. One in
            # time is enough: a process that was stopped has none.
            if stack and now - planned < LOOK_S and _waits(self._native_id) and self._look is look:
                self._look = _Look(look.stack, waits=True)
            if held_s > told_s:
                told_s = 2 * held_s
                log.warning("loop.held", seconds=round(held_s, 1), stack=stack)


def _cause(late_s: float, cpu_s: float, process_s: float, look: _Look | None) -> Cause:
    # A tenth of a core is what a machine may have left for us; less than that in a long stall explains nothing.
    if cpu_s > max(min(STALL_S, late_s / 2), late_s / 10):
        return Cause.CODE
    if look is not None and look.waits:
        return Cause.WAIT
    # Else another thread of ours had the interpreter's lock, or the process did not run.
    return Cause.CODE if process_s > late_s / 2 else Cause.MACHINE


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _waits(thread: int) -> bool:
    """Whether a thread of this process sleeps in a system call, rather than runs or waits for a CPU."""
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"S", b"D")
    except OSError:
        return False


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    """The frames that were called by the event loop, the innermost first; empty while it asks what is ready."""
    found: list[str] = []
    if frame is not None and frame.f_code.co_filename == selectors.__file__:
        return ()
    while frame is not None and len(found) < DEEPEST:
        code = frame.f_code
        if "/asyncio/" in code.co_filename:
            break
        found.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return tuple(found)
