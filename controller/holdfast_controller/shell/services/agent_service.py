"""``AgentService``: sessions and transfers of agents, each acting as the host in its certificate."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator

import grpc

from holdfast import __version__
from holdfast._base.dataclass import dataclass
from holdfast._base.failpoints import hit
from holdfast._base.proto_values import duration, seconds
from holdfast._daemon import log
from holdfast._session import codec, protocol
from holdfast._session.protocol import Speaker
from holdfast._session.reports import ExitReport
from holdfast.errors import InvalidInput, TooMany, Violation, WrongState
from holdfast.v1 import agent_pb2, agent_pb2_grpc
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.hosts.throttling import MessageKind
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.commands import (
    AgentStopping,
    ArchiveReported,
    ChecksReported,
    ExitsReported,
    HostBeat,
    HostDisconnected,
    HostTurnedAway,
    Input,
    OutputGone,
    ShutdownAnnounced,
    WorkerReported,
)
from holdfast_controller.shell.calls.rpc import Context, beside, caller_name, streaming
from holdfast_controller.shell.convert import agent_messages, features_from_proto
from holdfast_controller.shell.convert.clean_words import clean
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.secrets.vault import Vault
from holdfast_controller.shell.services.host_pacing import HeldInventory, HostPacing, kind_of
from holdfast_controller.shell.services.streams.transfers import Transfers
from holdfast_controller.shell.store.ended_jobs import named_in

HELLO_WITHIN_S = 10.0
OUTBOX_SIZE = 20_000
"""Messages that may wait for a slow agent; past that its session is closed, and a new one starts afresh."""


@dataclass(frozen=True)
class AckHeartbeat:
    """Answer to a heartbeat: a commit that began after it came has found this controller still leading.

    Its host, and workers that may not outlive the controller's word, go on for another term by it.
    """


Outgoing = act.ToHost | AckHeartbeat


class Outbox:
    """Messages of one session that its agent has not taken yet; an agent that is too far behind is disconnected."""

    def __init__(self) -> None:
        self._waiting: deque[Outgoing | None] = deque()
        self._filled = asyncio.Event()

    def put(self, action: Outgoing | None) -> None:
        """Queue a message; None ends the session."""
        if len(self._waiting) >= OUTBOX_SIZE:
            self._waiting.clear()
            action = None
        self._waiting.append(action)
        self._filled.set()

    async def get(self) -> Outgoing | None:
        """The next message; None at the end."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        return self._waiting.popleft()


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """Serves agents' sessions, one for each host: the newest."""

    def __init__(self, driver: Driver, transfers: Transfers, vault: Vault, pacing: HostPacing) -> None:
        self._driver = driver
        self._pacing = pacing
        self._vault = vault
        self._transfers = transfers
        self._sessions = itertools.count(1)

    @streaming
    async def Session(
        self, request_iterator: AsyncIterator[agent_pb2.SessionRequest], context: Context
    ) -> AsyncGenerator[agent_pb2.SessionResponse, None]:
        host = caller_name(context)
        hello = clean(await _first(request_iterator))
        await self._check_pace(host, hello)
        self._check_version(host, hello)
        await self._check_epoch(host, hello)
        await self._driver.bring({report.job_id for report in hello.workers})
        session = next(self._sessions)
        outbox = Outbox()
        self._driver.register(host, session, outbox.put)
        log.info(
            "session.opened",
            host=host,
            session=session,
            agent_version=hello.agent_version,
            protocol=hello.protocol,
            shim_protocol=hello.shim_protocol,
        )
        try:
            self._pacing.charge(
                host, MessageKind.HELLO, self._driver.feed(agent_messages.hello(host, session, hello))
            )
            async with beside(self._read(host, session, request_iterator, outbox), lambda: outbox.put(None)):
                while (action := await outbox.get()) is not None:
                    if isinstance(action, act.CloseSession):
                        break
                    hit("controller.send.before")
                    message = to_agent(action, self._driver, packed=hello.unpacks_pools)
                    if isinstance(action, act.Assign):
                        self._vault.give(action.assignment, message.assignment)
                    yield message
                    hit("controller.send.after")
        finally:
            self._driver.unregister(host, session)
            self._driver.feed(HostDisconnected(host, session))
            log.info("session.closed", host=host, session=session)

    async def _check_pace(self, host: str, hello: agent_pb2.Hello) -> None:
        """Raises ``TooMany`` for a host whose hellos keep changing what it reports of itself."""
        await self._pacing.read(host, agent_pb2.SessionRequest(hello=hello))
        owed_s = self._pacing.owed_s(host, MessageKind.HELLO)
        if owed_s:
            problem = f"{host} has changed what it reports of itself too often."
            raise TooMany(problem, fix=f"Connect again in {owed_s:.0f} s.")

    def _check_version(self, host: str, hello: agent_pb2.Hello) -> None:
        """Refuse and record an agent of a version that we can't work with. Raises ``WrongVersion``."""
        ours = Speaker(__version__, protocol.PROTOCOL)
        refusal = protocol.mismatch(ours, Speaker(hello.agent_version, hello.protocol), host)
        if refusal is not None:
            stored = self._driver.feed(HostTurnedAway(host, hello.agent_version, str(refusal)))
            self._pacing.charge(host, MessageKind.HELLO, stored)
            log.warning("session.refused", host=host, error=str(refusal))
            raise refusal

    async def _check_epoch(self, host: str, hello: agent_pb2.Hello) -> None:
        """Believe a host that has obeyed a later controller: this one ends, unless the store says that it leads.

        Then the store is an older copy, and the host is turned away: it would refuse our orders. Raises ``WrongState``.
        """
        ours = self._driver.cluster.epoch
        if hello.epoch <= ours:
            return
        log.warning("session.epoch_ahead", host=host, theirs=hello.epoch, ours=ours)
        await self._driver.confirmed()
        refusal = WrongState(
            f"{host} has obeyed epoch {hello.epoch} of its controller, and this store is at epoch {ours}.",
            fix="If an older copy of the store was put in its place: stop the controller, put the newest one back or"
            " restore a newer backup, or run: holdfast-controller accept-loss --set-back. If the host is from another"
            " cluster, stop its agent and remove the file epoch in its state directory.",
        )
        stored = self._driver.feed(HostTurnedAway(host, hello.agent_version, str(refusal)))
        self._pacing.charge(host, MessageKind.HELLO, stored)
        raise refusal

    async def _read(
        self,
        host: str,
        session: int,
        messages: AsyncIterator[agent_pb2.SessionRequest],
        outbox: Outbox,
    ) -> None:
        """Feed the agent's messages to the driver, until its stream ends."""
        inventories = HeldInventory(self._pacing, host)
        try:
            async for message in messages:
                await self._take(host, session, message, inventories, outbox)
        except grpc.RpcError as error:
            log.info("session.failed", host=host, error=str(error))

    async def _take(
        self,
        host: str,
        session: int,
        message: agent_pb2.SessionRequest,
        inventories: HeldInventory,
        outbox: Outbox,
    ) -> None:
        """Feed one message to the driver, once its host may be heard."""
        await self._pacing.read(host, message)
        kind = kind_of(message)
        if kind is MessageKind.INVENTORY:
            inventories.admit(message.heartbeat)
        elif kind is not MessageKind.PROGRESS:
            await self._pacing.take_turn(host, kind)
        elif self._pacing.owed_s(host, kind):
            return  # the next one says it all again
        try:
            said = input_of(host, session, message)
        except InvalidInput as error:
            _note_invalid(host, error)
            return
        beat = isinstance(said, HostBeat)
        if not beat:
            await self._driver.bring(named_in(said))
        self._pacing.charge(host, kind, self._driver.feed(said))
        if beat:
            self._driver.when_confirmed(lambda: outbox.put(AckHeartbeat()))

    @streaming
    async def Transfer(
        self, request_iterator: AsyncIterator[agent_pb2.TransferRequest], context: Context
    ) -> AsyncGenerator[agent_pb2.TransferResponse, None]:
        host = caller_name(context)
        async with contextlib.aclosing(self._transfers.serve(host, request_iterator)) as orders:
            async for order in orders:
                order.epoch = self._driver.cluster.epoch
                yield order


