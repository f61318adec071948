"""Readings of workers' output and samples over the agents' ``Transfer`` streams.

The controller asks an agent to read a stream and grants it bytes to send; each follower gives its own
credit, so a slow one delays no other and nothing piles up here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import grpc

from holdfast._daemon import log
from holdfast.v1 import agent_pb2
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.model.hosts.throttling import HOSTS_MOST
from holdfast_controller.shell.calls.bounds import Refused
from holdfast_controller.shell.calls.rpc import beside
from holdfast_controller.shell.convert.clean_words import clean
from holdfast_controller.shell.services.streams.reading import SEARCH_BYTES, WINDOW_BYTES, End, Reading, end_of

Answer = TypeVar("Answer", agent_pb2.EvidenceReport, agent_pb2.InputTaken, agent_pb2.FaultAnswer)

MAX_EXAMINATIONS = 64
"""Workers of one host that are dumped at once."""
EXAMINATIONS_OF_ONE = 32
"""Of these, for one user who asks, so that a job that hangs is dumped even while users ask for others."""
MAX_INPUTS = 256
"""Calls with input for terminals of one host at once."""
INPUT_WITHIN_S = 10.0
"""An agent waits 5 s for a program that reads nothing."""
MAX_INJECTIONS = 64
"""Faults that one host is asked to inject at once."""
INJECTED_WITHIN_S = 20.0
"""An agent waits 10 s for a shim, which may take 5 s."""
UNHEARD = -1
"""The id of an answer that no host gave: the fault may be there, or have been."""
EXAMINED_WITHIN_S = 40.0
"""An agent gives itself 22 s for all dumps of a worker; older ones 30 s."""
MAX_READINGS = 4_096
"""Readings at once on one host."""
READINGS_OF_ONE = 512
"""Of these, for one user."""
SERIES_AHEAD = 16
"""Reports of series that a host may have under way."""
SERIES_AGAIN_S = 5.0
"""Until what could not be taken is tried again."""
UNASKED_BURST = 8 << 20
UNASKED_PER_S = 1 << 20
"""Bytes that are read of one host although nothing asked for them: the burst is on its way when readers leave."""
UNASKED_MIN = 1_024
"""Bytes that even an empty message counts as."""


class SeriesTaker(Protocol):
    """Takes hosts' reports of series."""

    def take(self, host: str, report: agent_pb2.SeriesReport) -> bool:
        """Take a report, or refuse it for good; False where it can't be taken now."""

    def owed_s(self, host: str) -> float:
        """Seconds until the host may send more."""


@dataclass
class _Line:
    """One host's transfer stream."""

    orders: asyncio.Queue[agent_pb2.TransferResponse | None] = field(default_factory=asyncio.Queue)
    readings: dict[int, Reading] = field(default_factory=dict)
    examinations: dict[int, asyncio.Future[agent_pb2.EvidenceReport]] = field(default_factory=dict)
    examined_for: Counter[str] = field(default_factory=Counter)
    """By user: examinations that were asked for and are not answered."""
    inputs: dict[int, asyncio.Future[agent_pb2.InputTaken]] = field(default_factory=dict)
    injections: dict[int, asyncio.Future[agent_pb2.FaultAnswer]] = field(default_factory=dict)
    searches: bool = False
    """The agent finds lines itself."""
    injects: bool = False
    """The agent answers orders to inject a fault."""
    series_credit: int = 0
    series_held: list[agent_pb2.SeriesReport] = field(default_factory=list)
    """Reports that could not be taken yet, oldest first."""


