"""The one connection to a database of PostgreSQL: made again where it breaks, named for other controllers to see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.shell.store.databases.postgresql import server, standbys
from holdfast_controller.shell.store.databases.postgresql.address import checked, name_of
from holdfast_controller.shell.store.databases.postgresql.patience import Patience
from holdfast_controller.shell.store.databases.postgresql.text import Dumper, Loader

SESSION = {
    # What is acknowledged is on disk, and on the synchronous replicas, whatever the server's default.
    "synchronous_commit": "on",
    # A controller that is frozen, or cut off, keeps no other from leading.
    "idle_in_transaction_session_timeout": "3s",
    "tcp_user_timeout": "3s",  # also within an answer, which the server waits to be read
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""Settings of each connection."""
OPENING_S = 120
"""A controller that is frozen while it begins an epoch keeps others from leading for so long at most."""
_OPENING = 0x686F6C64
"""Of the advisory lock that keeps two controllers from making the tables, or beginning an epoch, at once."""
R = TypeVar("R")


class PostgresConnection:
    """A controller's connection, for as long as it runs."""

    def __init__(self, address: str) -> None:
        """``address`` is libpq's: a URL or its parameters."""
        self._conninfo = checked(address)
        self.name = name_of(self._conninfo)
        """How sentences call the database."""
        self.patience = Patience(self.name)
        self.server = server.Server()
        """What the newest connection leads to."""
        self.told = standbys.name_of(0, "")
        """The name of the connection."""
        self.engine = sa.create_engine(
            "postgresql+psycopg://", creator=self._connect, poolclass=sa.pool.NullPool, paramstyle="format"
        )
        sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        self._connection: sa.Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is one that isn't known to be broken."""
        return self._connection is not None

    @property
    def sql(self) -> sa.Connection:
        """The connection itself, once there is one."""
        assert self._connection is not None, "the store is not open"
        return self._connection

    def open(self) -> None:
        """Connect for the first time. Raises ``DBAPIError``."""
        self._connection = self.engine.connect()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction that reads. It is begun on a new connection where the old one is broken."""
        self.on_whole(lambda: self.sql.begin())
        with self.ending():
            yield

    def on_whole(self, work: Callable[[], R]) -> R:
        """Do what may be done again, with a new connection as often as that breaks, until it is away for too long."""

        def attempt() -> R:
            if self._connection is None:
                self._connection = self.engine.connect()
                log.info("store.connected", database=self.name)
            return work()

        def drop(error: sa.exc.DBAPIError) -> bool:
            if broken := self._connection is None or error.connection_invalidated:
                self._drop(error)
            return broken

        return self.patience.wait(attempt, drop)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Commit the transaction that was begun, or roll it back where the block raises."""
        transaction = self.sql.get_transaction()
        assert transaction is not None
        try:
            with transaction:
                yield
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                self._drop(error)
            raise

    def tell(self, told: str) -> None:
        """Name the connection, within a transaction: others see by it who leads, and how far one that waits is."""
        if told != self.told:
            self.told = told
            self.sql.exec_driver_sql("SELECT set_config('application_name', %s, false)", (told,))

    def may_take_long(self) -> None:
        """The whole cluster may be read within this transaction, and the server waits meanwhile."""
        self.sql.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{OPENING_S}s'")

    def lock(self) -> None:
        """Within a transaction: keep others from making the tables, or beginning an epoch, until it has ended."""
        self.sql.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_OPENING})")

    def close(self) -> None:
        """End it, whether it is open or not."""
        if self._connection is not None:
            with contextlib.suppress(sa.exc.DBAPIError):
                self._connection.close()
        self._connection = None
        self.engine.dispose()

    def _connect(self) -> psycopg.Connection[Any]:
        made = psycopg.connect(self._conninfo, autocommit=True)  # transactions are begun above, not by the driver
        made.adapters.register_dumper(str, Dumper)
        made.adapters.register_loader("text", Loader)
        made.execute("SELECT set_config('application_name', %s, false)", (self.told,))
        for name, value in SESSION.items():
            made.execute(f"SET {name} = '{value}'")
        self.server = server.look(made)
        return made

    def _drop(self, error: sa.exc.DBAPIError) -> None:
        if self._connection is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.invalidate()
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.close()
        self._connection = None
        self.patience.broke(error)
