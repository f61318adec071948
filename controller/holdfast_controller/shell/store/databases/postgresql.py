"""A store in a database of PostgreSQL: one connection, on which every transaction renews the claim to lead.

Each transaction of the controller sets the row ``beat`` from the value that it wrote last to the next one. Another
controller that takes over sets that row too, and waits by its lock for a commit in flight; from then on the old
controller's statement finds another value, and nothing of it is committed. By the same row a transaction whose outcome
was never heard is looked up: the server ends a broken connection's transaction before another can have the row.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.types.json import Json
from sqlalchemy.dialects import postgresql

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.shell.store import copying, high_water, meta_rows, migrate
from holdfast_controller.shell.store.databases.engine import DEPOSED_FIX, Deposed, OutcomeUnknown
from holdfast_controller.shell.store.databases.postgresql_address import checked, first_line, name_of
from holdfast_controller.shell.store.databases.postgresql_text import Dumper, Loader, storable_value
from holdfast_controller.shell.store.faults import Damaged
from holdfast_controller.shell.store.records import Record, checksum, row_of
from holdfast_controller.shell.store.schema import events

TERM_S, LOOK_EVERY_S = 2.0, 0.25
"""A controller that leads writes twice in a second; one that was not seen to for a term has ended, or is cut off."""
RECONNECT_FOR_S = 30.0
"""A database that is away for longer ends the controller, and another one may lead."""
RECONNECT_EVERY_S = 0.25
SESSION = {
    # What is acknowledged is on disk, and on the synchronous replicas, whatever the server's default.
    "synchronous_commit": "on",
    # A controller that is frozen, or cut off, keeps no other from leading.
    "idle_in_transaction_session_timeout": "5s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
"""Settings of each connection."""
OPENING_S = 120
"""A controller that is frozen while it begins an epoch keeps others from leading for so long at most."""
OLDEST_VERSION = 13
_OPENING = 0x686F6C64
"""Of the advisory lock that keeps two controllers from making the tables, or beginning an epoch, at once."""
_CLAIM = "UPDATE meta SET value = %s, checksum = %s WHERE key = 'beat' AND value = %s"
_LOOK = "SELECT value FROM meta WHERE key = 'beat' FOR UPDATE"
_NAMES = ", ".join(events.columns.keys())
_TYPES = ", ".join(f"{c.name} {c.type.compile(postgresql.dialect())}" for c in events.columns)  # type: ignore[no-untyped-call]
_APPEND = f"INSERT INTO events ({_NAMES}) SELECT {_NAMES} FROM json_to_recordset(%s) AS new ({_TYPES})"
_NAME = "holdfast-controller"
_STANDBYS = """SELECT split_part(application_name, ' ', 2) FROM pg_stat_activity WHERE datname = current_database()
    AND usename = current_user AND pid <> pg_backend_pid() AND split_part(application_name, ' ', 1) = %s ORDER BY 1"""
"""A connection is named after its controller's machine."""
_AS_JSON = functools.partial(json.dumps, ensure_ascii=False)
R = TypeVar("R")


class Claim(NamedTuple):
    """The controller that leads by the database, and its last transaction's number; empty where there never was one."""

    leader: str
    beat: str


