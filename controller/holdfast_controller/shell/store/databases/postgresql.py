"""A store in a database of PostgreSQL: one connection, on which every transaction renews the claim to lead.

Each transaction of the controller sets the row ``beat`` from the value that it wrote last to the next one. Another
controller that takes over sets that row too, and waits by its lock for a commit in flight; from then on the old
controller's statement finds another value, and nothing of it is committed. By the same row a transaction whose outcome
was never heard is looked up: the server ends a broken connection's transaction before another can have the row.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.shell.store import copying, high_water, meta_rows, migrate
from holdfast_controller.shell.store.databases import postgresql_server, postgresql_standbys
from holdfast_controller.shell.store.databases.engine import DEPOSED_FIX, Deposed, OutcomeUnknown, SetBack, Standby
from holdfast_controller.shell.store.databases.postgresql_address import checked, name_of
from holdfast_controller.shell.store.databases.postgresql_patience import Patience
from holdfast_controller.shell.store.databases.postgresql_server import Claim, Server, position_of
from holdfast_controller.shell.store.databases.postgresql_text import APPEND, Dumper, Loader, as_rows
from holdfast_controller.shell.store.faults import Damaged
from holdfast_controller.shell.store.records import Record, checksum

TERM_S, GONE_S, LOOK_EVERY_S, SEEN_S = 2.0, 0.75, 0.1, 0.5
"""A controller that leads writes twice in a second. One that doesn't for a term has ended; one was killed whose
connection is gone too. The time between two looks counts for SEEN_S at most."""
SERVER_LOOK_EVERY_S = 1.0
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
_CLAIM = "UPDATE meta SET value = %s, checksum = %s WHERE key = 'beat' AND value = %s"
_LOOK = "SELECT value FROM meta WHERE key = 'beat' FOR UPDATE"
R = TypeVar("R")


class PostgresDatabase:
    """The engine for a site that has PostgreSQL. See ``Engine``."""

    copies_beside = shared = True

    def __init__(self, address: str, path: Path, on_stand_by: Callable[[str], None] = lambda _: None) -> None:
        """``address`` is libpq's: a URL or its parameters. ``path`` names what is noted on this machine.

        ``on_stand_by`` is called with the name of the controller that leads, if this one has to wait for it.
        """
        self._on_stand_by = on_stand_by
        self._stands_by = ""
        self._seen = Claim("", "")
        self._furthest = (0, 0)
        """The newest transaction that was seen here, as ``position_of`` has it."""
        self._followed, self._followed_to = "", 0
        """The server on which another controller was last seen to write, and how far the log was read."""
        self._server = Server()
        """What the newest connection leads to."""
        self._noted: tuple[str, dict[str, str]] = ("", {})
        self._told = postgresql_standbys.name_of(0, "")
        """The name of the connection."""
        self._differing: list[str] = []
        self._connected, self._leader_gone = "", False  # the newest epoch seen to be connected; it no longer is
        self._look_at_server = 0.0
        self.set_back, self._given_up, self.other_server = "", False, False
        self.settings: dict[str, str] = {}
        self._leads = False
        self._conninfo = checked(address)
        self.name = name_of(self._conninfo)
        self._patience = Patience(self.name)
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
        postgresql_server.check(self.connection, self.name)
        with self.connection.begin():
            self._lock()
            migrate.make_tables(self.connection, self.name)

    def wait(self, look: Callable[[], int]) -> None:
        """Wait until the controller that leads has written nothing for a term, has ended, or was this one.

        Only time that passes here counts: no clock of another machine is compared. Raises ``StoreError`` once it was
        given up.
        """
        self._seen, last, still = self._claim(), time.monotonic(), 0.0
        self._furthest = max(self._furthest, self._seen.position)
        while not self._free(self._seen) and still < (GONE_S if self._leader_gone else TERM_S):
            time.sleep(LOOK_EVERY_S)
            if self._given_up:
                raise StoreError(f"The wait for {self.name} was given up.")
            found, now = self._on_whole_connection(self._claim), time.monotonic()
            still = still + min(now - last, SEEN_S) if found == self._seen else 0.0  # not what wasn't seen
            if found != self._seen:
                if found.position > self._furthest:
                    self._furthest, self._followed = found.position, self._server.identity
                if not self._free(found):
                    self._stand_by(found.leader)
                    self._on_whole_connection(lambda: self._look(look))
            self._seen, last = found, now

    def give_up(self) -> None:
        """End the wait, called on any thread: a controller that ends must not lead after all."""
        self._given_up = True

    def take(self) -> bool:
        """Within the transaction that begins an epoch: let no other controller commit until that has ended.

        False where another one has come first, or the one that leads was only slow.
        """
        self._lock()
        self._may_take_long()
        self.connection.exec_driver_sql(_LOOK)  # waits for a commit in flight
        if self._read_claim() != self._seen:
            return False
        if moved := meta_rows.read(self.connection, "moved_to"):
            fix = "Take database_url out of controller.toml there, and start that controller."
            raise Damaged(f"The store of {self.name} was moved to {moved}.", fix=fix)
        migrate.in_transaction(self.connection, self.name)  # none that another one uses on
        self._judge_server()
        meta_rows.write(self.connection, "leader", socket.gethostname())
        return True

    def _judge_server(self) -> None:
        """See whether this database may lack what was acknowledged, and note which server it is."""
        before = postgresql_server.noted(self.connection)
        self.other_server = before is not None and before.is_other_than(self._server)
        position = high_water.read(self.path)
        led_here = position is not None and position.epoch == self._seen.position[0]
        self.set_back = "it is behind what was seen of it here" if self._seen.position < self._furthest else ""
        if not self.set_back and before is not None and self.other_server:
            self.set_back = before.why_unreconciled(seen_to_its_end=led_here or self._followed == before.identity)
        meta_rows.write(self.connection, meta_rows.SERVER, self._server.note)

    def begun(self, epoch: int) -> None:
        """Count this epoch's transactions from 0, and have the connection named after it."""
        self._beat = self._next = 0
        self._leads = True
        if self._stands_by:
            self._patience.other_returns()
        self._tell(postgresql_standbys.leaders_name(epoch))

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
            transaction = self.connection.begin()
            try:
                return bool(self.connection.exec_driver_sql(_CLAIM, claim).rowcount)
            except sa.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    transaction.rollback()  # the server refuses, as one that is read-only
                raise

        leads = self._on_whole_connection(begin)
        try:
            with self._ending():
                if not leads:
                    raise self._replaced(self.connection.exec_driver_sql(_LOOK).scalar(), epoch)
                note = self._note()
                yield
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise OutcomeUnknown(
                    f"The connection to {self.name} was lost within a transaction.",
                    fix="See whether the server runs and can be reached from here.",
                ) from error
            raise
        self._beat, self._noted = self._next, note

    def landed(self, epoch: int) -> bool:
        """Whether the transaction of unknown outcome was committed. Raises ``Deposed``, ``StoreError``."""

        def look() -> object:
            with self.connection.begin():
                return self.connection.exec_driver_sql(_LOOK).scalar()

        found = self._on_whole_connection(look)
        if found not in (f"{epoch}.{self._beat}", f"{epoch}.{self._next}"):
            raise self._replaced(found, epoch)
        landed = found == f"{epoch}.{self._next}"
        log.info("store.outcome_found", committed=landed)
        if landed:
            self._beat = self._next
        return landed

    def append(self, records: Sequence[Record]) -> None:
        """Write to the end of the log, in one statement; without records the claim alone is written."""
        if records:
            self.connection.exec_driver_sql(APPEND, (as_rows(records),))

    def shrink(self, *, emptied: bool) -> bool:
        return False  # PostgreSQL's own vacuum does it

    def copy_to(self, path: Path) -> None:
        """Copy the whole store into a new file of SQLite, readable by its owner only; also beside the store's thread.

        On a connection of its own: row by row it takes far longer than ``TERM_S``, and commits go on meanwhile.
        """
        with self._engine.connect() as other, other.begin():
            other.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            other.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # it holds no row
            copying.to_new_file(other, path)

    def standbys(self) -> list[Standby]:
        """The other controllers that are connected to the database, within a transaction that reads."""
        return postgresql_standbys.standbys(self.connection)

    def close(self, epoch: int) -> None:
        """End the connection; no other controller has to wait any more where this one has begun ``epoch``."""
        if self._connection is not None:
            with contextlib.suppress(sa.exc.DBAPIError, StoreError, OutcomeUnknown):
                if self._leads:
                    with self.writing(epoch):
                        meta_rows.write(self.connection, "leader", "")
                self._connection.close()
        self._leads, self._connection = False, None
        self._engine.dispose()

    def _connect(self) -> psycopg.Connection[Any]:
        made = psycopg.connect(self._conninfo, autocommit=True)  # transactions are begun above, not by the driver
        made.adapters.register_dumper(str, Dumper)
        made.adapters.register_loader("text", Loader)
        made.execute("SELECT set_config('application_name', %s, false)", (self._told,))
        for name, value in SESSION.items():
            made.execute(f"SET {name} = '{value}'")
        self._server = postgresql_server.look(made)
        return made

    def _on_whole_connection(self, work: Callable[[], R]) -> R:
        """Do what may be done again, with a new connection as often as that breaks, until it is away for too long."""

        def attempt() -> R:
            if self._connection is None:
                self._connection = self._engine.connect()
                log.info("store.connected", database=self.name)
            return work()

        def drop(error: sa.exc.DBAPIError) -> bool:
            if broken := self._connection is None or error.connection_invalidated:
                self._drop(error)
            return broken

        return self._patience.wait(attempt, drop)

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
                self._drop(error)
            raise

    def _drop(self, error: sa.exc.DBAPIError) -> None:
        if self._connection is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.invalidate()
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.close()
        self._connection = None
        self._patience.broke(error)

    def _free(self, claim: Claim) -> bool:
        """Whether there is no other controller to wait for: ours, if it was killed, began the epoch noted here."""
        noted = high_water.read(self.path)
        ours = noted is not None and claim.beat.partition(".")[0] == str(noted.epoch)
        return not claim.leader or ours

    def _stand_by(self, leader: str) -> None:
        if leader != self._stands_by:
            if leader == socket.gethostname():
                fix = (
                    "Give each controller's machine a host name of its own: status and logs tell them apart by it."
                )
                log.warning("controller.same_name", leader=leader, fix=fix)
            log.info("controller.stands_by", leader=leader, database=self.name)
            self._on_stand_by(leader)
        self._stands_by = leader

    def _tell(self, told: str) -> None:
        """Name the connection, within a transaction: others see by it who leads, and how far one that waits is."""
        if told != self._told:
            self._told = told
            self.connection.exec_driver_sql("SELECT set_config('application_name', %s, false)", (told,))

    def _look(self, look: Callable[[], int]) -> None:
        """Have a standby look at the log. It can't write: the server itself refuses."""
        with self.connection.begin():
            self.connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._may_take_long()
            self._followed_to = look()
            differing = postgresql_standbys.differing(self.connection, self.settings)
        with self.connection.begin():  # what was read is read only
            self._tell(postgresql_standbys.name_of(self._followed_to, postgresql_standbys.in_short(differing)))
        if differing != self._differing:
            self._differing = differing
            fix = "Make controller.toml the same on both machines, but for what is each one's own."
            log.warning("controller.settings_differ", keys=differing, fix=fix if differing else "")

    def _may_take_long(self) -> None:
        """The whole cluster may be read within this transaction, and the server waits meanwhile."""
        self.connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{OPENING_S}s'")

    def _claim(self) -> Claim:
        with self.connection.begin():
            found = self._read_claim()
            epoch = found.beat.partition(".")[0]
            there = postgresql_standbys.is_connected(self.connection, epoch)
        self._connected = epoch if there else self._connected
        self._leader_gone = self._connected == epoch and not there
        return found

    def _read_claim(self) -> Claim:
        values = (meta_rows.read(self.connection, key) or "" for key in ("leader", "beat"))
        return Claim(*values)

    def _lock(self) -> None:
        self.connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_OPENING})")

    def _replaced(self, found: Any, epoch: int) -> StoreError:
        """Why this controller no longer leads, by what it finds in the place of its own last transaction."""
        self._leads = False
        if position_of(str(found or "")) >= (epoch, self._beat):
            return Deposed(f"Another controller has taken over {self.name}.", fix=DEPOSED_FIX)
        return SetBack(
            f"{self.name} has come back without its newest commits: a replica without them was promoted, or an older"
            " copy put in its place.",
            fix="The controller that starts next has all hosts report what they run. So that it doesn't happen again,"
            " have a synchronous replica: synchronous_standby_names.",
        )

    def _note(self) -> tuple[str, dict[str, str]]:
        """Within a transaction: write down which server this is, and our settings, where they have changed."""
        if time.monotonic() >= self._look_at_server:
            self._look_at_server = time.monotonic() + SERVER_LOOK_EVERY_S
            self._server = self._server._replace(lossless=postgresql_server.is_lossless(self.connection))
            self._patience.has_standby = bool(self.standbys())
        before, note = self._noted, (self._server.note, self.settings)
        if note[0] != before[0]:
            log.info("store.server", server=self._server.identity, lossless=self._server.lossless)
            meta_rows.write(self.connection, meta_rows.SERVER, note[0])
        if note[1] != before[1]:
            postgresql_standbys.write_settings(self.connection, note[1])
        return note

    def risk(self) -> str:
        """Name, in a sentence, what a failover may lose; empty where nothing that was acknowledged."""
        return self._server.risk
