"""Runs stack dump tools: bounded in time, in output and in number. A tool that can't be killed is left alone.

``Popen`` in a thread and not the loop's own subprocesses: a child that stays in the kernel leaves no watcher
behind and no task that can't be cancelled.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast_agent.shell.evidence.fair_turns import FairTurns

READ_BYTES = 64 << 10
ERRORS_MAX_BYTES = 16 << 10
MEMORY_BYTES = 4 << 30
"""Of one tool. What it maps of large libraries to write counts as well."""
KILLED_S = 0.5
"""How long a killed tool may take to be gone before it is left to itself."""
SETTLES_S = 1.0
"""A process that was stopped before runs for a moment once a tool lets go, until its own stop takes hold again."""
REMEMBERED_S = 60.0
"""How long it is remembered that a process was stopped: longer than samples are apart."""
ASKED_FOR: ContextVar[str] = ContextVar("ASKED_FOR", default="")
"""The job whose processes the tools of this task look at; empty for the agent's own looks, one at a time."""
# Nothing of the daemon's own; no debug information is fetched from anywhere.
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "RUST_BACKTRACE": "0", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a tool ended. ``problem`` is set where it was not by itself; ``output`` then is what came before."""

    code: int | None
    output: str = ""
    errors: str = ""
    problem: str = ""


def _bound(pid: int) -> None:
    """Bound a tool's memory, which its target may claim to need; on a host that is short of it, the tool goes first."""
    with contextlib.suppress(ProcessLookupError, OSError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def _started(argv: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
    """The tool, which has ``stdin`` now. Raises ``OSError``."""
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(stdin)


class _Turn:
    """One tool's run, seen from the loop that waits for it and from the thread that attends to it."""

    def __init__(self, given: int) -> None:
        self.abandoned = False
        self._given = given
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def given(self) -> int:
        """A descriptor of what the tool gets as its stdin, to be closed. Raises ``OSError``."""
        with self._lock:
            # The caller who no longer waits has closed it: its number may be another file's.
            if self.abandoned or self._given < 0:
                return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            return os.dup(self._given)

    def take(self, process: subprocess.Popen[bytes]) -> None:
        """Take the process that the thread has started, and kill it if the caller no longer waits."""
        with self._lock:
            self._process = process
            if self.abandoned:
                process.kill()

    def abandon(self) -> None:
        """Kill the process, from the event loop, because the caller no longer waits."""
        with self._lock:
            self.abandoned = True
            if self._process is not None:
                self._process.kill()


class Tools:
    """All tools that the agent runs. ``search`` is where they are looked for, before ``PATH``."""

    def __init__(
        self,
        parallel: int = 2,
        deadline_s: float = 5.0,
        output_max_bytes: int = 8 << 20,
        search: str = str(Path(sys.executable).parent),
    ) -> None:
        self.deadline_s = deadline_s
        self._output_max_bytes = output_max_bytes
        self._search = search
        self._turns = FairTurns(parallel)
        self._limiter = anyio.CapacityLimiter(parallel)
        # Until when, on the monotonic clock, a pid counts as a tool of ours, or as stopped by one.
        self._tools: dict[int, float] = {}
        self._targets: dict[int, float] = {}
        # When a tool last let go of a pid.
        self._let_go: dict[int, float] = {}
        self._unkillable: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def at_work(self) -> bool:
        """Whether a tool has been started and has not ended yet."""
        with self._lock:
            return math.inf in self._tools.values()

    def is_ours(self, pid: int) -> bool:
        """Whether a pid is a tool at work, or one that has just ended: its target is not being debugged by a user."""
        return time.monotonic() < self._tools.get(pid, 0.0)

    def stops(self, pid: int) -> bool:
        """Whether a tool is at work that stops this process, or one was a moment ago."""
        return time.monotonic() < self._targets.get(pid, 0.0)

    def stopped_since(self, pid: int, at_s: float) -> bool:
        """Whether a tool has stopped this process at some time since then, on the monotonic clock."""
        return self._targets.get(pid) == math.inf or self._let_go.get(pid, -math.inf) >= at_s

    def find(self, name: str) -> str | None:
        """Path of a tool; None if it is not installed."""
        return shutil.which(name, path=self._search) or shutil.which(name)

    async def run(
        self,
        argv: Sequence[str],
        after_kill: Callable[[], None] | None = None,
        name: str = "",
        stops: int = 0,
        given: int = -1,
    ) -> Ran:
        """Run one to its end or its deadline, when its turn comes. Cancellation kills it and doesn't wait for that.

        Jobs take turns (``ASKED_FOR``), since their programs can make each reader take all of its time.
        ``after_kill`` is called, in a thread, once a tool had to be killed. ``stops`` is the pid that it stops,
        ``given`` the descriptor that it gets as its stdin, which the caller closes.
        """
        turn = _Turn(given)
        name = name or Path(argv[0]).name
        try:
            async with self._turns.turn(ASKED_FOR.get()):
                return await anyio.to_thread.run_sync(
                    self._run, argv, name, after_kill, turn, stops, limiter=self._limiter, abandon_on_cancel=True
                )
        except anyio.get_cancelled_exc_class():
            turn.abandon()
            raise

    def _run(
        self, argv: Sequence[str], name: str, after_kill: Callable[[], None] | None, turn: _Turn, stops: int
    ) -> Ran:
        self._unkillable = [process for process in self._unkillable if process.poll() is None]
        self._mark(self._targets, stops, math.inf)
        try:
            process = _started(argv, turn.given())
        except OSError as error:
            self._mark(self._targets, stops, 0.0)
            return Ran(None, problem=f"{name} can't be started: {error.strerror}")
        self._mark(self._tools, process.pid, math.inf)
        _bound(process.pid)
        turn.take(process)
        try:
            ran = self._attend(process, name)
            if (ran.problem or turn.abandoned) and after_kill is not None:
                after_kill()
            return ran
        finally:
            for marks, pid in ((self._tools, process.pid), (self._targets, stops)):
                self._mark(marks, pid, time.monotonic() + SETTLES_S)
            self._note_let_go(stops)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def _note_let_go(self, pid: int) -> None:
        now_s = time.monotonic()
        with self._lock:
            for old in [old for old, at_s in self._let_go.items() if now_s - at_s > REMEMBERED_S]:
                del self._let_go[old]
            if pid:
                self._let_go[pid] = now_s

    def _mark(self, marks: dict[int, float], pid: int, until_s: float) -> None:
        now_s = time.monotonic()
        with self._lock:
            for old in [old for old, until in marks.items() if until <= now_s]:
                del marks[old]
            if pid:
                marks[pid] = until_s

    def _attend(self, process: subprocess.Popen[bytes], name: str) -> Ran:
        deadline = time.monotonic() + self.deadline_s
        output, errors, problem = self._read(process, deadline)
        if not problem:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                problem = f"did not answer within {self.deadline_s:g} s"
        if problem:
            problem = f"{name} {problem}" + self._kill(process)
        text, said = (data.decode("utf-8", "replace") for data in (output, errors))
        return Ran(process.returncode, text, said, problem)

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes, str]:
        """Output, errors and a problem, read until both streams end, the time is up, or the output is too long."""
        assert process.stdout is not None
        assert process.stderr is not None
        kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        limits = dict(zip(kept, (self._output_max_bytes, ERRORS_MAX_BYTES), strict=True))
        poll = select.poll()
        for handle in kept:
            poll.register(handle, select.POLLIN)
        still_open, problem = set(kept), ""
        while still_open and not problem:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                problem = f"did not answer within {self.deadline_s:g} s"
            for handle, _ in ready:
                data = os.read(handle, READ_BYTES)
                if not data:
                    poll.unregister(handle)
                    still_open.discard(handle)
                elif len(kept[handle]) < limits[handle]:
                    kept[handle] += data
                elif handle == process.stdout.fileno():
                    problem = f"printed more than {self._output_max_bytes >> 20} MiB"
        output, errors = kept.values()
        return bytes(output), bytes(errors), problem

    def _kill(self, process: subprocess.Popen[bytes]) -> str:
        """The result in words."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            self._unkillable.append(process)
            return f", and outlives KILL (pid {process.pid})"
        return " and was killed"
