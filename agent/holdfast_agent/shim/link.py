"""One connection to the agent: JSON lines both ways, never waiting for the other side."""

from __future__ import annotations

import os
import sys
from _socket import SO_PEERCRED, SOL_SOCKET
from _socket import socket as Socket

LINE_LIMIT_BYTES = 8 << 20  # one message from the agent: environments and 100,000 arguments
OUT_LIMIT_BYTES = 1 << 20  # what an agent may leave unread beyond the replay


class Link:
    """`fd` is the caller's to watch and this one's to close."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)
        self.fd = fd
        self.out = bytearray()
        self.out_limit_bytes = OUT_LIMIT_BYTES
        self._in = bytearray()

    def receive(self) -> list[bytes] | None:
        """The lines that are now complete, None at the end. Raises OSError, ValueError for a line too long."""
        try:
            data = os.read(self.fd, 1 << 18)
        except BlockingIOError:
            return []
        if not data:
            return None
        self._in += data
        lines: list[bytes] = []
        if b"\n" in data:
            *whole, self._in = self._in.split(b"\n")
            lines = [bytes(line) for line in whole]
        if max(map(len, (self._in, *lines))) > LINE_LIMIT_BYTES:
            raise ValueError("line too long")
        return lines

    def send(self, line: bytes) -> bool:
        """Hands over what the agent takes and keeps the rest, however much. False when the agent is gone."""
        self.out += line
        try:
            while self.out:
                del self.out[: os.write(self.fd, self.out)]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    @property
    def overdue(self) -> bool:
        """Whether more is unread than will be kept."""
        return len(self.out) > self.out_limit_bytes

    def close(self) -> None:
        """Close the connection; unsent data is lost."""
        os.close(self.fd)


def may_order(fd: int) -> bool:
    """Whether a process of root's, or of our own user's, has connected: by the kernel's word. Raises OSError."""
    connection = Socket(fileno=fd)
    try:
        credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)  # pid, uid, gid
    finally:
        connection.detach()
    return int.from_bytes(credentials[4:8], sys.byteorder) in (0, os.geteuid())
