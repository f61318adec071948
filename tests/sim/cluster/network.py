"""The network: streams between hosts and controllers, and calls of clients.

A stream keeps what TCP promises: what arrives, arrives in order and once, unless the stream breaks, and then each
side learns of it in its own time, or from its own patience only. Datagrams between hosts are lost and late, and
their ways are cut one direction at a time. Everything else is hostile: delays, one-way cuts
that hold messages back, resets that lose them, an older stream's messages that come after a newer one's, and the
same message twice in a row. Calls of clients keep nothing at all: they are lost, doubled and overtake each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.cluster.framing import Hello, Welcome
from tests.sim.engine import Crash, Life

if TYPE_CHECKING:
    from tests.sim.cluster.host import Host
    from tests.sim.cluster.world import World

FOR_NOW = float("inf")
KEEPALIVE_S = 20.0
"""After so long without an answer from the other machine a side gives a stream up."""


@dataclass(eq=False)
class End:
    """One side of a stream."""

    life: Life
    receive: Callable[[Any], None]
    closed: Callable[[], None]
    died: Callable[[], None]
    open: bool = True
    held: list[Any] = field(default_factory=list)
    """What is on its way here while the way is cut."""
    last: float = 0.0
    """When the newest message on its way here arrives."""


FIN = "fin"
ONCE = (str, Hello, Welcome)
"""Heartbeats and their answers are told apart by their order alone, and a session has one hello."""


class Stream:
    """A connection of a host to one controller."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.host = host
        self.agent: End
        self.controller: End
        self.broken = False

    def to_controller(self, message: Any) -> None:
        """The agent sends."""
        self._send(self.agent, self.controller, message, up=True)

    def to_agent(self, message: Any) -> None:
        """The controller sends."""
        self._send(self.controller, self.agent, message, up=False)

    def close(self, mine: End, *, silently: bool = False) -> None:
        """A side is done with it, or dead; the other hears so, unless its machine lost power."""
        if not mine.open:
            return
        mine.open = False
        other, up = (self.controller, True) if mine is self.agent else (self.agent, False)
        if silently or self.broken:
            self.world.engine.after(2 * KEEPALIVE_S, lambda: self._end(other), other.life, other.died)
        else:
            self._send(mine, other, FIN, up=up)

    def cut(self, host_cut: tuple[bool, bool]) -> None:
        """Ways were cut or healed: (up, down). What was held goes on."""
        for end, is_cut, up in ((self.controller, host_cut[0], True), (self.agent, host_cut[1], False)):
            if not is_cut and end.held:
                held, end.held = end.held, []
                for message in held:
                    self._carry(end, message, up=up)

    def _send(self, mine: End, other: End, message: Any, *, up: bool) -> None:
        weights, dice = self.world.weights, self.world.dice
        if self.broken or (not mine.open and message != FIN):
            return
        if weights.drop and dice.random() < weights.drop:
            self.reset()
            return
        if self.world.network.is_cut(self.host, up=up):
            other.held.append(message)
            return
        self._carry(other, message, up=up)
        if weights.duplicate and not isinstance(message, ONCE) and dice.random() < weights.duplicate:
            self.world.seen("duplicate")
            self._carry(other, message, up=up)

    def _carry(self, other: End, message: Any, *, up: bool) -> None:
        engine = self.world.engine
        other.last = max(other.last, engine.now + self.world.latency_s())
        engine.after(other.last - engine.now, lambda: self._arrive(other, message, up=up))

    def _arrive(self, other: End, message: Any, *, up: bool) -> None:
        """It is in the machine's socket; a process that is frozen reads it later."""
        if self.broken or not other.open or not other.life.alive:
            return
        controller, heard_before = self.world.controller, self.world.oracles.arrived.get(self.host, 0.0)
        if up and message != FIN and controller is not None and other.life is controller.life:
            self.world.oracles.on_arrived(self.host)
        if other.life.frozen:
            other.life.waiting.append(lambda: self._read_late(other, message, heard_before))
            return
        try:
            self._read(other, message)
        except Crash:
            other.died()

    def _read_late(self, other: End, message: Any, heard_before: float) -> None:
        controller = self.world.controller
        heard = controller is not None and other.life is controller.life  # what one of the past reads is nothing
        if not other.open:
            # The stream was found broken before that: what still came on it nobody can read.
            if heard or other is not self.controller:
                self.world.oracles.on_unreadable(self.host, heard_before)
            return
        if other is self.controller and message != FIN and heard:
            # How long it lay there its reader can't know.
            self.world.oracles.on_arrived(self.host)
        self._read(other, message)

    def _read(self, other: End, message: Any) -> None:
        if not other.open:
            return
        if message == FIN:
            self._end(other)
        else:
            other.receive(message)

    def reset(self) -> None:
        """What is on its way is lost; each side learns of it when it pleases."""
        self.world.seen("reset")
        self.broken = True
        for end in (self.agent, self.controller):
            delay_s = self.world.dice.random() * KEEPALIVE_S
            self.world.engine.after(delay_s, partial(self._end, end), end.life, end.died)

    def _end(self, end: End) -> None:
        if end.open:
            end.open = False
            end.closed()


class Network:
    """Which ways are cut, and all streams that may still carry something."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = random.Random(world.plan.dice + 1)
        """Of datagrams, so that they don't disturb what else is drawn."""
        self.apart: dict[tuple[str, str], float] = {}
        """(sender, receiver) between which nothing gets through now, or did not until this true time."""
        self.cuts: dict[str, tuple[bool, bool]] = {}
        """By host: whether (up, down) is cut."""
        self.streams: list[Stream] = []

    def datagram(self, sender: Host, address: str, port: int, data: bytes, back: int) -> None:
        """From one shim to another's port; it arrives soon, late, or not at all."""
        world = self.world
        target = next((host for host in world.hosts.values() if host.address == address), None)
        if target is None or self.dice.random() < world.weights.drop:
            return
        delay_s = world.weights.latency_s * (0.5 + self.dice.random())
        if world.weights.slow and self.dice.random() < world.weights.slow:
            delay_s = self.dice.random() * 8.0

        def arrive() -> None:
            if not target.powered or self.is_apart(sender.name, target.name):
                return
            for shim in list(target.shims.values()):
                if shim.generation and shim.generation.port == port and shim.life.alive:
                    shim.take(data, sender, back)

        if not self.is_apart(sender.name, target.name):
            world.engine.after(delay_s, arrive)

    def is_apart(self, sender: str, receiver: str) -> bool:
        """Whether nothing gets from one host to the other."""
        return self.apart.get((sender, receiver), 0.0) == FOR_NOW

    def set_apart(self, pairs: Iterable[tuple[str, str]], *, apart: bool) -> None:
        """Cut or heal ways between hosts."""
        for pair in pairs:
            if apart:
                self.apart[pair] = FOR_NOW
            elif pair in self.apart:
                self.apart[pair] = min(self.apart[pair], self.world.engine.now)

    def is_cut(self, host: str, *, up: bool) -> bool:
        """Whether nothing gets through that way."""
        return self.cuts.get(host, (False, False))[0 if up else 1]

    def set_cut(self, host: str, cut: tuple[bool, bool]) -> None:
        """Cut or heal."""
        self.cuts[host] = cut
        self.streams = [s for s in self.streams if not s.broken and (s.agent.open or s.controller.open)]
        for stream in self.streams:
            if stream.host == host:
                stream.cut(cut)
