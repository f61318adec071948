"""The bulk stream: carries ranks' output and samples to the controller, on a connection of its own, by credits."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

import anyio
import anyio.abc
import grpc
import grpc.aio

from holdfast._base.backoff import Backoff
from holdfast._daemon import log
from holdfast._security.tls import TlsFiles, channel_credentials
from holdfast._session.reports import WorkerId
from holdfast.errors import ConfigError
from holdfast.hang.records.reader import unpacked
from holdfast.v1 import agent_pb2, agent_pb2_grpc, job_pb2
from holdfast_agent.core.launch.environment import HostFacts, log_paths, output_directory
from holdfast_agent.shell.base.abandonable import Late, Threads
from holdfast_agent.shell.base.inotify import FileWatch
from holdfast_agent.shell.output.archive_reader import NoArchive, archived_stream
from holdfast_agent.shell.output.line_search import Found, LineSearch, SearchedLog
from holdfast_agent.shell.output.log_reader import LogFile, Wanted
from holdfast_agent.shell.sampling.history import SampleHistory
from holdfast_agent.shell.sampling.listeners import Listeners
from holdfast_agent.shell.sampling.series import SeriesReports
from holdfast_agent.shell.session.assignment_checks import is_worker
from holdfast_agent.shell.session.link import RETRY_FIRST_S, RETRY_MAX_S, channel_options
from holdfast_agent.shell.session.rank_shells import RankShells
from holdfast_agent.shell.session.terminal_input import TerminalInput
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

CHUNK_BYTES = 128 << 10
READINGS_MAX, READINGS_OF_ONE_JOB = 1024, 256
READS_MOST, READS_OF_ONE_JOB = 16, 2
"""Reads at a time: those of one job's files, which its ranks can make as slow as they like, hold up no other job's."""
READ_S = 20.0
SEARCH_S = 120.0
"""A search ends when reading has taken so long."""
COALESCE_S = 0.02
"""A rank that prints often costs one message for this time, not one per line."""
LOOK_AGAIN_S = 1.0
"""Followed files are looked at this often even where the kernel reports no change (network file systems)."""

EARLY_S = 3.0
"""A request to follow may overtake the assignment that it is about: they come on different connections."""

Asked = TypeVar("Asked", agent_pb2.OpenLog, agent_pb2.OpenSamples, agent_pb2.OpenShell)
IsOver = Callable[[WorkerId, int, int], bool]
Examine = Callable[[agent_pb2.TakeEvidence], Awaitable[agent_pb2.EvidenceReport]]


@dataclass
class Reading:
    """One stream that the controller has opened."""

    id: int
    credit: int
    job: str = ""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Transfer:
    """Dials for ever; ``is_over`` says whether a rank of a generation will write no more.

    ``epoch`` gives the highest epoch seen: orders of a controller of an earlier one are refused.
    """

    def __init__(
        self,
        target: str,
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
        epoch: Callable[[], int],
    ) -> None:
        self._epoch = epoch
        self._terminals = terminals
        self.shells = shells
        self._series = series
        self._series_credit = 0
        """Reports of series that the controller lets us send on this connection."""
        self._accounts = accounts
        self._examine = examine
        self._listeners = listeners
        self._history = history
        self._target = target
        self._tls = tls
        self._facts = facts
        self._is_over = is_over
        self._readings: dict[int, Reading] = {}
        self._watch = FileWatch()
        self._threads = Threads(READS_OF_ONE_JOB, READS_MOST)
        self._writing = anyio.Lock()

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
                    if await self._session():
                        backoff.reset()
                except ConfigError as error:
                    log.warning("tls.unreadable", error=str(error))
                await anyio.sleep(backoff.failed())
        finally:
            self._watch.close()
            self._threads.close()

    async def _session(self) -> bool:
        credentials = channel_credentials(self._tls)
        served = False
        async with grpc.aio.secure_channel(
            self._target, credentials, options=channel_options("transfer")
        ) as channel:
            stub = cast("agent_pb2_grpc.AgentServiceAsyncStub", agent_pb2_grpc.AgentServiceStub(channel))
            call = stub.Transfer()
            try:
                await call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello(searches_logs=True)))
                self._series_credit = 0
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._send_series, call)
                    try:
                        while isinstance(message := await call.read(), agent_pb2.TransferResponse):
                            if 0 < message.epoch < self._epoch():
                                log.warning("transfer.refused", theirs=message.epoch, ours=self._epoch())
                                break
                            served = True
                            self._obey(message, call, tasks)
                    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                        log.debug("transfer.failed", error=str(error))
                    tasks.cancel_scope.cancel()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                log.debug("transfer.failed", error=str(error))
            finally:
                call.cancel()
                self._readings.clear()
        return served

    def _obey(self, message: agent_pb2.TransferResponse, call: _Call, tasks: anyio.abc.TaskGroup) -> None:
        match message.WhichOneof("message"):
            case "open":
                self._begin(message.open, self._read_log, call, tasks)
            case "open_samples":
                self._begin(message.open_samples, self._read_samples, call, tasks)
            case "open_shell":
                self._begin(message.open_shell, self._run_shell, call, tasks)
            case "credit":
                if credited := self._readings.get(message.credit.id):
                    credited.credit += message.credit.bytes
                    credited.more.set()
            case "take_evidence":
                tasks.start_soon(self._take_evidence, message.take_evidence, call)
            case "take_series":
                self._series.taken(message.take_series.taken)
                self._series_credit += message.take_series.reports
                self._series.added.set()
            case "give_input":
                tasks.start_soon(self._give_input, message.give_input, call)
            case "close":
                if closed := self._readings.get(message.close.id):
                    closed.scope.cancel()

    def _begin(self, asked: Asked, read: _Read[Asked], call: _Call, tasks: anyio.abc.TaskGroup) -> None:
        if asked.id not in self._readings:
            reading = self._readings[asked.id] = Reading(asked.id, asked.credit_bytes, asked.job_id)
            tasks.start_soon(self._serve, reading, partial(read, asked, reading, call), call)

    async def _take_evidence(self, order: agent_pb2.TakeEvidence, call: _Call) -> None:
        try:
            report = await self._examine(order)
            await self._write(call, agent_pb2.TransferRequest(evidence=report))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.debug("transfer.failed", error=str(error))

    async def _give_input(self, order: agent_pb2.GiveInput, call: _Call) -> None:
        try:
            taken = await (self.shells if order.shell else self._terminals).give(order)
            await self._write(call, agent_pb2.TransferRequest(input_taken=taken))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.debug("transfer.failed", error=str(error))

    async def _send_series(self, call: _Call) -> None:
        """Send what waits, from its beginning, as far as the controller lets us; until cancelled."""
        sent = 0
        try:
            while True:
                self._series.added.clear()
                report = self._series.after(sent)
                if report is None or self._series_credit <= 0:
                    await self._series.added.wait()
                    continue
                sent = report.number
                self._series_credit -= 1
                await self._write(call, agent_pb2.TransferRequest(series=report))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.debug("transfer.failed", error=str(error))

    async def _serve(
        self, reading: Reading, read: Callable[[], Awaitable[agent_pb2.TransferEnd]], call: _Call
    ) -> None:
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
                await self._write(call, agent_pb2.TransferRequest(end=end))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.debug("transfer.failed", error=str(error))
        finally:
            self._readings.pop(reading.id, None)

    async def _read_samples(
        self, asked: agent_pb2.OpenSamples, reading: Reading, call: _Call
    ) -> agent_pb2.TransferEnd:
        """Send a worker's kept samples, and then every new one; ends by itself only when the reader is too slow."""
        key = WorkerId(asked.job_id, asked.worker)
        if not is_worker(key):
            return _ended(f"{key} names no worker.")
        offset = 0
        with self._listeners.listening(key) as listener:
            for lines in unpacked(self._history.read(key)):
                offset = await self._send(lines, offset, reading, call)
            while line := await listener.get():
                offset = await self._send(line, offset, reading, call)
        return _ended("samples come faster than they are taken.")

    async def _run_shell(self, asked: agent_pb2.OpenShell, reading: Reading, call: _Call) -> agent_pb2.TransferEnd:
        async def passes(data: bytes, stderr: bool) -> None:
            await self._send(data, 0, reading, call, stderr=stderr)

        return await self.shells.run(asked, passes)

    async def _send(
        self,
        data: bytes,
        offset: int,
        reading: Reading,
        call: _Call,
        *,
        stderr: bool = False,
        lines: Sequence[int] = (),
    ) -> int:
        """Send it once there is credit; returns the offset of what follows."""
        while reading.credit <= 0:
            reading.more.clear()
            await reading.more.wait()
        reading.credit -= len(data)
        chunk = agent_pb2.TransferChunk(id=reading.id, offset=offset, data=data, stderr=stderr, line_offsets=lines)
        await self._write(call, agent_pb2.TransferRequest(chunk=chunk))
        return offset + len(data)

    async def _read_log(self, asked: agent_pb2.OpenLog, reading: Reading, call: _Call) -> agent_pb2.TransferEnd:
        """Send a rank's output, as much as was asked for."""
        key = WorkerId(asked.job_id, asked.worker)
        if not is_worker(key):
            return _ended(f"{key} names no worker.")
        if asked.archive_uri:
            return await self._read_archive(asked, reading, call)
        paths = log_paths(self._facts, key, asked.generation, asked.rank)
        path = paths[asked.stream == job_pb2.LOG_STREAM_STDERR]
        try:
            file = await self._open(asked, reading, key, path)
            if file is None:
                problem = f"{self._facts.name} has no output of rank {asked.rank} of generation {asked.generation}."
                return _ended(problem, missing=True)
            with self._watch.watched(path, reading.more):
                if asked.contains:
                    searched = SearchedLog(file, _search(asked))
                    return await self._send_found(asked, reading, key, searched, call)
                await self._send_all(asked, reading, key, file, call)
        except Late:
            return _ended(f"{self._facts.name}: {path} could not be read within {READ_S:g} s; try again later.")
        except OSError as error:
            return _ended(f"{self._facts.name}: {path}: {error.strerror}.")
        return _ended()

    async def _read_archive(self, asked: agent_pb2.OpenLog, reading: Reading, call: _Call) -> agent_pb2.TransferEnd:
        """Send what the archive has of a rank's output, with the rights of the job's account."""
        stream = "err" if asked.stream == job_pb2.LOG_STREAM_STDERR else "out"
        name, base = f"{asked.worker}.r{asked.rank}.{stream}", output_directory(asked.archive_uri)
        if not os.path.isabs(base):
            return _ended(f"{base} is no path.")
        try:
            user = await self._threads.call(asked.job_id, READ_S, self._accounts.look_up, asked.run_as)
            opened = archived_stream(base, asked.job_id, asked.generation, name, _wanted(asked), user)
            async with opened as archived:
                search = _search(asked) if asked.contains else None
                offset, data = await archived.piece()
                while data:
                    if search is None:
                        await self._send(data, offset, reading, call)
                    else:
                        await self._send_lines(search.feed(offset, data), reading, call)
                    offset, data = await archived.piece()
                await self._send_lines(search.finish() if search else (), reading, call)
        except Late:
            return _ended(
                f"{self._facts.name}: the account was not found out within {READ_S:g} s; try again later."
            )
        except (NoAccount, NoArchive) as problem:
            return _ended(f"{self._facts.name}: {problem}." if str(problem) else "", missing=not str(problem))
        end = _ended()
        end.archived.FromMilliseconds(archived.changed_ms)
        return end

    async def _open(self, asked: agent_pb2.OpenLog, reading: Reading, key: WorkerId, path: str) -> LogFile | None:
        """The file, waited for where it is followed and may still come."""
        wanted = _wanted(asked)
        patience = anyio.current_time() + (EARLY_S if asked.follow else 0.0)
        while True:
            over = anyio.current_time() >= patience and self._is_over(key, asked.generation, asked.rank)
            try:
                return await self._threads.call(key.job, READ_S, LogFile, path, wanted)
            except FileNotFoundError:
                if over or not asked.follow:
                    return None
            await self._wait(reading, 0.2)

    async def _send_all(
        self, asked: agent_pb2.OpenLog, reading: Reading, key: WorkerId, file: LogFile, call: _Call
    ) -> None:
        while True:
            reading.more.clear()
            if reading.credit <= 0:
                await reading.more.wait()
                continue
            over = self._is_over(key, asked.generation, asked.rank)  # before the read, so that the read is the last
            limit = min(CHUNK_BYTES, reading.credit)
            offset, data = await self._threads.call(key.job, READ_S, file.read, limit)
            if data:
                reading.credit -= len(data)
                chunk = agent_pb2.TransferChunk(id=asked.id, offset=offset, data=data)
                await self._write(call, agent_pb2.TransferRequest(chunk=chunk))
            elif over or not asked.follow:
                return
            else:
                await self._wait(reading, LOOK_AGAIN_S)
                await anyio.sleep(COALESCE_S)

    async def _send_found(
        self, asked: agent_pb2.OpenLog, reading: Reading, key: WorkerId, log: SearchedLog, call: _Call
    ) -> agent_pb2.TransferEnd:
        """Send the lines that are looked for, in bounded time."""
        while asked.follow or log.spent_s < SEARCH_S:
            reading.more.clear()
            over = self._is_over(key, asked.generation, asked.rank)
            found = await self._threads.call(key.job, READ_S, log.read)
            if found is not None:
                await self._send_lines([found], reading, call)
            elif not log.more and (over or not asked.follow):
                await self._send_lines(log.last(), reading, call)
                return _ended()
            elif not log.more:
                await self._wait(reading, LOOK_AGAIN_S)
        far = f"{self._facts.name}: searched for {SEARCH_S:g} s, up to byte {log.position}"
        return _ended(f"{far}; search from there, or with --since.")

    async def _send_lines(self, found: Iterable[Found], reading: Reading, call: _Call) -> None:
        for each in found:
            await self._send(each.data, each.offsets[0], reading, call, lines=each.offsets)

    async def _write(self, call: _Call, message: agent_pb2.TransferRequest) -> None:
        async with self._writing:  # gRPC takes one write at a time
            await call.write(message)

    async def _wait(self, reading: Reading, at_most_s: float) -> None:
        with anyio.move_on_after(at_most_s):
            await reading.more.wait()


def _wanted(asked: agent_pb2.OpenLog) -> Wanted:
    return Wanted(
        offset=asked.offset,
        tail_lines=asked.tail_lines if asked.HasField("tail_lines") else None,
        since_ms=asked.since.ToMilliseconds() if asked.HasField("since") else None,
        end=asked.end_offset or None,
    )


def _search(asked: agent_pb2.OpenLog) -> LineSearch:
    return LineSearch(asked.contains, ignore_case=asked.ignore_case)


def _ended(problem: str = "", *, missing: bool = False) -> agent_pb2.TransferEnd:
    return agent_pb2.TransferEnd(problem=problem, missing=missing)


_Read = Callable[[Asked, Reading, "_Call"], Awaitable[agent_pb2.TransferEnd]]
_Call = grpc.aio.StreamStreamCall[agent_pb2.TransferRequest, agent_pb2.TransferResponse]
