"""Servers of PostgreSQL as the controllers' own code needs them: rows, transactions, the lock of a row, and failures.

Rows lie in SQLite, whose write-ahead log gives each transaction the state of its beginning, as PostgreSQL does. What is
written differently there is understood by its text. A commit that was sent lands, whatever becomes of who sent it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
import sqlalchemy as sa
from tests.sim.engine import Violation

from holdfast_controller.shell.store import migrate
from holdfast_controller.shell.store.databases.postgresql import server as servers
from holdfast_controller.shell.store.databases.postgresql.address import DEFAULTS
from holdfast_controller.shell.store.databases.postgresql.connection import SESSION
from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase
from holdfast_controller.shell.store.databases.postgresql.text import APPEND
from holdfast_controller.shell.store.schema import events, metadata

if TYPE_CHECKING:
    from tests.sim.several.process import Process

UNANSWERED_S = float(DEFAULTS["tcp_user_timeout"]) / 1000
"""What is not acknowledged for so long breaks the connection: tcp_user_timeout."""
IDLE_S = float(SESSION["idle_in_transaction_session_timeout"].removesuffix("s"))
"""The server ends a transaction that stands still for so long: idle_in_transaction_session_timeout."""
BACK_S = 0.001
Change = dict[str, Any]


class Server:
    """One server, and what is connected to it."""

    def __init__(self, path: Path, identity: str, *, lossless: bool) -> None:
        self.path, self.identity, self.lossless = path, identity, lossless
        self.up = True
        self.sessions: list[Session] = []
        self.owner: dict[str, Session | None] = {"beat": None, "opening": None}
        self.waiting: dict[str, list[Session]] = {"beat": [], "opening": []}
        self.engine = sa.create_engine("sqlite://", creator=self._open, poolclass=sa.pool.NullPool)
        sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))

    def _open(self) -> sqlite3.Connection:
        made = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.0)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = OFF")
        return made

    def make_tables(self) -> None:
        """As the first controller would."""
        with self.engine.connect() as connection, connection.begin():
            migrate.make_tables(connection, "database")
            metadata.create_all(connection)

    def copied_to(self, path: Path) -> None:
        """All that is committed, in another file: what a replica has."""
        source, target = self._open(), sqlite3.connect(path)
        source.backup(target)
        source.close()
        target.close()

    def end(self) -> None:
        """It is gone, with every connection; what was not committed is rolled back."""
        self.up = False
        for session in list(self.sessions):
            session.end()

    def lock(self, name: str, session: Session) -> bool:
        """Whether the session has the lock now; else it waits for its turn."""
        if self.owner[name] in (None, session):
            self.owner[name] = session
            return True
        self.waiting[name].append(session)
        return False

    def release(self, session: Session) -> None:
        """Its transaction has ended: who waits for its locks may go on."""
        for name, owner in self.owner.items():
            self.waiting[name] = [other for other in self.waiting[name] if other is not session]
            if owner is session:
                following = self.waiting[name].pop(0) if self.waiting[name] else None
                self.owner[name] = following
                if following is not None:
                    following.strand.wake()


class Session:
    """One connection, as the server has it."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server, self.process, self.strand = server, process, process.strand
        self.inner = server.engine.connect()
        self.alive, self.name = True, ""
        self.transactions = 0
        self.changes: Change = {}
        self.landing = self.closed = False
        server.sessions.append(self)

    def end(self) -> None:
        """The server ends it: what was not committed is rolled back."""
        if not self.alive:
            return
        self.alive = False
        self.server.sessions.remove(self)
        self.inner.rollback()
        self.inner.close()
        waits = [name for name, waiting in self.server.waiting.items() if self in waiting]
        self.server.release(self)
        if waits and self.process.life.alive:
            self.strand.wake()

    def close(self) -> None:
        """The client's side is closed, and the server knows: a commit that it is at work on lands."""
        self.closed = True
        if not self.landing:
            self.end()

    def land(self) -> None:
        """Its transaction is committed."""
        changes, self.changes = self.changes, {}
        self.landing = False
        if not self.alive:
            return
        self.inner.commit()
        self.server.release(self)
        if changes:
            self.process.site.landed(self.process, self.server, changes)
        if self.closed:
            self.end()


