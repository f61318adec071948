"""The user's terminal, joined to a rank's: keys go there as they are typed, and the window's size with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Callable, Iterator

import anyio

from holdfast._sdk.reconnect import is_away
from holdfast.client import Client
from holdfast.errors import HoldfastError, WrongState

KEYS_MOST = 2048
"""Bytes of one call."""
AGAIN_S = 0.1
"""Time between two tries to give the program what it has not taken."""
_STDIN = 0
_RAW_INPUT = termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON
_RAW_LOCAL = termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG


class Keyboard:
    """Sends what is typed to rank 0 of a job; ``leave`` is called once the user types Enter ~ . to go away."""

    def __init__(self, client: Client, job_id: str, leave: Callable[[], None]) -> None:
        self._client = client
        self._job_id = job_id
        self._leave = leave
        self._escape = Escape()
        self._sending = anyio.Lock()

    async def run(self) -> None:
        """Type until cancelled; then the terminal is as it was before."""
        with _raw(_STDIN):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_window)
                while data := await _typed():
                    keys, left = self._escape.feed(data)
                    await self._send(keys)
                    if left:
                        self._leave()
                        break
                tasks.cancel_scope.cancel()

    async def _follow_window(self) -> None:
        await self._send(b"")
        with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
            async for _ in changes:
                await self._send(b"")

    async def _send(self, keys: bytes) -> None:
        """Give the program these keys, however long it takes to read them; what no program is there for is lost."""
        async with self._sending:
            size = os.get_terminal_size(_STDIN)
            while True:
                try:
                    taken = await self._client.write_terminal(
                        self._job_id, keys, rows=size.lines, columns=size.columns
                    )
                except WrongState:
                    return  # between two launches, or after the last
                except HoldfastError as error:
                    if not is_away(error):
                        raise
                    return
                keys = keys[taken:]
                if not keys:
                    return
                await anyio.sleep(AGAIN_S)


class Escape:
    """Finds Enter ~ . in what is typed, as ssh does; Enter ~ ~ is a tilde."""

    def __init__(self) -> None:
        self._begun = True
        self._tilde = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """The bytes for the program, and whether the user leaves."""
        out = bytearray()
        for byte in data:
            key = bytes((byte,))
            if self._tilde:
                self._tilde = False
                if key == b".":
                    return bytes(out), True
                out += b"~" if key == b"~" else b"~" + key
            elif self._begun and key == b"~":
                self._tilde = True
                continue
            else:
                out += key
            self._begun = key in b"\r\n"
        return bytes(out), False


async def _typed() -> bytes:
    """The next keys; empty once the terminal has gone."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(_STDIN, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(_STDIN)
    try:
        return os.read(_STDIN, KEYS_MOST)
    except OSError:
        return b""


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Within, keys come one by one, unseen and unchanged. What is printed keeps its line ends."""
    before = termios.tcgetattr(fd)
    mode = termios.tcgetattr(fd)
    mode[0] &= ~_RAW_INPUT
    mode[3] &= ~_RAW_LOCAL
    termios.tcsetattr(fd, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