class Transfers:
    """All hosts' transfer streams."""

    def __init__(self, series: SeriesTaker | None = None) -> None:
        self._series = series
        self._lines: dict[str, _Line] = {}
        self._ids = itertools.count(1)
        self._changed = asyncio.Event()
        self._unasked = Buckets(UNASKED_BURST, UNASKED_PER_S, HOSTS_MOST)

    async def changed(self) -> None:
        """Wait until some host has connected."""
        await self._changed.wait()

    def connected(self, host: str) -> bool:
        """Whether the host can be read from now."""
        return host in self._lines

    async def connects(self, host: str, within_s: float) -> bool:
        """Whether the host can be read from now, or within that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not self.connected(host):
                    await self.changed()
        return self.connected(host)

    def searches(self, host: str) -> bool:
        """Whether the host finds lines of output itself; agents of 0.1 don't."""
        return host in self._lines and self._lines[host].searches

    def injects(self, host: str) -> bool:
        """Whether the host takes orders to inject faults; agents of older releases don't."""
        return host in self._lines and self._lines[host].injects

    @property
    def hosts(self) -> list[str]:
        """The hosts that can be read from now."""
        return list(self._lines)

    def open(self, host: str, order: agent_pb2.OpenLog, reader: str) -> Reading | None:
        """Ask for a reading; None while the host isn't connected or reads too much already, for ``reader`` or all."""
        return self._open(host, order, reader, lambda: agent_pb2.TransferResponse(open=order))

    def open_samples(self, host: str, order: agent_pb2.OpenSamples, reader: str) -> Reading | None:
        """Ask for a worker's samples; None likewise."""
        return self._open(host, order, reader, lambda: agent_pb2.TransferResponse(open_samples=order))

    def open_shell(self, host: str, order: agent_pb2.OpenShell, reader: str) -> Reading | None:
        """Have a shell started, and read what it writes; None likewise. It is closed with the reading."""
        return self._open(host, order, reader, lambda: agent_pb2.TransferResponse(open_shell=order))

    def _open(
        self,
        host: str,
        order: agent_pb2.OpenLog | agent_pb2.OpenSamples | agent_pb2.OpenShell,
        reader: str,
        message: Callable[[], agent_pb2.TransferResponse],
    ) -> Reading | None:
        line = self._lines.get(host)
        if line is None or len(line.readings) >= MAX_READINGS:
            return None
        if sum(each.reader == reader for each in line.readings.values()) >= READINGS_OF_ONE:
            return None
        searches = isinstance(order, agent_pb2.OpenLog) and bool(order.contains)
        reading = Reading(next(self._ids), host, reader, credit=SEARCH_BYTES if searches else WINDOW_BYTES)
        line.readings[reading.id] = reading
        order.id, order.credit_bytes = reading.id, reading.credit
        line.orders.put_nowait(message())
        return reading

    def credit(self, reading: Reading, count: int) -> None:
        """The follower has taken ``count`` bytes; as many more may come."""
        line = self._lines.get(reading.host)
        if line is not None and reading.id in line.readings and count:
            reading.credit += count
            credit = agent_pb2.Credit(id=reading.id, bytes=count)
            line.orders.put_nowait(agent_pb2.TransferResponse(credit=credit))

    def close(self, reading: Reading) -> None:
        """The follower has left."""
        line = self._lines.get(reading.host)
        if line is not None and line.readings.pop(reading.id, None) is not None:
            line.orders.put_nowait(agent_pb2.TransferResponse(close=agent_pb2.CloseLog(id=reading.id)))

    def give_input(self, host: str, order: agent_pb2.GiveInput) -> asyncio.Future[agent_pb2.InputTaken]:
        """Have a terminal given what was typed. An answer always comes: a problem, when the host gives none."""
        answer: asyncio.Future[agent_pb2.InputTaken] = asyncio.get_running_loop().create_future()
        line = self._lines.get(host)
        if line is None or len(line.inputs) >= MAX_INPUTS:
            problem = f"{host} is not connected" if line is None else f"{host} is given too much input already"
            answer.set_result(agent_pb2.InputTaken(problem=problem))
            return answer
        late = agent_pb2.InputTaken(problem=f"{host} gave no answer within {INPUT_WITHIN_S:g} s")
        self._order(line, "give_input", order, line.inputs, answer, INPUT_WITHIN_S, late)
        return answer

    def inject(self, host: str, order: agent_pb2.InjectFault) -> asyncio.Future[agent_pb2.FaultAnswer]:
        """Have a fault put into a rank. An answer always comes: a problem, when the host gives none."""
        answer: asyncio.Future[agent_pb2.FaultAnswer] = asyncio.get_running_loop().create_future()
        line = self._lines.get(host)
        if line is None or len(line.injections) >= MAX_INJECTIONS:
            problem = f"{host} is not connected" if line is None else f"{host} is asked for too many faults already"
            answer.set_result(agent_pb2.FaultAnswer(problem=problem))
            return answer
        late = agent_pb2.FaultAnswer(id=UNHEARD, problem=f"{host} gave no answer within {INJECTED_WITHIN_S:g} s")
        self._order(line, "inject_fault", order, line.injections, answer, INJECTED_WITHIN_S, late)
        return answer

    def examine(
        self, host: str, order: agent_pb2.TakeEvidence, reader: str = ""
    ) -> asyncio.Future[agent_pb2.EvidenceReport]:
        """Have a worker's ranks dumped. An answer always comes: a problem, when the host can't give one.

        ``reader``: the user who asks; empty where the controller does.
        """
        answer: asyncio.Future[agent_pb2.EvidenceReport] = asyncio.get_running_loop().create_future()
        line = self._lines.get(host)
        full = line is not None and len(line.examinations) >= MAX_EXAMINATIONS
        if line is None or full or (reader and line.examined_for[reader] >= EXAMINATIONS_OF_ONE):
            problem = f"{host} is not connected" if line is None else f"{host} is busy with other dumps"
            answer.set_result(agent_pb2.EvidenceReport(problem=problem))
            return answer
        line.examined_for[reader] += 1
        answer.add_done_callback(lambda _: _uncount(line.examined_for, reader))
        late = agent_pb2.EvidenceReport(problem=f"{host} gave no answer within {EXAMINED_WITHIN_S:g} s")
        self._order(line, "take_evidence", order, line.examinations, answer, EXAMINED_WITHIN_S, late)
        return answer

    def _order(
        self,
        line: _Line,
        kind: str,
        order: agent_pb2.GiveInput | agent_pb2.InjectFault | agent_pb2.TakeEvidence,
        waiting: dict[int, asyncio.Future[Answer]],
        answer: asyncio.Future[Answer],
        within_s: float,
        late: Answer,
    ) -> None:
        """Send an order of that kind, and settle ``answer`` by the host's, or by ``late``."""
        order.id = next(self._ids)
        waiting[order.id] = answer
        line.orders.put_nowait(agent_pb2.TransferResponse(**{kind: order}))  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(within_s, _answer, waiting, order.id, late)

    async def serve(
        self, host: str, messages: AsyncIterator[agent_pb2.TransferRequest | Refused]
    ) -> AsyncGenerator[agent_pb2.TransferResponse, None]:
        """Run one host's stream: yields orders for it. A newer stream of the host replaces an older one."""
        old = self._lines.get(host)
        if old is not None:
            self._hang_up(old)
        line = self._lines[host] = _Line()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self._series is not None:
            _grant_series(line, SERIES_AHEAD, 0)
        try:
            async with beside(self._read(host, line, messages), lambda: line.orders.put_nowait(None)):
                while (order := await line.orders.get()) is not None:
                    yield order
        finally:
            self._hang_up(line)
            if self._lines.get(host) is line:
                del self._lines[host]

    async def _read(
        self, host: str, line: _Line, messages: AsyncIterator[agent_pb2.TransferRequest | Refused]
    ) -> None:
        try:
            async for message in messages:
                if isinstance(message, Refused):
                    wanted = _refuse(line, message.id, f"{host} sent what is not taken: {message.problem}")
                elif message.WhichOneof("message") == "series":
                    wanted = self._take_series(host, line, message.series)
                else:
                    wanted = _handle(line, message)
                if not wanted:
                    now = time.monotonic()
                    size = message.size if isinstance(message, Refused) else message.ByteSize()
                    if wait_s := self._unasked.charge(host, UNASKED_MIN + size, now):
                        await asyncio.sleep(wait_s)
        except grpc.RpcError as error:
            log.info("transfer.failed", error=str(error))

    def _take_series(self, host: str, line: _Line, report: agent_pb2.SeriesReport) -> bool:
        """Hand a report on; False where it came without credit."""
        if line.series_credit <= 0:
            return False
        line.series_credit -= 1
        line.series_held.append(clean(report))
        if len(line.series_held) == 1:
            self._hand_on_series(host, line)
        return True

    def _hand_on_series(self, host: str, line: _Line) -> None:
        """Hand on what is held, as far as it is taken, and let the host send as much again."""
        if self._series is None or self._lines.get(host) is not line:
            return
        taken = newest = 0
        wait_s = self._series.owed_s(host)
        while line.series_held and not wait_s:
            if not self._series.take(host, line.series_held[0]):
                wait_s = SERIES_AGAIN_S
                break
            newest, taken = line.series_held.pop(0).number, taken + 1
            wait_s = self._series.owed_s(host)
        if taken:
            _grant_series(line, taken, newest)
        if line.series_held:
            asyncio.get_running_loop().call_later(wait_s, self._hand_on_series, host, line)

    def _hang_up(self, line: _Line) -> None:
        for reading in line.readings.values():
            reading.items.put_nowait(End("the host went away", lost=True))
        line.readings.clear()
        for number in list(line.inputs):
            _answer(line.inputs, number, agent_pb2.InputTaken(problem="the host went away"))
        for number in list(line.injections):
            _answer(line.injections, number, agent_pb2.FaultAnswer(id=UNHEARD, problem="the host went away"))
        for number in list(line.examinations):
            _answer(line.examinations, number, agent_pb2.EvidenceReport(problem="the host went away"))
        line.orders.put_nowait(None)


