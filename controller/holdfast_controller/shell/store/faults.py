"""Complaints of the database and the disk as errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from holdfast.errors import StoreError

RESTORE = "Restore a backup: holdfast-controller restore FILE."
_NO_NEW_FILES = ("SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_CANTOPEN", "SQLITE_PERM")


class Damaged(StoreError):
    """The store is not what was written, and starting the controller again doesn't help: an admin has to act."""

    exit_status = 78


class NotAsWritten(ValueError):
    """A row has another checksum than the one it was stored with. Its text names the row."""


@contextlib.contextmanager
def failing(path: Path, how: str) -> Iterator[None]:
    """Whatever the database or the disk complains of, as a ``StoreError`` that says what to do."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:  # ValueError: damaged text
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, NotAsWritten):
            raise Damaged(f"The store {path} is damaged: {cause} is not what was written.", fix=RESTORE) from error
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise Damaged(f"The store {path} is damaged: {cause}.", fix=RESTORE) from error
        raise StoreError(f"The store {path} {how}: {cause}.", fix=_fix(cause)) from error


def _fix(cause: BaseException) -> str:
    """The fix for an error of the database or the disk."""
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