def to_agent(action: Outgoing, driver: Driver, *, packed: bool = False) -> agent_pb2.SessionResponse:
    """An action of the core as a message to its host. ``CloseSession`` is the end of the stream instead.

    ``packed``: the host's agent understands addresses of a large gang in fewer bytes.
    """
    leases: LeasePolicy = driver.reactor.policies.leases
    match action:
        case act.Assign():
            hit("controller.assignment.before")
            order = agent_pb2.SessionResponse()
            codec.assignment_to_proto(action.assignment, order.assignment, packed=packed)
            return order
        case act.StopOrphan():
            return agent_pb2.SessionResponse(assignment=agent_messages.stop_orphan(action, driver.cluster.epoch))
        case act.AckExits():
            hit("controller.exit_ack.before")
            first, *others = action.sequences
            return agent_pb2.SessionResponse(exit_ack=agent_pb2.ExitAck(sequence=first, others=others))
        case AckHeartbeat():
            return agent_pb2.SessionResponse(heartbeat_ack=agent_pb2.HeartbeatAck())
        case act.Welcome():
            hit("controller.welcome.before")
            welcome = agent_pb2.Welcome(
                epoch=driver.cluster.epoch,
                heartbeat_interval=duration(leases.heartbeat_s),
                lease=duration(leases.lease_s),
                assignments=action.assignments,
                acks_heartbeats=True,
                takes_exits_together=True,
                controller_version=__version__,
                protocol=protocol.PROTOCOL,
                tell_all=action.tell_all,
            )
            return agent_pb2.SessionResponse(welcome=welcome)
        case act.DeleteOutput():
            return agent_pb2.SessionResponse(delete_output=agent_pb2.DeleteOutput(job_ids=action.job_ids))
        case act.CloseSession():
            raise AssertionError("a session is closed without a message")


