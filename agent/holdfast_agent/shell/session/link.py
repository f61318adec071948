"""The agent's control stream: dials, says hello, carries messages both ways, and dials again.

Every attempt uses a fresh channel, so that renewed certificates count and no half-dead connection is kept.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import Protocol, cast

import anyio
import grpc
import grpc.aio

from holdfast._base.addresses import FIXED_WINDOW, SEVERAL, Addresses, keepalive
from holdfast._base.backoff import Backoff
from holdfast._base.cancellation import not_cancelled_by_grpc
from holdfast._base.failpoints import hit
from holdfast._base.proto_values import seconds
from holdfast._daemon import log
from holdfast._security.tls import SERVER_NAME, TlsFiles, channel_credentials
from holdfast.errors import ConfigError
from holdfast.v1 import agent_pb2, agent_pb2_grpc
from holdfast_agent.shim.processes import now_s

FIRST_MESSAGE_S = 10.0
"""grpc.aio can lose a stream when thousands open at once: no welcome by then, and we dial again."""
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0
RETRY_MAX_OF_SEVERAL_S = 1.0
"""Where another controller takes over within seconds, and dialling one that stands by costs little."""
UNSENT_MAX = 20_000
"""Messages that wait; beyond that the session is given up, since a new one sends everything again."""
EXITS_TOGETHER = 16
"""Exits in one message: each may have a rank's last lines, 200 kB at most."""
HEARTBEAT_DEFAULT_S = 5.0
LAST_WORD_S = 1.0
"""For the last message of a session, and the controller's end of it; the agent ends after that in any case."""
UNANSWERED_BEATS = 4
"""So many heartbeats without a word from the controller, and the session is given up for a new one."""


class Listener(Protocol):
    """Receives the controller's messages, and supplies the agent's own."""

    def on_dialled(self) -> agent_pb2.Hello:
        """The first message on a stream that has opened."""
        ...

    def on_welcome(self, welcome: agent_pb2.Welcome) -> bool:
        """Whether to go on with this controller."""
        ...

    def on_answered(self, sent_s: float) -> None:
        """Take note that the controller answered a message sent at ``sent_s``, in seconds since boot."""
        ...

    def on_message(self, message: agent_pb2.SessionResponse) -> None:
        """Handle an assignment or an acknowledgement."""
        ...

    def on_disconnected(self) -> None:
        """Handle the end of a session: messages that were sent may be lost."""
        ...

    def heartbeat(self) -> agent_pb2.Heartbeat:
        """The next heartbeat to send."""
        ...


def channel_options(name: str, addresses: Addresses) -> list[tuple[str, str | int]]:
    """Options of a channel with a connection of its own: ``name`` keeps gRPC from sharing it with another channel."""
    return [
        *(SEVERAL if len(addresses) > 1 else keepalive(10_000, 10_000)),
        ("grpc.ssl_target_name_override", SERVER_NAME),
        ("grpc.use_local_subchannel_pool", 1),
        ("holdfast.channel", name),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", 4 << 20),
    ]


