"""The bulk stream: carries ranks' output and samples to the controller, on a connection of its own, by credits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast

import anyio
import anyio.abc
import grpc
import grpc.aio
from anyio.streams.memory import MemoryObjectReceiveStream

from holdfast._base.addresses import FIXED_WINDOW, Addresses
from holdfast._base.backoff import Backoff
from holdfast._base.cancellation import not_cancelled_by_grpc
from holdfast._daemon import log
from holdfast._security.tls import TlsFiles, channel_credentials
from holdfast._session.reports import WorkerId
from holdfast.errors import ConfigError
from holdfast.hang.records.reader import unpacked
from holdfast.v1 import agent_pb2, agent_pb2_grpc
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.shell.sampling.history import SampleHistory
from holdfast_agent.shell.sampling.listeners import Listeners
from holdfast_agent.shell.sampling.series import SeriesReports
from holdfast_agent.shell.session.assignment_checks import is_worker
from holdfast_agent.shell.session.injections import Injections
from holdfast_agent.shell.session.link import RETRY_FIRST_S, RETRY_MAX_S, channel_options
from holdfast_agent.shell.session.output_reader import IsOver, OutputReader, Reading, ended
from holdfast_agent.shell.session.rank_shells import RankShells
from holdfast_agent.shell.session.terminal_input import TerminalInput
from holdfast_agent.shell.users.accounts import Accounts

READINGS_MAX, READINGS_OF_ONE_JOB = 1024, 256

Asked = TypeVar("Asked", agent_pb2.OpenLog, agent_pb2.OpenSamples, agent_pb2.OpenShell)
Write = Callable[[agent_pb2.TransferRequest], Awaitable[None]]
Examine = Callable[[agent_pb2.TakeEvidence], Awaitable[agent_pb2.EvidenceReport]]


class Transfer:
    """Dials for ever; ``is_over`` says whether a rank of a generation will write no more.

    ``epoch`` gives the highest epoch seen: orders of a controller of an earlier one are refused.
    """

    def __init__(
        self,
        addresses: Addresses,
        tls: TlsFiles,
        facts: HostFacts,
        is_over: IsOver,
        examine: Examine,
        listeners: Listeners,
        history: SampleHistory,
        accounts: Accounts,
        terminals: TerminalInput,
        series: SeriesReports,
        shells: RankShells,
        injections: Injections,
        epoch: Callable[[], int],
    ) -> None:
        self._epoch = epoch
        self._terminals = terminals
        self.shells = shells
        self._injections = injections
        self._series = series
        self._series_credit = 0
        """Reports of series that the controller lets us send on this connection."""
        self._examine = examine
        self._listeners = listeners
        self._history = history
        self._addresses = addresses
        self._tls = tls
        self._facts = facts
        self._output = OutputReader(facts, is_over, accounts)
        self._readings: dict[int, Reading] = {}
        self._answers = asyncio.Event()

    def dial(self) -> None:
        """Try now, and not at the end of a wait: the controller answers."""
        self._answers.set()

    def poke(self) -> None:
        """Wake readers that follow output, because a rank has ended."""
        for reading in self._readings.values():
            reading.more.set()

    async def run(self) -> None:
        """Serve the controller's readings until cancelled."""
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, random.Random())
        try:
            while True:
                try:
                    async with not_cancelled_by_grpc():
                        if await self._session():
                            backoff.reset()
                            self._answers.clear()  # that was before this stream ended
                except ConfigError as error:
                    log.warning("tls.unreadable", error=str(error))
                except asyncio.InvalidStateError as error:
                    log.debug("transfer.failed", error=str(error))
                with anyio.move_on_after(backoff.failed()):
                    await self._answers.wait()
                self._answers.clear()
        finally:
            self._output.close()

    async def _session(self) -> bool:
        credentials = channel_credentials(self._tls)
        served = False
        async with grpc.aio.secure_channel(
            self._addresses.current,
            credentials,
            options=[*channel_options("transfer", self._addresses), *FIXED_WINDOW],
        ) as channel:
            stub = cast("agent_pb2_grpc.AgentServiceAsyncStub", agent_pb2_grpc.AgentServiceStub(channel))
            call = stub.Transfer()
            hello = agent_pb2.TransferHello(searches_logs=True, injects_faults=True)
            try:
                await call.write(agent_pb2.TransferRequest(hello=hello))
                self._series_credit = 0
                outbox, unsent = anyio.create_memory_object_stream[agent_pb2.TransferRequest](0)
                with outbox, unsent:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._write_all, call, unsent, tasks.cancel_scope)
                        tasks.start_soon(self._send_series, outbox.send)
                        while isinstance(message := await call.read(), agent_pb2.TransferResponse):
                            if 0 < message.epoch < self._epoch():
                                log.warning("transfer.refused", theirs=message.epoch, ours=self._epoch())
                                break
                            served = True
                            self._obey(message, outbox.send, tasks)
                        tasks.cancel_scope.cancel()
            except* (grpc.aio.AioRpcError, asyncio.InvalidStateError) as errors:
                log.debug("transfer.failed", error=str(errors.exceptions[0]))
            finally:
                call.cancel()
                self._readings.clear()
        return served

    async def _write_all(
        self, call: _Call, unsent: MemoryObjectReceiveStream[agent_pb2.TransferRequest], session: anyio.CancelScope
    ) -> None:
        """Write what comes. Only the session's end may cancel it: gRPC ends the call where a write is cancelled."""
        try:
            async for message in unsent:
                await call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.debug("transfer.failed", error=str(error))
            session.cancel()

    def _obey(self, message: agent_pb2.TransferResponse, write: Write, tasks: anyio.abc.TaskGroup) -> None:
        match message.WhichOneof("message"):
            case "open":
                self._begin(message.open, self._output.read, write, tasks)
            case "open_samples":
                self._begin(message.open_samples, self._read_samples, write, tasks)
            case "open_shell":
                self._begin(message.open_shell, self._run_shell, write, tasks)
            case "credit":
                if credited := self._readings.get(message.credit.id):
                    credited.credit += message.credit.bytes
                    credited.more.set()
            case "take_evidence":
                tasks.start_soon(self._take_evidence, message.take_evidence, write)
            case "inject_fault":
                tasks.start_soon(self._inject, message.inject_fault, write)
            case "take_series":
                self._series.taken(message.take_series.taken)
                self._series_credit += message.take_series.reports
                self._series.added.set()
            case "give_input":
                tasks.start_soon(self._give_input, message.give_input, write)
            case "close":
                if closed := self._readings.get(message.close.id):
                    closed.scope.cancel()

    def _begin(self, asked: Asked, read: _Read[Asked], write: Write, tasks: anyio.abc.TaskGroup) -> None:
        if asked.id not in self._readings:
            reading = self._readings[asked.id] = Reading(asked.id, asked.credit_bytes, asked.job_id, write)
            tasks.start_soon(self._serve, reading, partial(read, asked, reading))

    async def _take_evidence(self, order: agent_pb2.TakeEvidence, write: Write) -> None:
        await write(agent_pb2.TransferRequest(evidence=await self._examine(order)))

    async def _give_input(self, order: agent_pb2.GiveInput, write: Write) -> None:
        taken = await (self.shells if order.shell else self._terminals).give(order)
        await write(agent_pb2.TransferRequest(input_taken=taken))

    async def _inject(self, order: agent_pb2.InjectFault, write: Write) -> None:
        async def answers(answer: agent_pb2.FaultAnswer) -> None:
            await write(agent_pb2.TransferRequest(fault_answer=answer))

        await self._injections.run(order, answers)

    async def _send_series(self, write: Write) -> None:
        """Send what waits, from its beginning, as far as the controller lets us; until cancelled."""
        sent = 0
        while True:
            self._series.added.clear()
            report = self._series.after(sent)
            if report is None or self._series_credit <= 0:
                await self._series.added.wait()
                continue
            sent = report.number
            self._series_credit -= 1
            await write(agent_pb2.TransferRequest(series=report))

    async def _serve(self, reading: Reading, read: Callable[[], Awaitable[agent_pb2.TransferEnd]]) -> None:
        """``read`` sends all that is wanted, and returns how it ended."""
        end = agent_pb2.TransferEnd()
        try:
            with reading.scope:
                most = READINGS_MAX, READINGS_OF_ONE_JOB
                of_job = sum(each.job == reading.job for each in self._readings.values())
                if len(self._readings) > most[0] or of_job > most[1]:
                    which = f"{most[1]} streams of this job" if of_job > most[1] else f"{most[0]} streams"
                    end.problem = f"{self._facts.name} reads {which} already; try again later."
                else:
                    end = await read()
            if not reading.scope.cancelled_caught:
                end.id = reading.id
                await reading.write(agent_pb2.TransferRequest(end=end))
        finally:
            self._readings.pop(reading.id, None)

    async def _read_samples(self, asked: agent_pb2.OpenSamples, reading: Reading) -> agent_pb2.TransferEnd:
        """Send a worker's kept samples, and then every new one; ends by itself only when the reader is too slow."""
        key = WorkerId(asked.job_id, asked.worker)
        if not is_worker(key):
            return ended(f"{key} names no worker.")
        offset = 0
        with self._listeners.listening(key) as listener:
            for lines in unpacked(self._history.read(key)):
                offset = await reading.send(lines, offset)
            while line := await listener.get():
                offset = await reading.send(line, offset)
        return ended("samples come faster than they are taken.")

    async def _run_shell(self, asked: agent_pb2.OpenShell, reading: Reading) -> agent_pb2.TransferEnd:
        async def passes(data: bytes, stderr: bool) -> None:
            await reading.send(data, 0, stderr=stderr)

        return await self.shells.run(asked, passes)


_Read = Callable[[Asked, Reading], Awaitable[agent_pb2.TransferEnd]]
_Call = grpc.aio.StreamStreamCall[agent_pb2.TransferRequest, agent_pb2.TransferResponse]