class Transaction:
    """One transaction, as ``sqlalchemy.Transaction`` is used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is None:
            self._connection.commit()
        else:
            self._connection.rollback()


class Connection:
    """One connection, as ``sqlalchemy.Connection`` is used by the store and by ``PostgresDatabase``."""

    def __init__(self, session: Session) -> None:
        self._session, self._site = session, session.process.site
        self._broken = False
        self._transaction: Transaction | None = None
        self.dialect = session.inner.dialect

    def begin(self) -> Transaction:
        self._session.strand.wait(self._site.hop_s())
        self._ask()
        self._session.transactions += 1
        self._session.changes = {}
        self._session.inner.begin()
        self._transaction = Transaction(self)
        return self._transaction

    def get_transaction(self) -> Transaction | None:
        return self._transaction

    def execute(self, statement: Any, *args: Any) -> Any:
        self._ask()
        if not isinstance(statement, sa.Select):
            self._session.changes.setdefault("rows", True)
        return self._session.inner.execute(statement, *args)

    def exec_driver_sql(self, text: str, parameters: Any = ()) -> Any:
        self._ask()
        session, server = self._session, self._session.server
        if text.startswith("SET "):
            return None
        if text.startswith("SELECT set_config"):
            session.name = parameters[0]
            return None
        if text.startswith("SHOW"):
            return _Scalar("standby" if server.lossless else "")
        if "alembic_version" in text:
            return _Scalar(migrate.newest_revision())
        if "pg_stat_activity" in text:
            return _Scalar(*self._named(parameters))
        if "pg_advisory_xact_lock" in text:
            self._lock("opening")
            return None
        if text == APPEND:
            return self._append(parameters[0].obj)
        if text.startswith("UPDATE meta SET value") or text.endswith("FOR UPDATE"):
            self._lock("beat")
            if text.startswith("UPDATE"):
                session.changes.setdefault("beat", parameters[0])
        elif text.startswith("INSERT"):
            session.changes.setdefault("rows", True)
            for row in parameters if text.startswith("INSERT INTO meta ") else ():
                session.changes.setdefault("meta", {})[row[0]] = row[1]
        return session.inner.exec_driver_sql(text.replace("%s", "?").replace(" FOR UPDATE", ""), parameters)

    def _named(self, parameters: tuple[str, ...]) -> list[Any]:
        others = [each for each in self._session.server.sessions if each is not self._session]
        if len(parameters) == 2:
            return [sum(each.name.startswith(f"{parameters[0]}/{parameters[1]} ") for each in others)]
        return sorted(each.name for each in others if each.name.startswith(f"{parameters[0]}/"))

    def _append(self, rows: list[dict[str, Any]]) -> None:
        known = self._session.inner.execute(sa.select(sa.func.max(events.c.sequence))).scalar() or 0
        if rows and rows[0]["sequence"] <= known:
            what = f"event {rows[0]['sequence']} is written again to a log that ends at {known}"
            raise Violation("25 one log", what)
        self._session.changes.setdefault("events", []).extend(rows)
        self._session.inner.execute(sa.insert(events), rows)

    def _lock(self, name: str) -> None:
        session = self._session
        if not session.server.lock(name, session):
            session.strand.park()
            self._ask()

    def _ask(self) -> None:
        """A statement reaches the server, and its answer comes; or the connection breaks. Raises ``DBAPIError``."""
        session = self._session
        to, back = self._site.ways(session.process.machine)
        if self._broken or not session.alive:
            self._fail("the server has closed the connection")
        if to and back:
            return
        if to:  # the server did as it was asked, and hears nothing more
            self._leave()
        self._fail_late()

    def _leave(self) -> None:
        """The server ends the transaction once it has stood still for long enough."""
        session, number = self._session, self._session.transactions

        def idle() -> None:
            if session.transactions == number and not session.landing:
                session.end()

        self._site.engine.after(IDLE_S, idle)

    def _fail_late(self) -> NoReturn:
        self._leave()
        self._session.strand.wait(UNANSWERED_S)
        self._fail("no answer")

    def _fail(self, why: str) -> NoReturn:
        self._broken = True
        self._transaction = None
        raise sa.exc.OperationalError("", {}, psycopg.OperationalError(why), connection_invalidated=True)

    def commit(self) -> None:
        """Have it committed; it may land though nobody hears of it."""
        session, site = self._session, self._site
        self._transaction = None
        if self._broken or not session.alive:
            self._fail("the server has closed the connection")
        if not session.changes:
            session.inner.rollback()
            session.server.release(session)
            session.transactions += 1
            return
        to, _ = site.ways(session.process.machine)
        if not to:
            self._fail_late()
        delay_s, breaks = site.commit_takes(session)
        session.landing = True
        site.engine.after(delay_s, session.land)
        if breaks:  # the connection is reset while the server is at work on it
            session.strand.wait(delay_s * site.database_dice.random())
            self._fail("connection reset by peer")
        session.strand.wait(delay_s + BACK_S)
        _, back = site.ways(session.process.machine)
        if not back:
            self._fail_late()
        if not session.alive:
            self._fail("the server has closed the connection")
        session.transactions += 1

    def rollback(self) -> None:
        self._transaction = None
        session = self._session
        if session.alive and not self._broken and not session.landing:
            session.transactions += 1
            session.inner.rollback()
            session.server.release(session)

    def invalidate(self) -> None:
        self._broken = True

    def close(self) -> None:
        """The server learns of it, unless it can't be reached; a commit that it is at work on lands."""
        if self._site.ways(self._session.process.machine)[0]:
            self._session.close()
        else:
            self._leave()


class _Scalar:
    """The answer to what is understood by its text."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def scalar(self) -> Any:
        return self._values[0] if self._values else None

    def scalars(self) -> tuple[Any, ...]:
        return self._values


class Pool:
    """What dials a server, as an engine of SQLAlchemy does."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def connect(self) -> Connection:
        """Another connection to the server that takes writes now. Raises ``DBAPIError``."""
        database, process = self._database, self._database.process
        site = process.site
        process.strand.wait(site.hop_s())
        if not site.server.up or not all(site.ways(process.machine)):
            process.strand.wait(0.05 if all(site.ways(process.machine)) else 2.0)
            raise sa.exc.OperationalError("", {}, psycopg.OperationalError("connection refused"))
        return Connection(database.session())

    def dispose(self) -> None:
        """There is nothing in it."""


class Postgres(PostgresDatabase):
    """The product's own engine, on a simulated server."""

    def __init__(self, process: Process, path: Path, on_stand_by: Callable[[str], None]) -> None:
        super().__init__("postgresql://holdfast@database/holdfast", path, on_stand_by)
        self.process = process
        self.link.engine = Pool(self)  # type: ignore[assignment]

    def connect(self) -> None:
        """As the product does, on a server whose tables are there and whose settings are right."""
        self.link.open()

    def session(self) -> Session:
        """What the server knows of a new connection, and the connection of the server."""
        session = Session(self.process.site.server, self.process)
        session.name = self.link.told
        self.link.server = servers.Server(session.server.identity, session.server.lossless)
        return session
