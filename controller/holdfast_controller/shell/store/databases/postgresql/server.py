"""Identity of a server of PostgreSQL, and what its failover may lose.

A replica that is promoted begins another timeline of the same system. Whether it has every commit that was
acknowledged, only the settings of the old primary can promise; where they didn't, the store was set back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
import sqlalchemy as sa

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.shell.store import meta_rows

OLDEST_VERSION = 13
_IDENTITY = """SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE (SELECT system_identifier FROM pg_control_system())
    || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"""
_NAMES = "synchronous_standby_names"


class Server(NamedTuple):
    """One server, as a connection has found it."""

    identity: str = ""
    """Its system's number and its timeline; empty where that can't be asked."""
    lossless: bool = False
    """Whether a commit is acknowledged only once a synchronous replica has it."""

    @property
    def note(self) -> str:
        """Form in which the store keeps it."""
        return f"{self.identity} {'lossless' if self.lossless else 'lossy'}"

    @property
    def risk(self) -> str:
        """Sentence on what its failover may lose; empty where nothing that was acknowledged."""
        if self.lossless:
            return ""
        return (
            f"No replica is synchronous ({_NAMES} is empty): one that takes over may lack the newest commits, and"
            " jobs are unreconciled then until their hosts have reported."
        )

    def is_other_than(self, other: Server) -> bool:
        """Whether the two are known to be different ones: a promoted replica has another timeline."""
        return bool(other.identity) and self.identity != other.identity

    def why_unreconciled(self, *, seen_to_its_end: bool) -> str:
        """Why the server that took over from this one may lack commits; empty where it has them all.

        It has them where each commit had waited for a synchronous replica, and where this machine has followed that
        to its end: a backup of yesterday that was put in its place promises the same of itself.
        """
        if not self.lossless:
            return "another server has taken over, and no replica of the old one was synchronous"
        if not seen_to_its_end:
            return "another server has taken over, and this machine has not seen where the old one ended"
        return ""


def noted(database: sa.Connection) -> Server | None:
    """The server on which a controller has written last, within a transaction; None where that isn't known."""
    identity, _, kept = (meta_rows.read(database, meta_rows.SERVER) or "").partition(" ")
    return Server(identity, kept == "lossless") if identity else None


def look(connection: psycopg.Connection[Any]) -> Server:
    """Ask a new connection, outside of a transaction, which server it leads to."""
    try:
        row = connection.execute(_IDENTITY).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        log.warning("store.server_unknown", error=str(error).partition("\n")[0])
        row = None
    names = connection.execute(f"SHOW {_NAMES}").fetchone()
    return Server(row[0] if row else "", bool(names and names[0]))


def is_lossless(database: sa.Connection) -> bool:
    """The same of its replicas alone: that setting changes under a connection."""
    return bool(database.exec_driver_sql(f"SHOW {_NAMES}").scalar())


def check(database: sa.Connection, name: str) -> None:
    """Raises ``StoreError`` for a server on which a store can't be kept; notes what makes it less than durable."""

    def shown(setting: str) -> str:
        return str(database.exec_driver_sql(f"SHOW {setting}").scalar())

    try:
        version = int(shown("server_version_num")) // 10_000
        if version < OLDEST_VERSION:
            raise StoreError(
                f"{name} is of PostgreSQL {version}.", fix=f"Use PostgreSQL {OLDEST_VERSION} or newer."
            )
        if shown("server_encoding") != "UTF8":
            fix = "Make another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
            raise StoreError(f"{name} is encoded in {shown('server_encoding')}.", fix=fix)
        risky = [setting for setting in ("fsync", "full_page_writes") if shown(setting) != "on"]
        if risky:
            log.warning("store.not_durable", database=name, off=", ".join(risky))
    finally:
        database.rollback()
