"""Where a store may be: a file of SQLite, or a database of PostgreSQL. Both have to pass the same tests."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.support.postgres import Server

from holdfast_controller.shell.store.databases.engine import Engine
from holdfast_controller.shell.store.databases.sqlite import SqliteFile


class Place(Protocol):
    """Where the stores of one test are, one after the other."""

    @property
    def path(self) -> Path:
        """Of the file, or of what is noted on this machine."""

    def engine(self) -> Engine:
        """A new engine for it."""

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a statement answers, with no controller there. Parameters are ``?``."""


@dataclass(frozen=True)
class InFile:
    path: Path

    def engine(self) -> Engine:
        return SqliteFile(self.path)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            return database.execute(statement, values).fetchall()


@dataclass(frozen=True)
class InPostgres:
    """psycopg is imported when it is used: it may not be there."""

    path: Path
    server: Server
    database: str

    def engine(self) -> Engine:
        from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase

        return PostgresDatabase(self.server.address(self.database), self.path)

    def other(self, state_dir: Path, on_stand_by: Callable[[str], None] = lambda _: None) -> Engine:
        """A new engine of a controller on another machine."""
        from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase

        return PostgresDatabase(self.server.address(self.database), state_dir / "postgresql", on_stand_by)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.server.address(self.database)) as database:
            found = database.execute(statement.replace("?", "%s").encode(), values or None)
            return found.fetchall() if found.description else []
