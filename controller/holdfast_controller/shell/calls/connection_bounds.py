"""Bounds on the connections of a port of gRPC, by address and by caller: gRPC itself bounds them only all together.

gRPC accepts connections and shakes hands in threads of its own, and tells of a connection with its first call. But at
the begin of each handshake it asks for the certificate to show. Those questions are counted, and once enough of them
have come to matter, the process looks at its own descriptors. A connection is silent until a caller with a certificate
has called on it. Where silent ones take more than their share, the addresses that hold most lose their oldest. So a
flood of connections keeps its own address out, and no other; in quiet times all this costs a count.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from holdfast._daemon import log
from holdfast._daemon.tls_door import network_of

SHARE = 0.25
"""Of a port's connections, which may be silent."""
FEW = 8
"""An address keeps so many silent ones, however many others hold: agents of one address connect together."""
OF_ONE_PARTY = 1_024
"""Connections of one user or host: more than it may have calls and streams in progress. At most half of a port's."""
TOLD_EVERY_S = 60.0
CALM = 0.75
"""Silent ones are brought down to this part of their share, so that one look is for many handshakes."""


class ConnectionBounds:
    """Bounds the connections of one port. ``begun`` may be called by any thread."""

    def __init__(self, callers: dict[str, str], most: int, share: float = SHARE) -> None:
        """``callers``: by peer, as gRPC names it, the party that called; those that are gone are taken out here."""
        self._callers = callers
        self._may_hold = max(int(most * share), 1)
        self._of_one_party = min(OF_ONE_PARTY, max(most // 2, 1))
        self.port = 0
        """Set once it is open."""
        self._begun = 0
        self._next_look = self._may_hold
        self._told = -math.inf
        self._since: dict[str, None] = {}
        """Peers that were connected at the last look, the oldest first."""

    def begun(self) -> None:
        """A handshake begins: look at the connections if this may be one too many."""
        self._begun += 1
        if self._begun >= self._next_look:
            self._begun = 0
            self._look()

    def _look(self) -> None:
        called = self._callers.copy()
        try:
            connected = {_named(peer): fd for fd, peer in _connections(self.port)}
        except OSError as error:
            log.warning("connections.not_seen", error=str(error))
            return
        parties = {_spelt(peer): party for peer, party in called.items()}
        self._since = dict.fromkeys((*(peer for peer in self._since if peer in connected), *connected))
        for peer in called:
            if _spelt(peer) not in connected:
                self._callers.pop(peer, None)
        silent = [(peer, network_of(_host(peer))) for peer in self._since if peer not in parties]
        of_parties = [(peer, party) for peer, party in parties.items() if peer in connected]
        excess = [*crowding(silent, self._may_hold), *beyond(of_parties, self._of_one_party)]
        for peer in excess:
            _cut(connected[peer], peer)
        if excess and time.monotonic() > self._told + TOLD_EVERY_S:
            self._told = time.monotonic()
            log.warning("connections.cut", count=len(excess), silent=len(silent), port=self.port)
        self._next_look = max(self._may_hold - len(silent), self._may_hold // 4, 1)


def crowding(silent: Iterable[tuple[str, str]], most: int) -> list[str]:
    """The connections to cut where there are more than ``most``; ``silent`` is (connection, address), the oldest first.

    They are the oldest ones of the addresses that hold most; of ``FEW`` or fewer none is cut.
    """
    held: defaultdict[str, list[str]] = defaultdict(list)
    for peer, address in silent:
        held[address].append(peer)
    counts = [len(each) for each in held.values()]
    if sum(counts) <= most:
        return []
    level = max(counts)
    while level > FEW and sum(min(count, level) for count in counts) > most * CALM:
        level = max(level * 3 // 4, FEW)
    return [peer for peers in held.values() for peer in peers[: max(len(peers) - level, 0)]]


def beyond(connections: Iterable[tuple[str, str]], most: int) -> list[str]:
    """Each owner's connections beyond its ``most`` newest; ``connections`` is (connection, owner), the oldest first."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    for peer, owner in connections:
        held[owner].append(peer)
    return [peer for peers in held.values() for peer in peers[: max(len(peers) - most, 0)]]


def _connections(port: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """Descriptors of this process's TCP connections at ``port``, and who is at their other ends."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _borrowed(int(name)) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
                yield int(name), found.getpeername()[:2]


def _cut(fd: int, peer: str) -> None:
    """Shut a connection down, of which gRPC then learns as of one that its other end has closed.

    Not if the descriptor is another's by now. No copy of it is made: closing one of a file of SQLite's would take the
    locks of the process away.
    """
    with contextlib.suppress(OSError), _borrowed(fd) as found:
        if _named(found.getpeername()[:2]) == peer:
            found.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket that gRPC owns. Raises ``OSError`` for what is none."""
    found = socket.socket(fileno=fd)
    try:
        yield found
    finally:
        found.detach()


def _named(peer: tuple[str, int]) -> str:
    host = peer[0].partition("%")[0].removeprefix("::ffff:")
    return f"{host} {peer[1]}"


def _spelt(peer: str) -> str:
    """Spell like ``_named`` what gRPC calls ``ipv4:10.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _named((host.strip("[]"), int(port))) if port.isdigit() else peer


def _host(peer: str) -> str:
    return peer.partition(" ")[0]
