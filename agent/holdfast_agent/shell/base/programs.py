"""The one way to start a program that runs for a job: by a reaper, so that nothing of it stays.

``holdfast_agent.shim.program_reaper`` is the program's parent, and says what is made sure of. Here lie the bounds that
the agent keeps: time, and what is read of the output.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shim import program_reaper
from holdfast_agent.shim.walls import cgroup

T = TypeVar("T")
KEPT_BYTES = 1 << 20
ENVIRON_MOST_BYTES = 8 << 20
"""Read of /proc/PID/environ: no program is started with more, but a process can point the file at all its memory."""
PRINTED_MOST_BYTES = 64 << 20
"""A program that prints more is ended."""
ANSWER_S = 15.0
"""How long the reaper may take to end what it runs, before it is killed itself."""
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}
_READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a program by a cgroup of its own: its path, memory and processes. Empty or 0: no bound."""

    cgroup: str = ""
    memory_bytes: int = 0
    pids: int = 0


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Program:
    """A command, the account and the place it runs as and in, and its bounds.

    ``user``: None, or one without a uid, is the agent's own. ``file_bytes``: size of one file that it may write, 0 for
    any. ``may_gain``: it may gain privileges, as the admin's own commands may. ``may_leave``: what it leaves behind
    stays when it ends with 0.
    """

    argv: Sequence[str]
    within_s: float
    env: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)
    cwd: str = "/"
    user: WorkerUser | None = None
    umask: int = 0o022
    limits: Limits = NO_LIMITS
    file_bytes: int = 0
    may_gain: bool = False
    may_leave: bool = False

    def _order(self) -> bytes:
        user = self.user or WorkerUser("", "/", "")
        order: dict[str, Any] = {
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "within_s": self.within_s,
            "uid": user.uid,
            "gid": user.gid,
            "groups": user.groups,
            "umask": self.umask,
            "cgroup": self.limits.cgroup,
            "memory_bytes": self.limits.memory_bytes,
            "pids": self.limits.pids,
            "file_bytes": self.file_bytes,
            "may_gain": self.may_gain,
            "may_leave": self.may_leave,
        }
        return json.dumps(order).encode() + b"\n"


class How(enum.Enum):
    """How a program's run was over."""

    ENDED = "ended by itself"
    NOT_STARTED = "not started"
    LATE = "not ended in time"
    CALLED_OFF = "called off"
    FLOOD = "printed too much"
    LOST = "its reaper was killed"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program's run was over. ``code`` as subprocess has it, where it ended by itself.

    ``problem``: why it was not started, or what it did, such as "did not end within 5 s"; empty where it ended by
    itself. ``left`` names what outlives KILL. ``output`` and ``errors`` are the last of what it printed.
    """

    how: How
    code: int | None = None
    problem: str = ""
    left: str = ""
    output: bytes = b""
    errors: bytes = b""

    @property
    def failure(self) -> str:
        """How it failed, where it ended by itself with another code than 0."""
        assert self.code is not None
        return f"was killed by signal {-self.code}" if self.code < 0 else f"failed with code {self.code}"


class Running:
    """A program under its reaper. ``fileno`` becomes readable when it is over."""

    def __init__(self, program: Program, stdout: int, stderr: int) -> None:
        """Start it. Raises ``OSError``."""
        self._limits, self._within_s = program.limits, program.within_s
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", program_reaper.__file__],
                    stdin=theirs.fileno(),
                    stdout=stdout,
                    stderr=stderr,
                    cwd="/",
                    env={"LANG": "C.UTF-8"},
                    start_new_session=True,
                )
            self._control.settimeout(ANSWER_S)
            self._control.sendall(program._order())
        except BaseException:
            self._control.close()
            raise

    def fileno(self) -> int:
        """For ``poll``, as long as it is not closed."""
        return self._control.fileno()

    def call_off(self) -> None:
        """Have it killed, with all that it has started."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def ended(self) -> Ran:
        """Wait for the reaper's answer, for a bounded time, and let go of it. Blocks."""
        data = b""
        try:
            while not data.endswith(b"\n") and (more := self._control.recv(4096)):
                data += more
        except OSError:
            pass  # it does not answer
        finally:
            self._control.close()
        if not data.endswith(b"\n"):
            self._end_without_it()
            return Ran(How.LOST, problem="was lost: its reaper was killed")
        said = json.loads(data)
        if not said["left"]:
            self._process.wait()
        if said["problem"]:
            return Ran(How.NOT_STARTED, problem=said["problem"], left=said["left"])
        if said["status"] is None:
            how, why = (
                (How.LATE, f"did not end within {self._within_s:g} s")
                if said["late"]
                else (How.CALLED_OFF, "was called off")
            )
            return Ran(how, problem=why, left=said["left"])
        return Ran(How.ENDED, said["status"], left=said["left"])

    def _end_without_it(self) -> None:
        """The reaper is gone, or stuck: end its session, and its cgroup where there is one."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._limits.cgroup:
            with (
                contextlib.suppress(OSError),
                open(f"{self._limits.cgroup}/cgroup.kill", "wb", buffering=0) as file,
            ):
                file.write(b"1")
            cgroup.remove(self._limits.cgroup)


class _Kept:
    """The last of what a program writes to a stream: to a pipe, or ``in_file`` where it may go on after its end."""

    def __init__(self, *, in_file: bool) -> None:
        self.data, self.count = bytearray(), 0
        self.in_file = in_file
        if in_file:
            with tempfile.TemporaryFile() as file:
                self.fd, self.theirs = os.dup(file.fileno()), os.dup(file.fileno())
        else:
            self.fd, self.theirs = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.fd, False)

    def read(self) -> bool:
        """Whether there was anything to read in the pipe."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except OSError:
            return False
        self.count += len(data)
        self.data += data
        if len(self.data) > 2 * KEPT_BYTES:
            del self.data[:-KEPT_BYTES]
        return bool(data)

    def last(self) -> bytes:
        """The last of it, as it is there now."""
        if self.in_file:
            return os.pread(self.fd, KEPT_BYTES, max(0, os.fstat(self.fd).st_size - KEPT_BYTES))
        while self.count <= PRINTED_MOST_BYTES and self.read():
            pass
        return bytes(self.data[-KEPT_BYTES:])

    def give(self) -> None:
        """The program has its end."""
        os.close(self.theirs)
        self.theirs = -1

    def close(self) -> None:
        for fd in (self.fd, self.theirs):
            if fd >= 0:
                os.close(fd)


