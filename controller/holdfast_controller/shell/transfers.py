"""Readings of workers' output over the agents' ``Transfer`` streams.

The controller asks an agent to read a stream and grants it bytes to send; each follower gives its own
credit, so a slow one delays nobody and nothing piles up here.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import grpc

from holdfast.v1 import agent_pb2
from holdfast_controller.shell.rpc import beside

log = logging.getLogger(__name__)

WINDOW_BYTES = 1 << 20
"""Bytes that one reading may have under way."""
MAX_READINGS = 4_096
"""Readings at once on one host."""


@dataclass(frozen=True)
class End:
    """A reading is over; ``problem`` is empty at a good end. ``lost`` when the host went away meanwhile."""

    problem: str = ""
    lost: bool = False


@dataclass
class Reading:
    """One stream being read on one host."""

    id: int
    host: str
    items: asyncio.Queue[agent_pb2.TransferChunk | End] = field(default_factory=asyncio.Queue)


@dataclass
class _Line:
    """One host's transfer stream."""

    orders: asyncio.Queue[agent_pb2.TransferResponse | None] = field(default_factory=asyncio.Queue)
    readings: dict[int, Reading] = field(default_factory=dict)


class Transfers:
    """All hosts' transfer streams."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._ids = itertools.count(1)
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait until some host has connected."""
        await self._changed.wait()

    def connected(self, host: str) -> bool:
        """Whether the host can be read from now."""
        return host in self._lines

    def open(self, host: str, order: agent_pb2.OpenLog) -> Reading | None:
        """Ask for a reading; None while the host isn't connected or reads too much already."""
        line = self._lines.get(host)
        if line is None or len(line.readings) >= MAX_READINGS:
            return None
        reading = Reading(next(self._ids), host)
        line.readings[reading.id] = reading
        order.id = reading.id
        order.credit_bytes = WINDOW_BYTES
        line.orders.put_nowait(agent_pb2.TransferResponse(open=order))
        return reading

    def credit(self, reading: Reading, count: int) -> None:
        """The follower has taken ``count`` bytes; as many more may come."""
        line = self._lines.get(reading.host)
        if line is not None and reading.id in line.readings and count:
            credit = agent_pb2.Credit(id=reading.id, bytes=count)
            line.orders.put_nowait(agent_pb2.TransferResponse(credit=credit))

    def close(self, reading: Reading) -> None:
        """The follower has left."""
        line = self._lines.get(reading.host)
        if line is not None and line.readings.pop(reading.id, None) is not None:
            line.orders.put_nowait(agent_pb2.TransferResponse(close=agent_pb2.CloseLog(id=reading.id)))

    async def serve(
        self, host: str, messages: AsyncIterator[agent_pb2.TransferRequest]
    ) -> AsyncGenerator[agent_pb2.TransferResponse, None]:
        """Run one host's stream: yields orders for it. A newer stream of the host replaces an older one."""
        old = self._lines.get(host)
        if old is not None:
            self._hang_up(old)
        line = self._lines[host] = _Line()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        try:
            async with beside(self._read(line, messages), lambda: line.orders.put_nowait(None)):
                while (order := await line.orders.get()) is not None:
                    yield order
        finally:
            self._hang_up(line)
            if self._lines.get(host) is line:
                del self._lines[host]

    async def _read(self, line: _Line, messages: AsyncIterator[agent_pb2.TransferRequest]) -> None:
        try:
            async for message in messages:
                match message.WhichOneof("message"):
                    case "chunk":
                        reading = line.readings.get(message.chunk.id)
                        if reading is not None:
                            reading.items.put_nowait(message.chunk)
                    case "end":
                        reading = line.readings.pop(message.end.id, None)
                        if reading is not None:
                            reading.items.put_nowait(End(message.end.problem))
                    case _:
                        pass
        except grpc.RpcError as error:
            log.info("transfer_broken", extra={"fields": {"error": str(error)}})

    def _hang_up(self, line: _Line) -> None:
        for reading in line.readings.values():
            reading.items.put_nowait(End("the host went away", lost=True))
        line.readings.clear()
        line.orders.put_nowait(None)
