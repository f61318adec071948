"""Complaints of the database and the disk as errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from holdfast.errors import StoreError, Unavailable

RESTORE = "Restore a backup: holdfast-controller restore FILE."
_NO_NEW_FILES = ("SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_CANTOPEN", "SQLITE_PERM")


_NOT_POSTGRES = "-"
_AWAY = ("08", "57P")
"""Codes of a connection that is broken, and of a server that is being stopped or started."""
_UNREACHABLE = "See whether the server runs and can be reached from here; what was acknowledged is kept."
_CONNECTIONS = "Raise the server's max_connections, or the limit of the database: a controller needs one, or two."
_POSTGRES = (
    ("53100", "No space left on device", "Make room on the server's disk; what was acknowledged is kept."),
    ("53300", "too many clients", _CONNECTIONS),
    ("53300", "too many connections", _CONNECTIONS),  # for the database, or its user
    ("53300", "connection slots are reserved", _CONNECTIONS),
    (
        "25006",
        "read-only",
        "Name the server that takes writes in database_url; a list of hosts finds it by itself.",
    ),
    ("28", "authentication failed", "Correct the user and the password that database_url names."),
    ("28", "pg_hba.conf", "Let the controller's address in: the server's pg_hba.conf."),
    ("3D000", "does not exist", "Make the database (createdb) and its user (createuser), or correct database_url."),
    ("42501", "permission denied", "Have the database belong to the user that database_url names."),
    ("XX", "could not read block", "The server's data is damaged: see its log, and restore a backup."),
    ("57P", "starting up", "The server is being stopped or started: try again once it runs."),
    ("2", "", "See the server's log; what was acknowledged is kept."),
    ("4", "", "See the server's log; what was acknowledged is kept."),
)
"""Fixes by how the code of PostgreSQL's error begins, or by its text: an error of a connection has no code."""


class Damaged(StoreError):
    """The store is not what was written, and starting the controller again doesn't help: an admin has to act."""

    exit_status = 78


class Away(StoreError, Unavailable):
    """This controller can't use its store now; another one may, or this one later. Callers ask again."""

    reason = Unavailable.reason


class NotAsWritten(ValueError):
    """A row has another checksum than the one it was stored with. Its text names the row."""


@contextlib.contextmanager
def failing(name: str, how: str) -> Iterator[None]:
    """Whatever the database or the disk complains of, as a ``StoreError`` that says what to do."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:  # ValueError: damaged text
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, NotAsWritten):
            raise Damaged(f"The store {name} is damaged: {cause} is not what was written.", fix=RESTORE) from error
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise Damaged(f"The store {name} is damaged: {cause}.", fix=RESTORE) from error
        said = " ".join(str(cause).split()).rstrip(".")
        # An error of PostgreSQL without a code is one of the connection.
        away = (getattr(cause, "sqlstate", _NOT_POSTGRES) or "08").startswith(_AWAY)
        raise (Away if away else StoreError)(f"The store {name} {how}: {said}.", fix=_fix(cause)) from error


def _fix(cause: BaseException) -> str:
    """The fix for an error of the database or the disk."""
    if (sqlstate := getattr(cause, "sqlstate", _NOT_POSTGRES)) != _NOT_POSTGRES:
        for begins, text, fix in _POSTGRES:
            if sqlstate.startswith(begins) if sqlstate else text and text in str(cause):
                return fix
        return _UNREACHABLE
    if getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL" or getattr(cause, "errno", None) == errno.ENOSPC:
        return "Make room where it lies; what was acknowledged is kept."
    if getattr(cause, "sqlite_errorname", "") in _NO_NEW_FILES or getattr(cause, "errno", None) == errno.EROFS:
        return (
            "See whether the file system is read-only, or has no inodes left (df -i), and whether the controller's user"
            " owns the directory; what was acknowledged is kept."
        )
    return "Check that no other controller runs on it and that the disk is sound; else restore a backup."


def inode(path: Path) -> tuple[int, int]:
    """Device and inode of a file; zeros where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino
