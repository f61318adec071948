"""Bounds on the connections of a port of gRPC, by address and by caller: gRPC itself bounds them only all together.

gRPC accepts connections and shakes hands in threads of its own, and tells of a connection with its first call. But at
the begin of each handshake it asks for the certificate to show. Those questions are counted, and once enough of them
have come to matter, a thread looks at the process's own descriptors. A connection is silent until a caller with a
certificate has called on it. Two things follow from a look:

- Where silent ones take more than their share, the addresses that hold most lose their oldest.
- Where one address begins many in a second and stays silent, the kernel refuses as many of them as it takes: in the
  queues of gRPC handshakes come before the calls of others, and keep them waiting.

So a flood of connections keeps its own address out, and no other; in quiet times all this costs a count.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from holdfast._daemon import log
from holdfast._daemon.tls_door import PER_S, network_of
from holdfast_controller.shell.calls import syn_filter

SHARE = 0.25
"""Of a port's connections, which may be silent."""
FEW = 8
"""An address keeps so many silent ones, however many others hold: agents of one address connect together."""
OF_ONE_PARTY = 1_024
"""Connections of one user or host: more than it may have calls and streams in progress. At most half of a port's."""
TOLD_EVERY_S = 60.0
CALM = 0.75
"""Silent ones are brought down to this part of their share, so that one look is for many handshakes."""
COUNTED = 64
"""Handshakes after which their rate is known."""
AGAIN_S = 1.0
"""Until the next look while an address is held back: who was refused tries again after a second."""
LEAST_ADMITTED = 1 / 1024
_BREATH_S, _AT_ONCE = 0.0005, 32
"""A look pauses after so many descriptors: calls are answered meanwhile."""


class ConnectionBounds:
    """Bounds the connections of one port. ``begun`` may be called by any thread, ``look`` by one at a time."""

    def __init__(self, callers: dict[str, str], most: int, share: float = SHARE) -> None:
        """``callers``: by peer, as gRPC names it, the party that called; those that are gone are taken out here."""
        self._callers = callers
        self._may_hold = max(int(most * share), 1)
        self._of_one_party = min(OF_ONE_PARTY, max(most // 2, 1))
        self.port = 0
        """Set once it is open."""
        self._numbers, self._begun = itertools.count(1), 0
        self._each = max(min(COUNTED, self._may_hold // 4), 1)
        self._next_look = self._may_hold
        """Handshakes that may begin before the next look."""
        self._seen, self._seen_at = 0, time.monotonic()
        """Handshakes that had begun at the last look, and when that was."""
        self._told = -math.inf
        self._since: dict[str, None] = {}
        """Peers that were connected at the last look, the oldest first."""
        self._admitted: dict[str, float] = {}
        """By address, the share of its new connections that the kernel lets in, where that isn't all."""
        self._asked, self._unwatched = threading.Event(), threading.Lock()

    def begun(self) -> None:
        """A handshake begins: have the connections looked at if this may be one too many, or one too soon."""
        self._begun = number = next(self._numbers)
        if number % self._each == 0:
            self._asked.set()
            if self._unwatched.acquire(blocking=False):  # the first time, and by one thread
                threading.Thread(target=self._watch, name="connections", daemon=True).start()

    def _watch(self) -> None:
        """Look whenever that may change something, for as long as the process runs."""
        before, then = 0, -math.inf
        while True:
            asked = self._asked.wait(AGAIN_S if self._admitted else None)
            self._asked.clear()
            begun, now = self._begun, time.monotonic()
            is_fast = begun - before >= PER_S * (now - then)
            before, then = begun, now
            if self._admitted or begun - self._seen >= self._next_look or (asked and is_fast):
                self.look()
                time.sleep(AGAIN_S / 8)

    def look(self) -> None:
        """Cut the connections in excess, and hold back the addresses that begin too many."""
        called = self._callers.copy()
        connected: dict[str, int] = {}
        listening: list[int] = []
        try:
            for fd, address in _sockets(self.port):
                if address is None:
                    listening.append(fd)
                else:
                    connected[_named(address)] = fd
        except OSError as error:
            log.warning("connections.not_seen", error=str(error))
            return
        parties = {_spelt(peer): party for peer, party in called.items()}
        fresh = [peer for peer in connected if peer not in self._since]
        self._since = dict.fromkeys((*(peer for peer in self._since if peer in connected), *connected))
        for peer in called:
            if _spelt(peer) not in connected:
                self._callers.pop(peer, None)
        silent = [(peer, _network(peer)) for peer in self._since if peer not in parties]
        of_parties = [(peer, party) for peer, party in parties.items() if peer in connected]
        excess = [*crowding(silent, self._may_hold), *beyond(of_parties, self._of_one_party)]
        self._cut({peer: connected[peer] for peer in excess}, called)
        self._next_look = max(self._may_hold - len(silent), self._may_hold // 4, 1)

        begun, now = self._begun, time.monotonic()
        rate = (begun - self._seen) / max(now - self._seen_at, 0.001)
        self._seen, self._seen_at = begun, now
        of_fresh = Counter(_network(peer) for peer in fresh if peer not in parties)
        rates = {name: rate * count / len(fresh) for name, count in of_fresh.items() if count >= FEW}
        self._admit(shares(self._admitted, rates), listening)
        if (excess or self._admitted) and now > self._told + TOLD_EVERY_S:
            self._told = now
            slowed = sorted(self._admitted, key=self._admitted.__getitem__)[:3]
            log.warning("connections.cut", count=len(excess), silent=len(silent), port=self.port, slowed=slowed)

    def _cut(self, excess: Mapping[str, int], called: Mapping[str, str]) -> None:
        """Cut these peers, but for those who have called since."""
        for number, (peer, fd) in enumerate(excess.items()):
            if number % _AT_ONCE == 0:
                time.sleep(_BREATH_S)
                since = {_spelt(each) for each in self._callers.copy().keys() - called.keys()}
            if peer not in since:
                _cut(fd, peer)

    def _admit(self, admitted: dict[str, float], listening: Iterable[int]) -> None:
        """Have the kernel let in these shares of the new connections."""
        if admitted == self._admitted:
            return
        self._admitted = admitted
        for fd in listening:
            try:
                with _borrowed(fd) as found:
                    syn_filter.refuse(found, admitted)
            except OSError as error:
                log.warning("connections.not_slowed", error=str(error))


def shares(admitted: Mapping[str, float], rates: Mapping[str, float]) -> dict[str, float]:
    """The share of each address's new connections to let in, where that isn't all.

    ``admitted`` is what was let in until now, ``rates`` how many silent ones a second began of those.
    """
    found: dict[str, float] = {}
    for name in admitted.keys() | rates.keys():
        wanted = admitted.get(name, 1.0) * min(PER_S / max(rates.get(name, 0.0), 1.0), 2.0)
        if wanted < 1:
            found[name] = max(wanted, LEAST_ADMITTED)
    return found


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


def _sockets(port: int) -> Iterator[tuple[int, tuple[str, int] | None]]:
    """Descriptors of this process's TCP sockets at ``port``, and who is at their other ends: None where it listens."""
    for number, name in enumerate(os.listdir("/proc/self/fd"), 1):
        with contextlib.suppress(OSError), _borrowed(int(name)) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                yield int(name), None if listens else found.getpeername()[:2]
        if number % _AT_ONCE == 0:
            time.sleep(_BREATH_S)


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


def _network(peer: str) -> str:
    return network_of(peer.partition(" ")[0])
