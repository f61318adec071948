"""An agent's way to the controller: dials, beats, gives up and dials again, as the real link does."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tests.sim.cluster import framing, hangs
from tests.sim.cluster.network import End, Stream

from holdfast._session.assignment import Assignment
from holdfast._session.reports import ExitReport, ReportedState, WorkerReport
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev

if TYPE_CHECKING:
    from tests.sim.cluster.agent import Agent

RETRY_FIRST_S, RETRY_MAX_S = 0.2, 5.0
FIRST_MESSAGE_S = 10.0
UNANSWERED_BEATS = 4


class Link:
    """Of one life of an agent."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.stream: Stream | None = None
        self.open = False
        self._retry_s = RETRY_FIRST_S
        self._beats: deque[float] = deque()
        self._heard = 0.0
        self._dialled = 0.0
        self._refused = False
        self._exits: list[ExitReport] = []

    def dial(self) -> None:
        """Try to reach whoever is the controller now."""
        world, host = self.agent.host.world, self.agent.host.name
        controller = world.reached(host)
        if controller is None or not controller.life.alive or True in world.network.cuts.get(host, ()):
            self._again()
            return
        stream = self.stream = Stream(world, host)
        self._exits = []
        world.network.streams.append(stream)
        stream.agent = End(self.agent.life, self._receive, lambda: self._over(stream), self.agent.host.crash_agent)
        controller.accept(stream)
        self._dialled = self.agent.host.clock.mono()
        self.agent.feed(ev.Dialled())
        clock = self.agent.host.clock
        self.agent.later(clock.true_s(FIRST_MESSAGE_S), lambda: None if self.open else self._give_up(stream))

    def _again(self) -> None:
        clock, dice = self.agent.host.clock, self.agent.host.world.dice
        wait_s = self._retry_s * (0.5 + dice.random() / 2)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        self.agent.later(clock.true_s(wait_s), self.dial)

    def hello(self, epoch: int, reports: tuple[WorkerReport, ...]) -> None:
        """The reactor introduces itself."""
        host = self.agent.host
        assert self.stream is not None
        self.stream.to_controller(framing.Hello(host.address, host.boot_id, host.inventory, reports, epoch))

    def send(self, message: Any) -> None:
        """Lost where there is no session: a new one says everything anew."""
        if not self.open or self.stream is None:
            return
        if isinstance(message, act.SendReport) and message.report.state is ReportedState.PREPARED:
            self.agent.host.world.oracles.on_prepared(self.agent.host, message.report)
        if isinstance(message, act.SendExit):
            if not self._exits:
                self.agent.later(0.0, self._send_exits)
            self._exits.append(message.report)
            return
        self._send_exits()
        self.stream.to_controller(message)

    def _send_exits(self) -> None:
        """What gathered while the agent was at work goes in one message, before all that follows it."""
        exits, self._exits = tuple(self._exits), []
        if exits and self.open and self.stream is not None:
            self.stream.to_controller(framing.Exits(exits))

    def refuse(self) -> None:
        """The reactor doesn't want this controller."""
        self._refused = True

    def end(self, *, silently: bool) -> None:
        """The process, or its machine, is gone."""
        if self.stream is not None:
            self.stream.close(self.stream.agent, silently=silently)
        self.open = False

    def _receive(self, message: Any) -> None:
        clock = self.agent.host.clock
        self._heard = clock.mono()
        match message:
            case framing.Welcome(epoch, heartbeat_s):
                if self.open:
                    return  # the same again
                self.open, self._refused = True, False
                self.agent.feed(ev.Welcomed(epoch))
                stream = self.stream
                assert stream is not None
                if self._refused:
                    self.agent.host.world.seen("old epoch")
                    self._give_up(stream)
                    return
                self._retry_s = RETRY_FIRST_S
                self.agent.feed(ev.ControllerHeard(self._dialled))
                self._beats.clear()
                self.agent.later(clock.true_s(heartbeat_s), lambda: self._beat(stream, heartbeat_s))
            case framing.BEAT_ACK:
                if self._beats:
                    self.agent.feed(ev.ControllerHeard(self._beats.popleft()))
            case framing.Ack(sequences):
                for sequence in sequences:
                    self.agent.feed(ev.ExitAcked(sequence))
            case Assignment():
                self.agent.feed(ev.Assigned(message))

    def _beat(self, stream: Stream, every_s: float) -> None:
        if self.stream is not stream or not self.open:
            return
        clock = self.agent.host.clock
        if clock.mono() - self._heard > UNANSWERED_BEATS * every_s:
            self._give_up(stream)
            return
        self._beats.append(clock.mono())
        self._send_exits()
        stream.to_controller(framing.BEAT)
        for vector in hangs.vectors(self.agent):
            stream.to_controller(vector)
        self.agent.later(clock.true_s(every_s), lambda: self._beat(stream, every_s))

    def _give_up(self, stream: Stream) -> None:
        if self.stream is stream:
            stream.close(stream.agent)
            self._over(stream)

    def _over(self, stream: Stream) -> None:
        if self.stream is not stream:
            return
        self.stream, self.open = None, False
        self.agent.feed(ev.Disconnected())
        self._again()