def _grant_series(line: _Line, reports: int, taken: int) -> None:
    line.series_credit += reports
    line.orders.put_nowait(
        agent_pb2.TransferResponse(take_series=agent_pb2.TakeSeries(reports=reports, taken=taken))
    )


def _handle(line: _Line, message: agent_pb2.TransferRequest) -> bool:
    """Pass a message of a host on; False where it answers nothing that was asked for."""
    match message.WhichOneof("message"):
        case "chunk":
            return _take(line, message.chunk)
        case "end":
            reading = line.readings.pop(message.end.id, None)
            if reading is not None:
                reading.items.put_nowait(end_of(clean(message.end)))
            return reading is not None
        case "input_taken":
            return _answer(line.inputs, message.input_taken.id, clean(message.input_taken))
        case "hello":
            line.searches, line.injects = message.hello.searches_logs, message.hello.injects_faults
            return False
        case "fault_answer":
            return _answer(line.injections, message.fault_answer.id, clean(message.fault_answer))
        case "evidence":
            return _answer(line.examinations, message.evidence.id, clean(message.evidence))
        case _:
            return False


def _take(line: _Line, chunk: agent_pb2.TransferChunk) -> bool:
    """Hand a chunk to its reading. A host that sends what it has no credit for is not listened to any more."""
    reading = line.readings.get(chunk.id)
    if reading is None:
        return False
    if reading.credit > 0 and chunk.data:
        reading.credit -= len(chunk.data)
        reading.items.put_nowait(chunk)
        return True
    log.warning("transfer.credit_exceeded", host=reading.host)
    return _refuse(line, chunk.id, f"{reading.host} sends more than it was asked for")


def _refuse(line: _Line, number: int, problem: str) -> bool:
    """End a reading for what its host sent, and have the host stop; never what was asked for."""
    if (reading := line.readings.pop(number, None)) is not None:
        reading.items.put_nowait(End(problem))
        line.orders.put_nowait(agent_pb2.TransferResponse(close=agent_pb2.CloseLog(id=number)))
    return False


def _answer(waiting: dict[int, asyncio.Future[Answer]], number: int, found: Answer) -> bool:
    """Hand an answer to the call that waits for it; False where none does."""
    answer = waiting.pop(number, None)
    if answer is not None and not answer.done():
        answer.set_result(found)
    return answer is not None


def _uncount(counted: Counter[str], reader: str) -> None:
    counted[reader] -= 1
    if not counted[reader]:
        del counted[reader]
