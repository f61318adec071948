"""Leadership of one controller: every transaction renews its claim, so that an old leader commits nothing any more.

Each transaction of the controller sets the row ``beat`` from the value that it wrote last to the next one. Another
controller that takes over sets that row too, and waits by its lock for a commit in flight; from then on the old
controller's statement finds another value, and nothing of it is committed. By the same row a transaction whose outcome
was never heard is looked up: the server ends a broken connection's transaction before another can have the row.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.shell.store import meta_rows
from holdfast_controller.shell.store.databases.engine import DEPOSED_FIX, Deposed, OutcomeUnknown, SetBack
from holdfast_controller.shell.store.databases.postgresql import server, standbys
from holdfast_controller.shell.store.databases.postgresql.connection import PostgresConnection
from holdfast_controller.shell.store.records import checksum

SERVER_LOOK_EVERY_S = 1.0
CLAIM = "UPDATE meta SET value = %s, checksum = %s WHERE key = 'beat' AND value = %s"
LOOK = "SELECT value FROM meta WHERE key = 'beat' FOR UPDATE"


class Claim(NamedTuple):
    """The controller that leads by the database, and its last transaction's number; empty where there never was one."""

    leader: str
    beat: str

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and number of the last transaction, in their order."""
        return _position(self.beat)


def claim(database: sa.Connection) -> Claim:
    """The newest claim, within a transaction."""
    return Claim(*(meta_rows.read(database, key) or "" for key in ("leader", "beat")))


class Leadership:
    """The transactions of a controller that leads."""

    def __init__(self, link: PostgresConnection) -> None:
        """``link`` is the store's connection."""
        self._link = link
        self._leads = False
        self._beat = 0
        """Number of the last transaction of this epoch that is known to be committed."""
        self._next = 0
        self._noted: tuple[str, Mapping[str, str]] = ("", {})
        self._look_at_server = 0.0

    def begun(self, epoch: int) -> None:
        """Count this epoch's transactions from 0, and have the connection named after it."""
        self._beat = self._next = 0
        self._leads = True
        self._link.tell(standbys.leaders_name(epoch))

    @contextlib.contextmanager
    def writing(self, epoch: int, settings: Mapping[str, str]) -> Iterator[None]:
        """A transaction of the controller that has begun ``epoch``. See ``Engine.writing``."""
        self._next = self._beat + 1
        value = f"{epoch}.{self._next}"
        claimed = (value, checksum("beat", value), f"{epoch}.{self._beat}")

        def begin() -> bool:
            transaction = self._link.sql.begin()
            try:
                return bool(self._link.sql.exec_driver_sql(CLAIM, claimed).rowcount)
            except sa.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    transaction.rollback()  # the server refuses, as one that is read-only
                raise

        leads = self._link.on_whole(begin)
        try:
            with self._link.ending():
                if not leads:
                    raise self._replaced(self._link.sql.exec_driver_sql(LOOK).scalar(), epoch)
                note = self._note(settings)
                yield
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise OutcomeUnknown(
                    f"The connection to {self._link.name} was lost within a transaction.",
                    fix="See whether the server runs and can be reached from here.",
                ) from error
            raise
        self._beat, self._noted = self._next, note

    def landed(self, epoch: int) -> bool:
        """Whether the transaction of unknown outcome was committed. Raises ``Deposed``, ``StoreError``."""

        def look() -> object:
            with self._link.sql.begin():
                return self._link.sql.exec_driver_sql(LOOK).scalar()

        found = self._link.on_whole(look)
        if found not in (f"{epoch}.{self._beat}", f"{epoch}.{self._next}"):
            raise self._replaced(found, epoch)
        landed = found == f"{epoch}.{self._next}"
        log.info("store.outcome_found", committed=landed)
        if landed:
            self._beat = self._next
        return landed

    def resign(self, epoch: int, settings: Mapping[str, str]) -> None:
        """Let no other controller wait any more, where this one leads and can be heard."""
        if self._leads and self._link.is_open:
            with contextlib.suppress(sa.exc.DBAPIError, StoreError, OutcomeUnknown), self.writing(epoch, settings):
                meta_rows.write(self._link.sql, "leader", "")
        self._leads = False

    def _replaced(self, found: Any, epoch: int) -> StoreError:
        """Why this controller no longer leads, by what it finds in the place of its own last transaction."""
        self._leads = False
        if _position(str(found or "")) >= (epoch, self._beat):
            return Deposed(f"Another controller has taken over {self._link.name}.", fix=DEPOSED_FIX)
        return SetBack(
            f"{self._link.name} has come back without its newest commits: a replica without them was promoted, or an"
            " older copy put in its place.",
            fix="The controller that starts next has all hosts report what they run. So that it doesn't happen again,"
            " have a synchronous replica: synchronous_standby_names.",
        )

    def _note(self, settings: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """Within a transaction: write down which server this is, and our settings, where they have changed."""
        link = self._link
        if time.monotonic() >= self._look_at_server:
            self._look_at_server = time.monotonic() + SERVER_LOOK_EVERY_S
            link.server = link.server._replace(lossless=server.is_lossless(link.sql))
            link.patience.has_standby = bool(standbys.standbys(link.sql))
        before, note = self._noted, (link.server.note, settings)
        if note[0] != before[0]:
            log.info("store.server", server=link.server.identity, lossless=link.server.lossless)
            meta_rows.write(link.sql, meta_rows.SERVER, note[0])
        if note[1] != before[1]:
            standbys.write_settings(link.sql, note[1])
        return note


def _position(beat: str) -> tuple[int, int]:
    """Epoch and number that a row ``beat`` names; zeros where there never was one."""
    epoch, _, number = beat.partition(".")
    return (int(epoch), int(number or 0)) if epoch else (0, 0)
