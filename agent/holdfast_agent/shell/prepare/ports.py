"""Ports of the host's range: found free, held until the launch, then kept from others until the worker is empty."""

from __future__ import annotations

import errno
import socket
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, field


class NoPortFree(Exception):
    """Every port of the range is taken."""


class PortTaken(Exception):
    """A port that a launched worker has to have again is another's."""


@dataclass
class Ports:
    """Hands out ports of ``span``, in turn, so that one just used rests as long as possible.

    ``seed`` spreads agents that share one machine over the range.
    """

    span: range
    seed: str = ""
    _held: dict[Hashable, list[socket.socket]] = field(default_factory=dict)
    _taken: dict[int, Hashable] = field(default_factory=dict)
    _next: int = -1

    def hold(self, owner: Hashable, count: int) -> list[int]:
        """Bind ``count`` ports for ``owner`` and keep them bound. Raises ``NoPortFree``; then none is held."""
        if self._next < 0:
            self._next = zlib.crc32(self.seed.encode()) % len(self.span)
        found: list[int] = []
        for _ in range(len(self.span)):
            port = self.span[self._next]
            self._next = (self._next + 1) % len(self.span)
            if port in self._taken or not self._bind(owner, port):
                continue
            found.append(port)
            if len(found) == count:
                return found
        self.free(owner)
        raise NoPortFree(f"no {count} ports of {self.span[0]}-{self.span[-1]} are free (agent.toml: port_range)")

    def hold_these(self, owner: Hashable, ports: list[int]) -> int | None:
        """Bind exactly these ports. Returns the first that is taken, None when all are held."""
        for port in ports:
            if self._taken.get(port, owner) != owner or not self._bind(owner, port, reuse=True):
                self.free(owner)
                return port
        return None

    def release(self, owner: Hashable) -> None:
        """Close the sockets, so that the ranks can bind; no other worker of this host is offered these ports."""
        for sock in self._held.pop(owner, ()):
            sock.close()

    def free(self, owner: Hashable) -> None:
        """The owner needs its ports no more."""
        self.release(owner)
        for port in [port for port, taker in self._taken.items() if taker == owner]:
            del self._taken[port]

    def _bind(self, owner: Hashable, port: int, *, reuse: bool = False) -> bool:
        # Bound but never listening: a peer that comes early is refused and tries again. Without SO_REUSEADDR the
        # bind also fails for ports with connections in TIME_WAIT, which makes the hold exclusive; a port that is
        # already decided for this worker must not fail for that.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if reuse:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("", port))
        except OSError as error:
            sock.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        self._held.setdefault(owner, []).append(sock)
        self._taken[port] = owner
        return True
