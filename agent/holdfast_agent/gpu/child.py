"""The GPU helper as a child process: started, asked, killed. Knows nothing about what is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from typing import Any, Protocol

import anyio.to_thread

_REPLY_LIMIT_BYTES = 4 << 20
COMMAND = (
    sys.executable,
    "-P",
    *(("-s",) if sys.flags.no_user_site else ()),  # a guard's Holdfast may be installed for its user alone
    "-m",
    "holdfast_agent.gpu.helper",
)


class ChildError(Exception):
    """The helper ended, or said something that is no reply. ``str()`` says which."""


class Child(Protocol):
    """A running helper. Its calls are made one after the other."""

    @property
    def pid(self) -> int: ...

    async def wait_ready(self) -> None:
        """Return once the helper has opened the driver. May be cancelled and called again. Raises ``ChildError``."""

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The helper's reply to a request. A cancelled call makes the child unusable. Raises ``ChildError``."""

    def kill(self) -> None:
        """Send SIGKILL and let go of it; never blocks, and may be repeated."""

    def gone(self) -> bool:
        """Whether the helper has ended; never blocks."""

    async def wait(self, timeout_s: float) -> None:
        """Return when the helper has ended or the time is up."""


def _spawn(fd: int) -> subprocess.Popen[bytes]:
    """Takes about a millisecond: short enough for the loop, and a start can't outlive its caller."""
    return subprocess.Popen(COMMAND, stdin=fd, stdout=fd, start_new_session=True)


class HelperProcess:
    """The helper over a socket pair. ``Popen`` and not asyncio's subprocess: it costs a fifth of uvloop's,
    and a child that can't be killed leaves no watcher behind."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ready = False

    @classmethod
    async def start(cls) -> HelperProcess:
        """A new helper. Raises ``ChildError`` where the machine can't start one."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = _spawn(theirs.fileno())
        except OSError as error:
            ours.close()
            raise ChildError(f"the GPU helper can't be started: {error.strerror}") from error
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_REPLY_LIMIT_BYTES)
        except BaseException:
            ours.close()
            process.kill()
            raise
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait_ready(self) -> None:
        if not self._ready:
            greeting = await self._reply()
            if greeting != {"ready": True}:
                raise ChildError(f"the GPU helper gave no proper greeting: {greeting!r}")
            self._ready = True

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._writer.write(json.dumps(request).encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise ChildError(self._ending()) from error
        return await self._reply()

    def kill(self) -> None:
        self._process.kill()
        self._writer.transport.abort()

    def gone(self) -> bool:
        return self._process.poll() is not None

    async def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await anyio.to_thread.run_sync(self._process.wait, timeout_s)

    async def _reply(self) -> dict[str, Any]:
        try:
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise ChildError(self._ending())
            reply = json.loads(line)
        except OSError as error:
            raise ChildError(self._ending()) from error
        except ValueError as error:  # not JSON, or over the limit
            raise ChildError(f"the GPU helper gave no proper reply: {error}") from error
        if not isinstance(reply, dict):
            raise ChildError(f"the GPU helper gave no proper reply: {reply!r}")
        return reply

    def _ending(self) -> str:
        status = self._process.poll()
        return "the GPU helper ended" + ("" if status is None else f" with status {status}")