def input_of(host: str, session: int, message: agent_pb2.SessionRequest) -> Input:
    """Convert an agent's message to a command. Raises ``InvalidInput`` for an unknown one."""
    kind = message.WhichOneof("message")
    if kind != "features":  # ten thousand hosts send them each few seconds; their reader cleans them
        clean(message)
    match kind:
        case "worker_report":
            return WorkerReported(host, session, codec.worker_report_from_proto(message.worker_report))
        case "exit_report":
            return ExitsReported(host, session, (codec.exit_report_from_proto(message.exit_report),))
        case "exit_reports":
            return ExitsReported(host, session, tuple(_understood(host, message.exit_reports.reports)))
        case "heartbeat":
            beat = message.heartbeat
            news = agent_messages.inventory(beat.inventory) if beat.HasField("inventory") else None
            return HostBeat(host, session, news, Wall(seconds(beat.sent_at)))
        case "going_down":
            return ShutdownAnnounced(host, session)
        case "agent_stopping":
            return AgentStopping(host, session)
        case "check_report":
            failed = tuple(map(agent_messages.failed_check, message.check_report.failed))
            return ChecksReported(host, session, failed, message.check_report.partial)
        case "features":
            return features_from_proto.features(host, session, message.features)
        case "archive":
            said = message.archive
            return ArchiveReported(host, session, said.job_id, said.worker, said.problem)
        case "output_deleted":
            gone = message.output_deleted
            return OutputGone(host, session, gone.job_id, gone.problem)
        case other:
            raise InvalidInput([Violation("message", f"{other} is not expected now")])


async def _first(messages: AsyncIterator[agent_pb2.SessionRequest]) -> agent_pb2.Hello:
    """The agent's hello. An agent that doesn't send it in time is disconnected, so that it connects again."""
    try:
        async with asyncio.timeout(HELLO_WITHIN_S):
            async for message in messages:
                if message.WhichOneof("message") == "hello":
                    return message.hello
                break
    except TimeoutError:
        pass
    raise InvalidInput(
        [Violation("hello", "is not the first message of the session", "upgrade the agent, or dial again")]
    )


def _understood(host: str, reports: Iterable[agent_pb2.ExitReport]) -> Iterator[ExitReport]:
    """Exits that came together, without those that this release doesn't know."""
    for report in reports:
        try:
            yield codec.exit_report_from_proto(report)
        except InvalidInput as error:
            _note_invalid(host, error)


def _note_invalid(host: str, error: InvalidInput) -> None:
    """Not acknowledged, so nothing is lost: the agent keeps it for a controller that knows it."""
    log.warning("session.message_invalid", host=host, error=str(error))