def run(program: Program, stop: int = -1, *, merged: bool = False) -> Ran:
    """Run a program to its end. ``stop`` is a descriptor that becomes readable when it is called off. Blocks.

    ``merged``: what it writes to stderr is in ``output``, in its order.
    """
    streams: list[_Kept] = []
    try:
        for _ in range(1 if merged else 2):
            streams.append(_Kept(in_file=program.may_leave))
        running = Running(program, streams[0].theirs, streams[-1].theirs)
        for stream in streams:
            stream.give()
        flood = _attend(running, [] if program.may_leave else streams, stop, program.within_s)
        ran = running.ended()
        output, errors = streams[0].last(), b"" if merged else streams[1].last()
        if flood:
            problem = f"printed more than {PRINTED_MOST_BYTES >> 20} MiB"
            return Ran(How.FLOOD, problem=problem, left=ran.left, output=output, errors=errors)
        return dataclasses.replace(ran, output=output, errors=errors)
    except OSError as error:
        return Ran(How.NOT_STARTED, problem=error.strerror or str(error))
    finally:
        for stream in streams:
            stream.close()


def _attend(running: Running, streams: Sequence[_Kept], stop: int, within_s: float) -> bool:
    """Read what it prints until it is over, or is to end. Whether it printed too much."""
    poll = select.poll()
    readers = {stream.fd: stream for stream in streams}
    for fd in (running.fileno(), *readers, *([stop] if stop >= 0 else [])):
        poll.register(fd, select.POLLIN)
    until = time.monotonic() + within_s + ANSWER_S
    while True:
        left_s = until - time.monotonic()
        ready = {fd for fd, _ in poll.poll(max(0.0, left_s) * 1000)}
        if running.fileno() in ready:
            return False
        if stop in ready or left_s <= 0:
            running.call_off()
            return False
        for fd in ready:
            stream = readers[fd]
            if not stream.read():
                poll.unregister(fd)
            elif stream.count > PRINTED_MOST_BYTES:
                running.call_off()
                return True


async def attended(work: Callable[[int], T], limiter: anyio.CapacityLimiter | None = None) -> T:
    """The result of ``work(stop)``, called in a thread. A cancellation makes ``stop`` readable, and is waited for."""
    stop = os.eventfd(0)
    done = anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell_when_cancelled, stop, done)
            with anyio.CancelScope(shield=True):
                # A cancellation reaches it by ``stop``; then it cleans up and ends.
                result = await anyio.to_thread.run_sync(work, stop, limiter=limiter)
            done.set()
    finally:
        os.close(stop)
    await anyio.lowlevel.checkpoint_if_cancelled()
    return result


async def run_async(program: Program, limiter: anyio.CapacityLimiter | None = None) -> Ran:
    """``run`` in a thread. A cancellation ends the program and all that it has started."""
    try:
        return await attended(partial(run, program), limiter)
    except OSError as error:  # no descriptor to call it off with
        return Ran(How.NOT_STARTED, problem=error.strerror or str(error))


class Streamed:
    """A program whose output is read while it runs."""

    def __init__(self, running: Running, stdout: asyncio.StreamReader, errors: _Kept) -> None:
        self.stdout = stdout
        self._running, self._errors = running, errors
        self._ran: Ran | None = None

    async def ended(self) -> Ran:
        """Wait for its end. ``output`` is empty."""
        if self._ran is None:
            ran = await anyio.to_thread.run_sync(self._running.ended)
            self._ran = dataclasses.replace(ran, errors=self._errors.last())
        return self._ran

    async def end(self) -> None:
        """End it, and all that it has started."""
        if self._ran is None:
            self._running.call_off()
            with anyio.CancelScope(shield=True):
                await self.ended()


@asynccontextmanager
async def streamed(program: Program) -> AsyncIterator[Streamed]:
    """The program, started; ended with the context. Raises ``OSError``."""
    output, errors = _Kept(in_file=False), _Kept(in_file=False)
    try:
        running = Running(program, output.theirs, errors.theirs)
        reader = asyncio.StreamReader()
        pipe = os.fdopen(output.fd, "rb", 0)
        output.fd = -1
        for stream in (output, errors):
            stream.give()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        made = Streamed(running, reader, errors)
        try:
            yield made
        finally:
            transport.close()
            await made.end()
    finally:
        output.close()
        errors.close()


async def _tell_when_cancelled(stop: int, done: anyio.Event) -> None:
    try:
        await done.wait()
    except BaseException:
        os.eventfd_write(stop, 1)
        raise
