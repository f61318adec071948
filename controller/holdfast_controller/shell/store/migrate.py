"""Brings an old store's tables up to date: a copy first, then every step in one transaction, or none of them.

A store that this version doesn't know is refused untouched; a step that fails leaves the file as it was, so the
version that wrote it can still use it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from holdfast._base.durable import sync
from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.shell.store.schema import metadata

BACKUPS_KEPT = 3
"""Copies from before a migration; older ones go once a new one is there."""
SCRIPTS = Path(__file__).with_name("migrations")


def newest_revision() -> str:
    """The schema of this build, by the names of its migrations: NUMBER_what_it_does.py."""
    return max(path.name.partition("_")[0] for path in SCRIPTS.glob("versions/[0-9]*.py"))


def migrate(db: sa.Connection, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
    """Have the tables of this version in the store at ``path``. A store that holds something is copied first.

    The copy is ``backups/NAME.schema-REVISION.TIME`` beside the store, time in UTC by ``now``; it is a whole store
    by itself. Raises ``StoreError`` for a newer version's, a file of something else, and a step that can't be done.
    """
    if not sa.inspect(db).has_table("alembic_version"):
        db.rollback()
        with db.begin():
            make_tables(db, f"store {path}")
        return
    stored, newest = _stored(db), newest_revision()
    if stored == newest:
        return
    _check_known(str(path), stored)
    copy = back_up(db, path, stored, now()) if stored is not None else None
    try:
        with db.begin():  # one transaction for all of them: Alembic joins it
            _upgrade(db, str(path), stored)
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        if copy is None:
            raise
        cause = getattr(error, "orig", None) or error
        raise StoreError(
            f"The store {path} can't be brought from schema {stored} to {newest}: {cause}. It is as it was.",
            fix=f"Fix the cause, or start the older controller again; a copy from before is {copy}.",
        ) from error
    if copy is not None:
        log.info("store.migrated", from_schema=stored, to_schema=newest, backup=str(copy))


def make_tables(db: sa.Connection, name: str) -> None:
    """Make all tables in an empty database, within the caller's transaction.

    Raises ``StoreError`` where there are tables of a newer version, or that aren't a store's.
    """
    present = set(sa.inspect(db).get_table_names())
    if "alembic_version" in present:
        _check_known(name, _revision(db))
        return
    if foreign := sorted(present & metadata.tables.keys()):
        fix = "Give the controller a database of its own."
        raise StoreError(f"The {name} holds a table {foreign[0]} that is not of a store.", fix=fix)
    metadata.create_all(db)
    db.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
    db.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{newest_revision()}')")


def is_current(db: sa.Connection) -> bool:
    """Whether the tables are those of this version."""
    return _revision(db) == newest_revision()


def in_transaction(db: sa.Connection, name: str) -> None:
    """Bring the tables up to date within the caller's transaction, where definitions of tables are part of it."""
    stored, newest = _revision(db), newest_revision()
    if stored != newest:
        _upgrade(db, name, stored)
        log.info("store.migrated", from_schema=stored, to_schema=newest)


def _check_known(name: str, stored: str | None) -> None:
    known = {path.name.partition("_")[0] for path in SCRIPTS.glob("versions/[0-9]*.py")}
    if stored is not None and stored not in known:
        raise StoreError(
            f"The store {name} was written by a newer version (schema {stored}).",
            fix="Start the newer controller, or restore a backup that this version made.",
        )


def _upgrade(db: sa.Connection, name: str, stored: str | None) -> None:
    """Every step from ``stored`` on, in the caller's transaction."""
    # Alembic is a fifth of the time that a start takes, and only needed where there is something to migrate.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    _check_known(name, stored)
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = db
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"The tables of {name} can't be brought up to date: {error}.") from error


def _stored(db: sa.Connection) -> str | None:
    """The store's revision; None where its migrations never began."""
    stored = _revision(db)
    db.rollback()
    return stored


def _revision(db: sa.Connection) -> str | None:
    stored = db.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if stored is None else str(stored)


def back_up(db: sa.Connection, path: Path, revision: str, at: datetime) -> Path:
    """Copy the store, durably and readable by its owner only; keep the newest copies only. Raises ``StoreError``."""
    folder = path.parent / "backups"
    copy = folder / f"{path.name}.schema-{revision}.{at:%Y%m%dT%H%M%S%fZ}"
    fresh = copy.with_name(f".{copy.name}.new")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # the cluster's secret is in it
        with contextlib.closing(sqlite3.connect(fresh)) as target:
            source = db.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)
            source.backup(target)
        sync(fresh)
        fresh.rename(copy)
        sync(folder)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise StoreError(
            f"The store {path} can't be copied to {folder} before it is brought up to date: {error}.",
            fix="Make room for a copy there; the store is as it was.",
        ) from error
    others = [each for each in folder.glob(f"{path.name}.schema-*") if each != copy]  # by a clock that may be wrong
    for old in sorted(others, key=lambda each: each.name.rpartition(".")[2])[: 1 - BACKUPS_KEPT]:
        old.unlink(missing_ok=True)
    return copy
