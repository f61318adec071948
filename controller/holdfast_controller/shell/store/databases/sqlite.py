"""A store in a file of SQLite: one exclusive connection, durable at each commit.

SQLite before 3.51.3 can corrupt a WAL when two connections share a file, so readers use the same connection.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from holdfast_controller.shell.store import high_water, sweep
from holdfast_controller.shell.store.databases.engine import DEPOSED_FIX, Deposed, Standby
from holdfast_controller.shell.store.faults import inode
from holdfast_controller.shell.store.migrate import migrate
from holdfast_controller.shell.store.records import Record, checksum, row_of
from holdfast_controller.shell.store.schema import events

LOCK_WAIT_S = 5.0
"""Seconds to wait for another connection to the file, such as a backup's, to end."""
_EPOCH = "SELECT value FROM meta WHERE key = 'epoch'"
_BEAT = "UPDATE meta SET value = ?, checksum = ? WHERE key = 'beat'"
_INSERT = str(sa.insert(events).compile(dialect=sqlite.dialect(paramstyle="qmark")))


class SqliteFile:
    """The engine of a single controller that needs nothing else. See ``Engine``."""

    copies_beside = shared = False
    set_back, other_server = "", False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings: dict[str, str] = {}
        self.name = str(path)
        self._engine = sqlite_engine(path)
        self._connection: sa.Connection | None = None
        self._beat = 0
        self._file = (0, 0)
        """Device and inode of what is open, which ``path`` has to be still when anything is written."""

    @property
    def connection(self) -> sa.Connection:
        """The one connection, once there is one."""
        assert self._connection is not None, "the store is not open"
        return self._connection

    def connect(self) -> None:
        """Open it, check it, and bring its tables up to date. Raises ``StoreError``."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._connection = self._engine.connect()
        migrate(self.connection, self.path)
        self._file = inode(self.path)
        with self.connection.begin():
            high_water.quick_check(self._driver, self.path)

    def wait(self, look: Callable[[], int]) -> None:
        """Not needed: the lock on the file is exclusive."""

    def give_up(self) -> None:
        """Not needed: nothing waits."""

    def take(self) -> bool:
        """Always: the lock on the file is exclusive."""
        return True

    def begun(self, epoch: int) -> None:
        """Count this epoch's commits without events from 0."""
        self._beat = 0

    def reading(self) -> contextlib.AbstractContextManager[object]:
        """A transaction that reads."""
        return self.connection.begin()

    @contextlib.contextmanager
    def writing(self, epoch: int) -> Iterator[None]:
        """A transaction of the controller that has begun ``epoch``. Raises ``Deposed`` where that isn't the newest."""
        if inode(self.path) != self._file:
            raise Deposed(f"{self.path} was moved or replaced under the controller.", fix=DEPOSED_FIX)
        with self.connection.begin():
            if self._driver.execute(_EPOCH).fetchone() != (str(epoch),):
                raise Deposed(f"Another controller has taken over {self.path}.", fix=DEPOSED_FIX)
            yield

    def landed(self, epoch: int) -> bool:
        """Never asked: the outcome of a commit to a file is known."""
        raise AssertionError(epoch)

    def append(self, records: Sequence[Record]) -> None:
        """Write to the end of the log; without records, the number of such commits."""
        if records:
            self._driver.executemany(_INSERT, map(row_of, records))
        else:
            self._beat += 1
            self._driver.execute(_BEAT, (str(self._beat), checksum("beat", str(self._beat))))

    def shrink(self, *, emptied: bool) -> bool:
        """Cut the write-ahead log, once all is deleted; give some free pages back; whether there are more."""
        if emptied:
            sweep.empty_wal(self._driver)
        return sweep.shrink(self._driver)

    def copy_to(self, path: Path) -> None:
        """Copy the whole store into a new file of SQLite, readable by its owner only."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(path)) as target:
            target.execute("PRAGMA synchronous=OFF")  # the caller reads it at once
            self._driver.backup(target)
        self.connection.rollback()

    def standbys(self) -> list[Standby]:
        """Never any: the lock on the file is exclusive."""
        return []

    def risk(self) -> str:
        """Nothing: a file has no failover."""
        return ""

    def close(self, epoch: int) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()

    @property
    def _driver(self) -> sqlite3.Connection:
        """SQLAlchemy's raw connection within its transaction, for statements of every commit."""
        driver: sqlite3.Connection | None = self.connection.connection.driver_connection
        assert driver is not None, "the store is not open"
        return driver


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
