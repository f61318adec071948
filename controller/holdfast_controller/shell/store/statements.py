"""Statements that the kinds of databases write differently, or that are too frequent to be built each time."""

from __future__ import annotations

import enum
import functools
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa


class Twice(enum.Enum):
    """Fates of a row whose key is there already, and of the new one."""

    REPLACE = enum.auto()
    """The new row takes its place."""
    LEAVE = enum.auto()
    """The old one stays."""
    ADD = enum.auto()
    """All but the key is added to it."""


def put(
    database: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]], twice: Twice = Twice.REPLACE
) -> None:
    """Insert rows, each with all columns of the table, in the caller's transaction."""
    names = table.columns.keys()
    if values := [tuple(row[name] for name in names) for row in rows]:
        database.exec_driver_sql(_insert(table, twice, database.dialect), values)


def remove(database: sa.Connection, table: sa.Table, keys: Iterable[str]) -> None:
    """Delete the rows with these keys, in the caller's transaction; the table's key is one column."""
    if values := [(key,) for key in keys]:
        database.exec_driver_sql(_delete(table, database.dialect), values)


def total(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """The sum of a column, as an integer: PostgreSQL's is a decimal number."""
    return sa.cast(sa.func.sum(column), sa.BigInteger)


@functools.lru_cache(maxsize=128)
def _delete(table: sa.Table, dialect: sa.Dialect) -> str:
    (key,) = table.primary_key.columns
    return str(sa.delete(table).where(key == sa.bindparam("key")).compile(dialect=dialect))


@functools.lru_cache(maxsize=128)
def _insert(table: sa.Table, twice: Twice, dialect: sa.Dialect) -> str:
    """The statement with positional parameters, in the order of the columns."""
    new = importlib.import_module(f"sqlalchemy.dialects.{dialect.name}").insert(table)
    key = list(table.primary_key.columns)
    others = [column for column in table.columns if not column.primary_key]
    match twice:
        case Twice.LEAVE:
            new = new.on_conflict_do_nothing(index_elements=key)
        case Twice.REPLACE:
            new = new.on_conflict_do_update(index_elements=key, set_={c.name: new.excluded[c.name] for c in others})
        case Twice.ADD:
            sums = {c.name: c + new.excluded[c.name] for c in others}
            new = new.on_conflict_do_update(index_elements=key, set_=sums)
    return str(new.compile(dialect=dialect))
