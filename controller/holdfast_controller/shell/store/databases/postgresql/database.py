"""A store in a database of PostgreSQL: one connection, and the leadership of one controller at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import sqlalchemy as sa

from holdfast_controller.shell.store import copying, migrate
from holdfast_controller.shell.store.databases.engine import Standby
from holdfast_controller.shell.store.databases.postgresql import server, standbys
from holdfast_controller.shell.store.databases.postgresql.connection import PostgresConnection
from holdfast_controller.shell.store.databases.postgresql.leadership import Leadership
from holdfast_controller.shell.store.databases.postgresql.takeover import Takeover
from holdfast_controller.shell.store.databases.postgresql.text import APPEND, as_rows
from holdfast_controller.shell.store.records import Record


class PostgresDatabase:
    """The engine for a site that has PostgreSQL. See ``Engine``."""

    copies_beside = shared = True

    def __init__(self, address: str, path: Path, on_stand_by: Callable[[str], None] = lambda _: None) -> None:
        """``address`` is libpq's: a URL or its parameters. ``path`` names what is noted on this machine.

        ``on_stand_by`` is called with the name of the controller that leads, if this one has to wait for it.
        """
        self.path = path
        self.link = PostgresConnection(address)
        self.name = self.link.name
        self.settings: dict[str, str] = {}
        self.takeover = Takeover(self.link, path, on_stand_by)
        self._leadership = Leadership(self.link)

    @property
    def connection(self) -> sa.Connection:
        """The one connection, once there is one."""
        return self.link.sql

    def connect(self) -> None:
        """Open it, check the server, and make the tables where there are none. Raises ``StoreError``."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.link.open()
        server.check(self.connection, self.name)
        with self.connection.begin():
            self.link.lock()
            migrate.make_tables(self.connection, self.name)

    def wait(self, look: Callable[[], int]) -> None:
        """Wait until this controller may take over. Raises ``StoreError`` once it was given up."""
        self.takeover.wait(look, self.settings)

    def give_up(self) -> None:
        """End the wait, called on any thread."""
        self.takeover.give_up()

    def take(self) -> bool:
        """Within the transaction that begins an epoch: let no other controller commit until that has ended."""
        return self.takeover.take()

    @property
    def set_back(self) -> str:
        """Why the database may lack what was acknowledged, after ``take``; empty where it doesn't."""
        return self.takeover.set_back

    @property
    def other_server(self) -> bool:
        """Whether ``take`` has found another server than the one that a controller wrote on last."""
        return self.takeover.other_server

    def begun(self, epoch: int) -> None:
        """Lead from this transaction on."""
        if self.takeover.stood_by_for:
            self.link.patience.other_returns()
        self._leadership.begun(epoch)

    def reading(self) -> AbstractContextManager[None]:
        """A transaction that reads. It is begun on a new connection where the old one is broken."""
        return self.link.reading()

    def writing(self, epoch: int) -> AbstractContextManager[None]:
        """A transaction of the controller that has begun ``epoch``."""
        return self._leadership.writing(epoch, self.settings)

    def landed(self, epoch: int) -> bool:
        """Whether the transaction of unknown outcome was committed. Raises ``Deposed``, ``StoreError``."""
        return self._leadership.landed(epoch)

    def append(self, records: Sequence[Record]) -> None:
        """Write to the end of the log, in one statement; without records the claim alone is written."""
        if records:
            self.connection.exec_driver_sql(APPEND, (as_rows(records),))

    def shrink(self, *, emptied: bool) -> bool:
        return False  # PostgreSQL's own vacuum does it

    def copy_to(self, path: Path) -> None:
        """Copy the whole store into a new file of SQLite, readable by its owner only; also beside the store's thread.

        On a connection of its own: row by row it takes far longer than a standby waits, and commits go on meanwhile.
        """
        with self.link.engine.connect() as other, other.begin():
            other.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            other.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # it holds no row
            copying.to_new_file(other, path)

    def standbys(self) -> list[Standby]:
        """The other controllers that are connected to the database, within a transaction that reads."""
        return standbys.standbys(self.connection)

    def risk(self) -> str:
        """Name, in a sentence, what a failover may lose; empty where nothing that was acknowledged."""
        return self.link.server.risk

    def close(self, epoch: int) -> None:
        """End the connection; no other controller has to wait any more where this one has begun ``epoch``."""
        self._leadership.resign(epoch, self.settings)
        self.link.close()
