"""One host of a guarded command, and the ssh that leads to it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from holdfast.errors import ConfigError, HoldfastError, Unavailable
from holdfast.guard import logins, remote
from holdfast.guard.logins import Answer, Login

OPTIONS = ("-T", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
"""No terminal, no questions; a host that is silent for half a minute is lost."""
LAST_WORDS = 20
"""Lines of ssh's own that are kept."""
LINE_BYTES = 1 << 16

Write = Callable[[int, bytes], Awaitable[None]]
"""Writes whole lines to stdout or stderr of this process."""


class Connection:
    """``answer`` is set once the host has answered, ``end`` once its task has ended, ``problem`` where none starts."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self.answer: Answer | None = None
        self.status: int | None = None
        """The task's exit status, once it has ended in order."""
        self.problem: HoldfastError | None = None
        self._words: deque[str] = deque(maxlen=LAST_WORDS)
        self._process: anyio.abc.Process | None = None
        self._heard: BufferedByteReceiveStream | None = None
        self._all_heard = anyio.Event()

    async def open(self, timeout_s: float) -> None:
        """Start ssh. Raises ``ConfigError`` where there is none."""
        patience = ("-o", f"ConnectTimeout={max(1, round(timeout_s))}")
        try:
            # In a session of its own, so that Ctrl-C at the terminal reaches the ranks as one orderly end.
            self._process = await anyio.open_process(
                ["ssh", *OPTIONS, *patience, "--", self.login.target, logins.COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ConfigError("This machine has no ssh.", fix="Install an SSH client.") from error
        assert self._process.stdout is not None
        self._heard = BufferedByteReceiveStream(self._process.stdout)

    async def listen(self, write: Write) -> None:
        """Keep what ssh says; once the host has answered it comes from there, and is passed on."""
        assert self._process is not None
        assert self._process.stderr is not None
        try:
            async for data in self._process.stderr:
                self._words.extend(line.strip() for line in data.decode(errors="replace").splitlines())
                if self.answer is not None:
                    await write(remote.ERR, data)
        finally:
            self._all_heard.set()

    async def send(self, data: bytes) -> None:
        """Write to the host. One that is gone is noticed where its output ends."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.send(data)

    async def signal(self, number: int) -> None:
        """Have the guard there get a signal."""
        await self.send(json.dumps({"signal": number}).encode() + b"\n")

    async def hang_up(self) -> None:
        """End what runs there, and wait for the end of ssh."""
        if self._process is not None:
            assert self._process.stdin is not None
            await self._process.stdin.aclose()
            await self._process.wait()

    def abandon(self) -> None:
        """End ssh at once; what runs there notices."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def first_words(self) -> Answer:
        """The host's answer. Raises ``Unavailable`` where it can't be logged in to, or says something else."""
        assert self._heard is not None
        try:
            while not (line := await self._heard.receive_until(b"\n", LINE_BYTES)).startswith(logins.MARK):
                pass
            return logins.answer(self.login, line)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            await self._all_heard.wait()
            raise Unavailable(
                f"{self.login.name} can't be logged in to: {self.last_words()}.",
                fix=f"Try it by hand: ssh -o BatchMode=yes {self.login.target} true",
            ) from None
        except (ValueError, anyio.DelimiterNotFound) as error:
            raise Unavailable(
                f"{self.login.name} answers what no guard says.", fix="See what its shell prints when it starts."
            ) from error

    async def follow(self, write: Write) -> None:
        """Pass on what the task prints, in whole lines, until it has said how it ended, or is lost."""
        rest = {remote.OUT: b"", remote.ERR: b""}
        with contextlib.suppress(anyio.EndOfStream, anyio.IncompleteRead):
            while True:
                kind, data = await self._frame()
                if kind not in rest:
                    self._ended(json.loads(data))
                    break
                whole, end, part = (rest[kind] + data).rpartition(b"\n")
                if len(part) > LINE_BYTES:  # too long to wait for
                    whole, end, part = whole + end + part, b"", b""
                rest[kind] = part
                await write(kind, whole + end)
        for kind, data in rest.items():
            await write(kind, data)

    async def _frame(self) -> tuple[int, bytes]:
        assert self._heard is not None
        kind, length = remote.HEADER.unpack(await self._heard.receive_exactly(remote.HEADER.size))
        if length > remote.FRAME_BYTES:
            raise anyio.EndOfStream
        return kind, await self._heard.receive_exactly(length) if length else b""

    def _ended(self, said: dict[str, Any]) -> None:
        if "problem" in said:
            self.problem = Unavailable(f"{self.login.name}: {said['problem']}", fix=said["fix"])
        else:
            self.status = said["status"]

    def last_words(self) -> str:
        """The last that ssh said."""
        return next((line.rstrip(".") for line in reversed(self._words) if line), "ssh ended without a word")