class PostgresDatabase:
    """The engine for a site that has PostgreSQL. See ``Engine``."""

    copies_beside = True

    def __init__(self, address: str, path: Path, on_stand_by: Callable[[str], None] = lambda _: None) -> None:
        """``address`` is libpq's: a URL or its parameters. ``path`` names what is noted on this machine.

        ``on_stand_by`` is called with the name of the controller that leads, if this one has to wait for it.
        """
        self._on_stand_by = on_stand_by
        self._stands_by = ""
        self._given_up = False
        self._seen = Claim("", "")
        self._leads = False
        self._conninfo = checked(address)
        self.name = name_of(self._conninfo)
        self.path = path
        self._engine = sa.create_engine(
            "postgresql+psycopg://", creator=self._connect, poolclass=sa.pool.NullPool, paramstyle="format"
        )
        sa.event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        self._connection: sa.Connection | None = None
        self._beat = 0
        """Number of the last transaction of this epoch that is known to be committed."""
        self._next = 0

    @property
    def connection(self) -> sa.Connection:
        """The one connection, once there is one."""
        assert self._connection is not None, "the store is not open"
        return self._connection

    def connect(self) -> None:
        """Open it, check the server, and make the tables where there are none. Raises ``StoreError``."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._connection = self._engine.connect()
        self._check_server()
        with self.connection.begin():
            self._lock()
            migrate.make_tables(self.connection, self.name)

    def wait(self, look: Callable[[], None]) -> None:
        """Wait until the controller that leads has written nothing for ``TERM_S``, has ended, or was this one.

        Only time that passes here counts: no clock of another machine is compared. Raises ``StoreError`` once it was
        given up.
        """
        self._seen, last, still = self._claim(), time.monotonic(), 0.0
        while not self._free(self._seen) and still < TERM_S:
            time.sleep(LOOK_EVERY_S)
            if self._given_up:
                raise StoreError(f"The wait for {self.name} was given up.")
            found, now = self._on_whole_connection(self._claim), time.monotonic()
            if found == self._seen:
                still += min(now - last, 2 * LOOK_EVERY_S)  # not the time in which nothing could be seen
            else:
                still = 0.0
                if not self._free(found):
                    self._stand_by(found.leader)
                    self._on_whole_connection(lambda: self._look(look))
            self._seen, last = found, now

    def give_up(self) -> None:
        """End the wait, on whatever thread that is: a controller that ends must not lead after all."""
        self._given_up = True

    def take(self) -> bool:
        """Within the transaction that begins an epoch: let no other controller commit until that has ended.

        False where another one has come first, or the one that leads was only slow.
        """
        self._lock()
        self._may_take_long()
        migrate.in_transaction(self.connection, self.name)
        self.connection.exec_driver_sql(_LOOK)  # waits for a commit in flight
        if self._read_claim() != self._seen:
            return False
        if moved := meta_rows.read(self.connection, "moved_to"):
            fix = "Take database_url out of controller.toml there, and start that controller."
            raise Damaged(f"The store of {self.name} was moved to {moved}.", fix=fix)
        meta_rows.write(self.connection, "leader", socket.gethostname())
        return True

    def begun(self) -> None:
        """Count this epoch's transactions from 0."""
        self._beat = self._next = 0
        self._leads = True

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction that reads. It is begun on a new connection where the old one is broken."""
        self._on_whole_connection(lambda: self.connection.begin())
        with self._ending():
            yield

    @contextlib.contextmanager
    def writing(self, epoch: int) -> Iterator[None]:
        """A transaction of the controller that has begun ``epoch``. Raises ``Deposed`` where that isn't the newest.

        Raises ``OutcomeUnknown`` where the connection breaks within it.
        """
        self._next = self._beat + 1
        value = f"{epoch}.{self._next}"
        claim = (value, checksum("beat", value), f"{epoch}.{self._beat}")

        def begin() -> bool:
            self.connection.begin()
            return bool(self.connection.exec_driver_sql(_CLAIM, claim).rowcount)

        leads = self._on_whole_connection(begin)
        try:
            with self._ending():
                if not leads:
                    raise self._deposed()
                yield
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise OutcomeUnknown(
                    f"The connection to {self.name} was lost within a transaction.",
                    fix="See whether the server runs and can be reached from here.",
                ) from error
            raise
        self._beat = self._next

    def landed(self, epoch: int) -> bool:
        """Whether the transaction of unknown outcome was committed. Raises ``Deposed``, ``StoreError``."""

        def look() -> object:
            with self.connection.begin():
                return self.connection.exec_driver_sql(_LOOK).scalar()

        found = self._on_whole_connection(look)
        if found not in (f"{epoch}.{self._beat}", f"{epoch}.{self._next}"):
            raise self._deposed()
        landed = found == f"{epoch}.{self._next}"
        log.info("store.outcome_found", committed=landed)
        if landed:
            self._beat = self._next
        return landed

    def append(self, records: Sequence[Record]) -> None:
        """Write to the end of the log, in one statement; without records the claim alone is written."""
        if records:
            names = events.columns.keys()
            rows = [dict(zip(names, map(storable_value, row_of(record)), strict=True)) for record in records]
            self.connection.exec_driver_sql(_APPEND, (Json(rows, _AS_JSON),))

    def shrink(self, *, emptied: bool) -> bool:
        """PostgreSQL's own vacuum does it."""
        return False

    def copy_to(self, path: Path) -> None:
        """Copy the whole store into a new file of SQLite, readable by its owner only; also beside the store's thread.

        On a connection of its own: row by row it takes far longer than ``TERM_S``, and commits go on meanwhile.
        """
        with self._engine.connect() as other, other.begin():
            other.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            other.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # it holds no row
            copying.to_new_file(other, path)

    def standbys(self) -> list[str]:
        """Machines of the other controllers that are connected to the database, within a transaction that reads."""
        return [str(name) for name in self.connection.exec_driver_sql(_STANDBYS, (_NAME,)).scalars()]

    def close(self, epoch: int) -> None:
        """End the connection; no other controller has to wait any more where this one has begun ``epoch``."""
        if self._connection is not None:
            with contextlib.suppress(sa.exc.DBAPIError, StoreError, OutcomeUnknown):
                if self._leads:
                    with self.writing(epoch):
                        meta_rows.write(self.connection, "leader", "")
                self._connection.close()
        self._engine.dispose()

    def _connect(self) -> psycopg.Connection[Any]:
        made = psycopg.connect(self._conninfo, autocommit=True)  # transactions are begun above, not by the driver
        made.adapters.register_dumper(str, Dumper)
        made.adapters.register_loader("text", Loader)
        made.execute("SELECT set_config('application_name', %s, false)", (f"{_NAME} {socket.gethostname()}"[:63],))
        for name, value in SESSION.items():
            made.execute(f"SET {name} = '{value}'")
        return made

    def _on_whole_connection(self, work: Callable[[], R]) -> R:
        """Do what may be done again, with a new connection as often as that breaks, for ``RECONNECT_FOR_S``."""
        give_up = time.monotonic() + RECONNECT_FOR_S
        while True:
            try:
                if self._connection is None:
                    self._connection = self._engine.connect()
                    log.info("store.connected", database=self.name)
                return work()
            except sa.exc.DBAPIError as error:  # a transaction that stood still too long ends with an InternalError
                broken = self._connection is None or error.connection_invalidated
                if not broken or time.monotonic() >= give_up:
                    raise
                log.warning("store.unreachable", database=self.name, error=first_line(error))
                self._drop()
                time.sleep(RECONNECT_EVERY_S)

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Commit the transaction that was begun, or roll it back where the block raises."""
        transaction = self.connection.get_transaction()
        assert transaction is not None
        try:
            with transaction:
                yield
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                self._drop()
            raise

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.invalidate()
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.close()
        self._connection = None

    def _free(self, claim: Claim) -> bool:
        """Whether there is no other controller to wait for: ours, if it was killed, began the epoch noted here."""
        noted = high_water.read(self.path)
        ours = noted is not None and claim.beat.partition(".")[0] == str(noted.epoch)
        return not claim.leader or ours

    def _stand_by(self, leader: str) -> None:
        if leader != self._stands_by:
            log.info("controller.stands_by", leader=leader, database=self.name)
            self._on_stand_by(leader)
        self._stands_by = leader

    def _look(self, look: Callable[[], None]) -> None:
        """Have a standby look at the log. It can't write: the server itself refuses."""
        with self.connection.begin():
            self.connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._may_take_long()
            look()

    def _may_take_long(self) -> None:
        """The whole cluster may be read within this transaction, and the server waits meanwhile."""
        self.connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{OPENING_S}s'")

    def _claim(self) -> Claim:
        with self.connection.begin():
            return self._read_claim()

    def _read_claim(self) -> Claim:
        values = (meta_rows.read(self.connection, key) or "" for key in ("leader", "beat"))
        return Claim(*values)

    def _lock(self) -> None:
        self.connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_OPENING})")

    def _deposed(self) -> Deposed:
        self._leads = False
        return Deposed(f"Another controller has taken over {self.name}.", fix=DEPOSED_FIX)

    def _check_server(self) -> None:
        """Raises ``StoreError`` for a server on which a store can't be kept; notes what makes it less than durable."""

        def shown(name: str) -> str:
            return str(self.connection.exec_driver_sql(f"SHOW {name}").scalar())

        try:
            version = int(shown("server_version_num")) // 10_000
            if version < OLDEST_VERSION:
                fix = f"Use PostgreSQL {OLDEST_VERSION} or newer."
                raise StoreError(f"{self.name} is of PostgreSQL {version}.", fix=fix)
            if shown("server_encoding") != "UTF8":
                fix = "Make another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
                raise StoreError(f"{self.name} is encoded in {shown('server_encoding')}.", fix=fix)
            risky = [name for name in ("fsync", "full_page_writes") if shown(name) != "on"]
            if risky:
                log.warning("store.not_durable", database=self.name, off=", ".join(risky))
        finally:
            self.connection.rollback()
