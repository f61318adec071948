"""Copies all rows of a store into another database's empty tables, whatever kind either is."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from holdfast_controller.shell.store.faults import NotAsWritten
from holdfast_controller.shell.store.migrate import migrate
from holdfast_controller.shell.store.records import checksum
from holdfast_controller.shell.store.schema import metadata
from holdfast_controller.shell.store.statements import put

ROWS_AT_ONCE = 200
"""Evidence of hangs may have some MiB a row."""


def to_new_file(source: sa.Connection, path: Path) -> None:
    """Copy a store into a new file of SQLite, readable by its owner only. Raises ``OSError``, ``NotAsWritten``."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    try:
        with engine.connect() as target:
            target.exec_driver_sql("PRAGMA auto_vacuum=INCREMENTAL")  # it can't be had later
            migrate(target, path)
            with target.begin():
                copy_rows(source, target)
    finally:
        engine.dispose()


def copy_rows(source: sa.Connection, target: sa.Connection) -> dict[str, int]:
    """Copy every table within both transactions; rows by table. Raises ``NotAsWritten`` where a copy differs."""
    counts: dict[str, int] = {}
    for table in metadata.sorted_tables:
        written: Counter[int] = Counter()
        for rows in _portions(source, table):
            put(target, table, rows)
            written.update(map(_digest, rows))
        counts[table.name] = written.total()
        for rows in _portions(target, table):
            written.subtract(map(_digest, rows))
        if any(written.values()):
            raise NotAsWritten(f"the copy of the table {table.name}")
    return counts


def _portions(database: sa.Connection, table: sa.Table) -> Any:
    query = sa.select(table).execution_options(yield_per=ROWS_AT_ONCE)
    for portion in database.execute(query).mappings().partitions():
        yield [dict(row) for row in portion]


def _digest(row: dict[str, Any]) -> int:
    return checksum(*(value for _, value in sorted(row.items())))
