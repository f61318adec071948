"""Opens the store's file: one exclusive connection, durable at each commit."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import sqlalchemy as sa

LOCK_WAIT_S = 5.0
"""Seconds to wait for another connection to the file, such as a backup's, to end."""


def sqlite_engine(path: Path) -> sa.Engine:
    """An engine with a single connection. Every transaction takes the write lock at once."""
    options = {"check_same_thread": False, "timeout": LOCK_WAIT_S}
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.StaticPool, connect_args=options)

    def begin(connection: sa.Connection) -> None:
        connection.connection.driver_connection.execute("BEGIN IMMEDIATE")  # type: ignore[union-attr]

    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file; an old one keeps what it has
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")  # what is deleted or replaced is overwritten with zeros
        # A commit of unknown outcome may lie unsynced in the WAL: make it durable before reading.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "begin", begin)
    return engine
