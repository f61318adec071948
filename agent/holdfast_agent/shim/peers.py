"""The leases that the workers of a gang give each other: datagrams between their shims.

Theory of operation. While the controller is away, a worker runs on for as long as each of its peers answers it. Every
shim is holder and granter at once. As a *holder* it asks its peers, and counts an answer from when the question was
sent. As a *granter* it answers whatever asks, and counts a peer's silence from the last question that it answered. So
if a granter has answered nothing for longer than a holder's term, the holder has stopped, whichever way of the network
is cut: a question and its answer need both.

A holder relies on nothing that was never there: until every peer has answered once (a firewall may drop datagrams) it
only asks, says so in its questions (PROBE), and has no deadline here. From then on it asks with HOLD, and only those
questions are remembered, so a granter speaks only of peers that will stop by themselves.

A datagram is a header and its keyed hash. The key is the generation's own secret; an answer returns the time at which
its question was sent, so an old one that is sent again grants nothing. Nor does an old question: a peer that is gone is
not kept alive by what others repeat of it.

`PeerBook` decides, with times as arguments, and is what the simulation runs; `Peers` is its socket.
"""

from __future__ import annotations

from _blake2 import blake2b
from _operator import _compare_digest
from _socket import AF_INET, AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, inet_pton
from _socket import socket as Socket
from _struct import Struct

from holdfast_agent.shim.processes import now_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROBE, HOLD, ANSWER = 1, 2, 3
ASK_SHARE = 8  # questions in a term
FIRST_S = 0.2  # to the second question; doubles until every peer has answered
SILENT_SHARE = 1.19  # of the term: KILL has come a twelfth after its end, and clocks may differ by a tenth
HEADER = Struct("!BIIIQ")  # kind, sender, receiver, the asking worker's generation, when it asked in microseconds
MAC_BYTES = 16
BATCH = 512  # datagrams read at once, so that a flood does not keep the loop
NEVER = float("inf")


class PeerBook:
    """The leases between one worker and its peers. Raises KeyError, TypeError or ValueError for a bad order."""

    def __init__(self, order: dict[str, Any], generation: int, term_s: float) -> None:
        self.index, self.generation, self.term_s = int(order["index"]), generation, term_s
        self.holds = True  # until nothing of the generation is left
        self.addresses = {int(index): _split(address) for index, address in order["others"]}
        if not self.addresses:
            raise ValueError("it has no peers")
        self._key = str(order["secret"]).encode()[:64]
        self._answered: dict[int, float] = {}  # by peer: when the question that it answered last was sent
        # By holder: its generation, when it sent the newest question of it, and when that came.
        self._heard: dict[int, tuple[int, int, float]] = {}
        self._began: float | None = None
        self._missed = False
        self._next_s, self._pause_s = 0.0, FIRST_S

    @property
    def held(self) -> bool:
        """Whether every peer has answered once, so that their silence counts."""
        return len(self._answered) == len(self.addresses)

    @property
    def deadline(self) -> float:
        """Until when all peers together let this worker run, in seconds since boot; for ever while not `held`."""
        return min(self._answered.values()) + self.term_s if self.held else NEVER

    def where(self, index: int) -> str:
        """A peer's address, host:port."""
        host, port = self.addresses[index]
        return f"{host}:{port}"

    def next_s(self, now: float) -> float:
        """When `ask` has something to do, or `silent` changes by itself."""
        turns = [at + self._silent_s for _, _, at in self._heard.values() if at + self._silent_s > now]
        return min([*turns, *([self._next_s] if self.holds else [])], default=NEVER)

    def ask(self, now: float) -> list[tuple[int, bytes]]:
        """(Peer, datagram) of each question that it is time for."""
        if not self.holds or now < self._next_s:
            return []
        self._began = now if self._began is None else self._began
        kind, longest_s = HOLD if self.held else PROBE, self.term_s / ASK_SHARE
        self._pause_s = longest_s if self.held else min(2 * self._pause_s, longest_s)
        self._next_s = now + self._pause_s
        return [(index, self._seal(kind, index, self.generation, int(now * 1e6))) for index in self.addresses]

    def take(self, data: bytes, now: float) -> bytes | None:
        """Note a datagram, and return the answer if it is a question. Whatever is not of this gang is ignored."""
        header, mac = data[: HEADER.size], data[HEADER.size :]
        if len(header) < HEADER.size or not _compare_digest(self._mac(header), mac):
            return None
        kind, sender, receiver, generation, sent_us = HEADER.unpack(header)
        if receiver != self.index:
            return None
        if kind == ANSWER:
            self._on_answer(sender, generation, sent_us / 1e6)
            return None
        if kind == HOLD and (generation, sent_us) > self._heard.get(sender, (0, -1, 0.0))[:2]:
            self._heard[sender] = generation, sent_us, now
        return self._seal(ANSWER, sender, generation, sent_us)

    def _on_answer(self, sender: int, generation: int, sent_s: float) -> None:
        if generation != self.generation or sender not in self.addresses:
            return
        first = not self.held
        self._answered[sender] = max(self._answered.get(sender, 0.0), sent_s)
        if first and self.held:
            self._next_s = 0.0  # let them know that they are relied on

    def never_answered(self, now: float) -> list[int]:
        """The peers that have not answered once in a term; said once, and empty otherwise."""
        if self._missed or self.held or self._began is None or now < self._began + self.term_s:
            return []
        self._missed = True
        return sorted(self.addresses.keys() - self._answered.keys())

    def silent(self, now: float) -> list[list[int]]:
        """(Worker, generation) of the peers that held a lease of ours and have let it run out."""
        return sorted([index, last] for index, (last, _, at) in self._heard.items() if now >= at + self._silent_s)

    @property
    def _silent_s(self) -> float:
        return self.term_s * SILENT_SHARE

    def _seal(self, kind: int, receiver: int, generation: int, sent_us: int) -> bytes:
        header = HEADER.pack(kind, self.index, receiver, generation, sent_us)
        return header + self._mac(header)

    def _mac(self, header: bytes) -> bytes:
        return blake2b(header, digest_size=MAC_BYTES, key=self._key).digest()


class Peers:
    """A worker's book and the socket for it. Raises OSError, or KeyError, TypeError or ValueError for a bad order."""

    def __init__(self, order: dict[str, Any], generation: int, term_s: float) -> None:
        self.book = PeerBook(order, generation, term_s)
        families = {AF_INET6 if ":" in host else AF_INET for host, _ in self.book.addresses.values()}
        if len(families) > 1:
            raise ValueError("its peers have addresses of both IP versions")
        family = families.pop()
        for host, _ in self.book.addresses.values():
            inet_pton(family, host)  # a name would have to be looked up, which may take minutes
        self.socket = Socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
        try:
            if family == AF_INET6:
                self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
            self.socket.bind(("", int(order["port"])))
        except OSError:
            self.socket.close()
            raise

    def ask(self) -> None:
        """Send the questions that it is time for."""
        for index, question in self.book.ask(now_s()):
            self._send(question, self.book.addresses[index])

    def receive(self) -> None:
        """Take what has come, and answer it."""
        for _ in range(BATCH):
            try:
                data, address = self.socket.recvfrom(256)
            except OSError:
                return
            if answer := self.book.take(data, now_s()):
                self._send(answer, address)

    def close(self) -> None:
        """Close the socket; nothing is answered any more."""
        self.socket.close()

    def _send(self, data: bytes, address: Any) -> None:
        try:
            self.socket.sendto(data, address)
        except OSError:
            pass  # no route, or a full queue: as good as lost


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
