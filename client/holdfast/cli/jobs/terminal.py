"""The user's terminal, joined to a rank's or a shell's: keys go there as they are typed, with the window's size."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Awaitable, Callable, Iterator

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus

from holdfast._sdk.reconnect import is_away
from holdfast.errors import HoldfastError, NotFound, WrongState

KEYS_MOST = 4000
"""Bytes of one call."""
AGAIN_S = 0.1
"""Time between two tries to give the program what it has not taken."""
_STDIN = 0
_RAW_INPUT = termios.BRKINT | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXON
_RAW_OUTPUT = termios.OPOST
_RAW_LOCAL = termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG


Write = Callable[[bytes, int, int], Awaitable[int]]
"""Gives keys, and the window's rows and columns, to a program; how many bytes were taken."""


class Keyboard:
    """Sends what is typed by ``write``; ``leave`` is called once the user types Enter ~ . to go away.

    ``whole``: what is printed drives the terminal altogether, line ends included.
    """

    def __init__(self, write: Write, leave: Callable[[], None], *, whole: bool = False) -> None:
        self._write = write
        self._leave = leave
        self._whole = whole
        self._escape = Escape()
        self._sending = anyio.Lock()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Type until cancelled; then the terminal is as it was before. Once started, keys are sent as they are."""
        with _raw(_STDIN, whole=self._whole):
            task_status.started()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_window)
                while data := await typed():
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
            await give(keys, lambda rest: self._write(rest, size.lines, size.columns))


async def give(data: bytes, write: Callable[[bytes], Awaitable[int]]) -> bool:
    """Write data, however long it takes the program to read it; False where no program is there to take it."""
    while True:
        try:
            taken = await write(data)
        except (WrongState, NotFound):
            return False  # between two launches, or after the last
        except HoldfastError as error:
            if not is_away(error):
                raise
            return False
        data = data[taken:]
        if not data:
            return True
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


async def typed() -> bytes:
    """The next bytes of stdin; empty at its end, and once a terminal has gone."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    try:
        loop.add_reader(_STDIN, ready.set)
    except PermissionError:  # a file, which never has to be waited for
        await anyio.lowlevel.checkpoint()
        return os.read(_STDIN, KEYS_MOST)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(_STDIN)
    try:
        return os.read(_STDIN, KEYS_MOST)
    except OSError:
        return b""


@contextlib.contextmanager
def _raw(fd: int, *, whole: bool) -> Iterator[None]:
    """Within, keys come one by one, unseen and unchanged. What is printed keeps its line ends unless ``whole``."""
    before = termios.tcgetattr(fd)
    mode = termios.tcgetattr(fd)
    mode[0] &= ~_RAW_INPUT
    if whole:
        mode[1] &= ~_RAW_OUTPUT
    mode[3] &= ~_RAW_LOCAL
    termios.tcsetattr(fd, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
