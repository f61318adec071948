"""Entries of the log as they are stored, each with a checksum."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from holdfast._base.dataclass import dataclass
from holdfast_controller.shell.store.faults import NotAsWritten
from holdfast_controller.shell.store.schema import events


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the log as stored."""

    sequence: int
    entity: str
    type: str
    version: int
    at: float
    state: str
    message: str
    payload: str


_columns = attrgetter(*Record.__slots__)


def row_of(record: Record) -> tuple[Any, ...]:
    """The values of its columns, the checksum last."""
    values = _columns(record)
    return (*values, checksum(*values))


def record_of(row: Any) -> Record:
    """A row of the log, with all its columns. Raises ``NotAsWritten``."""
    *values, noted = row
    record = Record(*values)
    if noted != checksum(*values):
        raise NotAsWritten(f"event {record.sequence}")
    return record


def checksum(*values: object) -> int:
    """CRC-32 of a row's values: finds the flipped bits that SQLite itself doesn't."""
    if bytes in map(type, values):
        values = tuple(zlib.crc32(value) if isinstance(value, bytes) else value for value in values)
    return zlib.crc32(repr(values).encode())


def with_checksum(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it is stored: with its checksum."""
    return {**row, "checksum": checksum(*(kind(row[name]) for name, kind in _summed(table)))}


def as_written(table: sa.Table, row: sa.Row[Any]) -> bool:
    """Whether a row, read with all its columns, is the one that was stored."""
    return bool(row.checksum == checksum(*[kind(getattr(row, name)) for name, kind in _summed(table)]))


@functools.cache
def _summed(table: sa.Table) -> tuple[tuple[str, type], ...]:
    """The columns that a checksum is over, and what Python has for their values. Thousands of rows ask at a start."""
    return tuple((each.name, each.type.python_type) for each in table.columns if each.name != "checksum")


def history(entity: str, after: int, limit: int, since: float, before: int | None) -> sa.Select[Any]:
    """The query for an entity's history; see ``Store.read``."""
    query = sa.select(events).where(events.c.entity == entity, events.c.sequence > after, events.c.at >= since)
    if before is None:
        return query.order_by(events.c.sequence).limit(limit)
    return query.where(events.c.sequence < before).order_by(events.c.sequence.desc()).limit(limit)