class Link:
    """A session with the controller that leads, for ever. ``send`` works at any time and says whether it counts."""

    def __init__(self, addresses: Addresses, tls: TlsFiles, listener: Listener) -> None:
        self._addresses = addresses
        self._tls = tls
        self._listener = listener
        self._unsent: deque[agent_pb2.SessionRequest] = deque()
        self._wake = asyncio.Event()
        self._open = False
        self._ending = False
        self._closed = anyio.Event()
        self._heard_s = 0.0
        self._refusal = ""
        self._answered = False
        self._together = False
        """Whether the controller takes exits of a moment in one message."""
        self._beats: deque[float] = deque()
        """When each heartbeat was sent that is not answered yet. They are answered in their order."""

    def send(self, message: agent_pb2.SessionRequest) -> bool:
        """Queue a message. False while there is no session; a new one starts with everything that counts."""
        if not self._open:
            return False
        if len(self._unsent) >= UNSENT_MAX:
            log.warning("session.congested", unsent=len(self._unsent))
            self._open = False
        self._unsent.append(message)
        self._wake.set()
        return self._open

    def beat(self) -> None:
        """Send a heartbeat now, with what it carries; nothing while there is no session."""
        if self._open:
            if self._answered:
                self._beats.append(now_s())
            self.send(agent_pb2.SessionRequest(heartbeat=self._listener.heartbeat()))

    async def end(self, last: agent_pb2.SessionRequest) -> None:
        """Send ``last`` after all else, and let the controller close the session; nothing while there is none.

        Returns within ``LAST_WORD_S``, whether it has arrived or not. No other session is begun.
        """
        if not self.send(last):
            return
        self._ending = True
        self._wake.set()
        with anyio.move_on_after(LAST_WORD_S):
            await self._closed.wait()

    def stood_still(self, for_s: float) -> None:
        """Count no silence of the controller for a time in which this agent read nothing."""
        self._heard_s += for_s

    async def run(self) -> None:
        """Hold a session with the controller until cancelled."""
        longest_s = RETRY_MAX_S if len(self._addresses) == 1 else RETRY_MAX_OF_SEVERAL_S
        backoff = Backoff(RETRY_FIRST_S, longest_s, random.Random())
        while True:
            welcomed = False
            try:
                async with not_cancelled_by_grpc():
                    welcomed = await self._session()
            except ConfigError as error:
                log.warning("tls.unreadable", error=str(error))
            except asyncio.InvalidStateError as error:
                self._note_failure(error)
            if self._ending:
                self._closed.set()
                return
            if welcomed:
                backoff.reset()
            # Also after a session: a controller that no longer answers may be frozen, and another one lead by now.
            if self._addresses.failed():
                await anyio.sleep(backoff.failed())

    async def _session(self) -> bool:
        """One session. Returns whether it got as far as a welcome."""
        credentials = channel_credentials(self._tls)
        welcomed = False
        async with grpc.aio.secure_channel(
            self._addresses.current,
            credentials,
            options=[*channel_options("session", self._addresses), *FIXED_WINDOW],
        ) as channel:
            stub = cast("agent_pb2_grpc.AgentServiceAsyncStub", agent_pb2_grpc.AgentServiceStub(channel))
            call = stub.Session()
            try:
                dialled_s = now_s()
                hello = self._listener.on_dialled()
                hit("agent.hello.before")
                await call.write(agent_pb2.SessionRequest(hello=hello))
                hit("agent.hello.after")
                async with asyncio.timeout(FIRST_MESSAGE_S):
                    first = await call.read()
                if not isinstance(first, agent_pb2.SessionResponse) or first.WhichOneof("message") != "welcome":
                    log.warning("session.welcome_missing", controller=self._addresses.current)
                    return False
                self._unsent.clear()
                self._open = True
                welcomed = self._listener.on_welcome(first.welcome)
                if welcomed:
                    self._addresses.answered()
                    self._listener.on_answered(dialled_s)
                    log.info("session.opened", controller=self._addresses.current, epoch=first.welcome.epoch)
                    self._together = first.welcome.takes_exits_together
                    interval_s = seconds(first.welcome.heartbeat_interval) or HEARTBEAT_DEFAULT_S
                    await self._talk(call, interval_s, answered=first.welcome.acks_heartbeats)
                    log.info("session.closed", controller=self._addresses.current)
            except TimeoutError:
                log.warning("session.welcome_missing", controller=self._addresses.current)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                self._note_failure(error)
            finally:
                self._open = False
                call.cancel()
                self._listener.on_disconnected()
        return welcomed

    def _note_failure(self, error: Exception) -> None:
        """Log why a session failed; a refusal of this agent's version is logged as a warning, once."""
        problem = _describe(error)
        refused = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.FAILED_PRECONDITION
        if not refused:
            log.info("session.failed", controller=self._addresses.current, error=problem)
        elif problem != self._refusal:
            log.warning("session.refused", controller=self._addresses.current, error=problem)
        self._refusal = problem if refused else ""

    async def _talk(self, call: _Call, heartbeat_s: float, *, answered: bool) -> None:
        self._heard_s = time.monotonic()
        self._beats.clear()
        self._answered = answered
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_all, call, tasks.cancel_scope)
            tasks.start_soon(self._beat, heartbeat_s, answered, tasks.cancel_scope)
            try:
                while self._open:
                    message = await call.read()
                    if not isinstance(message, agent_pb2.SessionResponse):
                        break  # the controller closed the stream
                    self._heard_s = time.monotonic()
                    if message.WhichOneof("message") == "heartbeat_ack" and self._beats:
                        self._listener.on_answered(self._beats.popleft())
                    self._listener.on_message(message)
            except grpc.aio.AioRpcError as error:
                log.info("session.failed", controller=self._addresses.current, error=_describe(error))
            tasks.cancel_scope.cancel()

    async def _write_all(self, call: _Call, scope: anyio.CancelScope) -> None:
        try:
            while self._open:
                while self._unsent:
                    hit("agent.write.before")
                    await call.write(self._next())
                    hit("agent.write.after")
                if self._ending:
                    await call.done_writing()
                    return  # what the controller says until it closes the session is still read
                self._wake.clear()
                await self._wake.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.info("session.failed", controller=self._addresses.current, error=_describe(error))
        scope.cancel()

    def _next(self) -> agent_pb2.SessionRequest:
        """The next message, with the exits that follow it if it is one: a message costs more than what is in it."""
        message = self._unsent.popleft()
        if not self._together or not message.HasField("exit_report"):
            return message
        exits = [message]
        while self._unsent and len(exits) < EXITS_TOGETHER and self._unsent[0].HasField("exit_report"):
            exits.append(self._unsent.popleft())
        if len(exits) == 1:
            return message
        reports = agent_pb2.ExitReports(reports=[each.exit_report for each in exits])
        return agent_pb2.SessionRequest(exit_reports=reports)

    async def _beat(self, interval_s: float, answered: bool, scope: anyio.CancelScope) -> None:
        """Send heartbeats, and dial again after a long silence: a stream may stay open although its server is gone."""
        while True:
            await anyio.sleep(interval_s)
            silent_s = time.monotonic() - self._heard_s
            if answered and silent_s > UNANSWERED_BEATS * interval_s:
                log.warning("session.unanswered", controller=self._addresses.current, silent_s=round(silent_s, 1))
                scope.cancel()
                return
            self.beat()


def _describe(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)


_Call = grpc.aio.StreamStreamCall[agent_pb2.SessionRequest, agent_pb2.SessionResponse]
