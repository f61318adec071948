"""One connection to a shim: JSON lines both ways, without a task of its own.

Reading happens in the event loop's own callback and writing at once in ``send``, so that an exit reaches the
reactor, and a launch the shim, without a hop in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 18
MESSAGE_MAX_BYTES = 8 << 20
"""A shim drops the connection over a longer line."""
LINE_MAX_BYTES = 16 << 20
"""A shim sends far less; more means that the other side is no shim."""


class ShimLink:
    """Sends and receives messages; ``on_closed`` is called once when the other side is gone."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[dict[str, Any]], None],
        on_closed: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_closed = on_closed
        self._received = bytearray()
        self._unsent = bytearray()
        self._open = True
        self._loop.add_reader(sock, self._read)

    def send(self, message: dict[str, Any]) -> bool:
        """Write one message; what the socket can't take now follows as it drains. Nothing once it is closed.

        False for a message that no shim would take, since it is too long; then nothing was sent.
        """
        if _characters(message) > MESSAGE_MAX_BYTES:
            return False  # seen without writing all of it, which takes a tenth of a second
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(data) > MESSAGE_MAX_BYTES:
            return False
        if not self._open:
            return True
        if self._unsent:
            self._unsent += data
            return True
        sent = self._write(data)
        if sent < len(data) and self._open:
            self._unsent += data[sent:]
            self._loop.add_writer(self._sock, self._drain)
        return True

    def close(self) -> None:
        """Close without a call of ``on_closed``. The shim and its ranks don't mind."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._lost()
            return 0

    def _drain(self) -> None:
        sent = self._write(self._unsent)
        del self._unsent[:sent]
        if not self._unsent and self._open:
            self._loop.remove_writer(self._sock)

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._received += data
        if data[-1:] != b"\n" and b"\n" not in data:
            if len(self._received) > LINE_MAX_BYTES:
                self._lost()
            return
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        for line in lines:
            if not self._open:
                return
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._lost()
                return
            self._on_message(message)

    def _lost(self) -> None:
        if self._open:
            self.close()
            # Never from within the caller's own send: it would find its state changed under its hands.
            self._loop.call_soon(self._on_closed)


def connect(directory: Path) -> socket.socket:
    """Connect to the ``sock`` in a worker's directory, whatever the length of its path.

    Raises ``OSError``, also where neither root nor the directory's owner listens there.
    """
    holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{holder}/sock")
        if peer(sock)[1] not in (0, os.fstat(holder).st_uid):
            raise PermissionError(errno.EPERM, "a process of another user listens there", str(directory / "sock"))
    except BaseException:
        with contextlib.suppress(OSError):
            sock.close()
        raise
    finally:
        os.close(holder)
    return sock


def peer(sock: socket.socket) -> tuple[int, int]:
    """Pid and uid of the process at the other end, as the kernel reports them. Raises ``OSError``."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid


def _characters(value: Any) -> int:
    """Characters of all texts in a message: its JSON is no shorter."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(len, value)) + sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list | tuple) else 0
