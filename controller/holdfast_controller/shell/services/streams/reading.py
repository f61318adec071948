"""One stream that is read on a host: what has come of it, its credit and how it ended."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import field

from google.protobuf.timestamp_pb2 import Timestamp

from holdfast._base.dataclass import dataclass
from holdfast._base.proto_values import seconds
from holdfast.v1 import agent_pb2

WINDOW_BYTES = 1 << 20
"""Bytes that one reading may have under way."""
SEARCH_BYTES = WINDOW_BYTES // 5
"""Of a search: beside each line, of two bytes at least, an offset of eight is kept."""


@dataclass(frozen=True)
class End:
    """A reading is over; ``problem`` is empty at a good end. ``lost`` when the host went away meanwhile."""

    problem: str = ""
    lost: bool = False
    missing: bool = False
    """The host has no such output."""
    archived: datetime.datetime | None = None
    """When the archive that was read was written last."""
    exit_status: int | None = None
    """Of a shell that ended by itself."""


@dataclass
class Reading:
    """One stream being read on one host."""

    id: int
    host: str
    reader: str = ""
    """The user that it is for."""
    items: asyncio.Queue[agent_pb2.TransferChunk | End] = field(default_factory=asyncio.Queue)
    credit: int = WINDOW_BYTES
    """Bytes that the host may still send. Its last chunk may go beyond them."""


def end_of(message: agent_pb2.TransferEnd) -> End:
    """The end, as a host tells of it."""
    archived = _moment(message.archived) if message.HasField("archived") else None
    status = message.exit_status if message.HasField("exit_status") else None
    return End(message.problem, missing=message.missing, archived=archived, exit_status=status)


def _moment(stamp: Timestamp) -> datetime.datetime:
    """A host's time, whatever its nanoseconds."""
    return datetime.datetime.fromtimestamp(seconds(stamp), datetime.UTC)
