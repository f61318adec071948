"""``series.db``: the file that series of ranks are kept in, beside the store, and its upkeep.

Theory of operation. Nothing that the controller decides rests on this file. Whatever is wrong with it is put right by
beginning again: one that is damaged is set aside, one that was deleted or replaced is made again, and one that can't be
written now is tried again later. Blocks come as minutes; minutes of an hour that is over become one block, hours that
are old become a day of quarter-hours, and what is too old, or too much, goes, the oldest first.
Who looks at months needs no minutes. So a day of quarter-hours is made of the hours beside them, too, once nothing
more can come: a row of ``days``, which can be made again at any time and counts for nothing else. The database itself
empties it whenever an hour of it is written, and drops it with the day that takes the place of the hours.
Every call may take as long as the disk does: all come from one thread of its own (see ``store``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast._series.block import Block, pack, unpack
from holdfast._series.joining import joined
from holdfast_controller.shell.store.faults import inode

MINUTE, HOUR, DAY = 60, 3_600, 86_400
QUARTER = 900
LATE_S = 300
"""An hour is put together so long after its end; what comes later is added to it then."""
QUARTERS_KEPT_S = 400 * DAY
EARLIER_S = 2 * DAY
"""How far a minute may lie back: an agent keeps a day of them, and wrong clocks are corrected before."""
RESERVE_BYTES = 256 << 20
"""Left free on the disk, which is the store's too."""
AT_ONCE = 16
"""Blocks that are put together before others get their turn."""
DAYS_AT_ONCE = 2
CUT_AT_ONCE = 256
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR)
_TABLES = """
CREATE TABLE IF NOT EXISTS blocks (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL, start INTEGER NOT NULL, worker TEXT NOT NULL,
    generation INTEGER NOT NULL, span INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (job, start, worker, generation, span));
CREATE INDEX IF NOT EXISTS blocks_by_age ON blocks (span, start);
CREATE TABLE IF NOT EXISTS recordings (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL, name TEXT NOT NULL, worker TEXT NOT NULL, generation INTEGER NOT NULL,
    rank INTEGER, start INTEGER NOT NULL, until INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (job, name, worker));
CREATE INDEX IF NOT EXISTS recordings_by_age ON recordings (start);
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS days (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL, start INTEGER NOT NULL, worker TEXT NOT NULL,
    generation INTEGER NOT NULL, data BLOB, UNIQUE (job, start, worker, generation));
CREATE INDEX IF NOT EXISTS days_by_age ON days (start);
CREATE INDEX IF NOT EXISTS days_to_make ON days (start) WHERE data IS NULL;
CREATE TRIGGER IF NOT EXISTS hour_is_written AFTER INSERT ON blocks WHEN NEW.span = 3600 BEGIN
    INSERT OR REPLACE INTO days (job, start, worker, generation)
        VALUES (NEW.job, NEW.start / 86400 * 86400, NEW.worker, NEW.generation);
END;
CREATE TRIGGER IF NOT EXISTS day_is_written AFTER INSERT ON blocks WHEN NEW.span = 86400 BEGIN
    DELETE FROM days WHERE job = NEW.job AND start = NEW.start AND worker = NEW.worker
        AND generation = NEW.generation;
END;
INSERT INTO days (job, start, worker, generation)
    SELECT DISTINCT job, start / 86400 * 86400, worker, generation FROM blocks
    WHERE span = 3600 AND NOT EXISTS (SELECT 1 FROM days);
COMMIT;
PRAGMA user_version = 1;
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A minute of one worker, or with a ``name`` a recording; ``data`` is a packed block."""

    job: str
    worker: str
    generation: int
    start: int
    until: int
    data: bytes
    name: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes of the file, and for how long minutes stay minutes; 0: no limit, for ever."""

    most_bytes: int = 10_000 << 20
    minutes_s: float = 30 * DAY


class TooFull(OSError):
    """The disk has too little left for what could be done without."""


class SeriesFile:
    """The file, opened when it is first needed. Calls raise ``sqlite3.Error`` or ``OSError``; then call ``recover``."""

    def __init__(self, path: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._open: sqlite3.Connection | None = None
        self._file = (0, 0)

    def write(self, pieces: Sequence[Piece]) -> None:
        """Keep some pieces, all or none. What is there of the same minute is joined with them."""
        if not self._has_room():
            raise TooFull(f"less than {self._reserve_bytes >> 20} MiB are free on its disk")
        with self._writing() as database:
            for piece in pieces:
                if piece.name:
                    database.execute(_KEEP_RECORDING, (*_key(piece), piece.rank, piece.until, piece.data))
                else:
                    _add(database, piece)

    def tidy(self, now_s: float, limits: Limits) -> bool:
        """Do a part of the upkeep; whether there may be more to do."""
        with self._writing() as database:
            if _fold(database, MINUTE, HOUR, MINUTE, now_s - HOUR - LATE_S):
                return True
            if limits.minutes_s and _fold(database, HOUR, DAY, QUARTER, now_s - DAY - limits.minutes_s):
                return True
            if self._has_room() and _make_days(database, now_s - DAY - EARLIER_S):
                return True
            if limits.minutes_s:  # what an earlier release left of jobs that it forgot
                database.execute("DELETE FROM days WHERE start < ?", (now_s - DAY - limits.minutes_s,))
            old = database.execute(_CUT_OLD, (DAY, now_s - QUARTERS_KEPT_S, CUT_AT_ONCE)).rowcount
            old += database.execute(_CUT_OLD_RECORDINGS, (now_s - QUARTERS_KEPT_S, CUT_AT_ONCE)).rowcount
            if not old and limits.most_bytes and self._bytes(database) > limits.most_bytes:
                old = _cut(database)
        if old:
            self._database().execute("PRAGMA incremental_vacuum").fetchall()
        return bool(old)

    def size(self) -> int:
        """Bytes in use."""
        return self._bytes(self._database())

    def jobs(self) -> set[str]:
        """Ids of all jobs of which there is anything."""
        found = self._database().execute(
            "SELECT DISTINCT job FROM blocks UNION SELECT DISTINCT job FROM recordings"
        )
        return {row[0] for row in found}

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop whatever there is of jobs."""
        with self._writing() as database:
            for job in jobs:
                for table in ("blocks", "days", "recordings"):
                    database.execute(f"DELETE FROM {table} WHERE job = ?", (job,))
        self._database().execute("PRAGMA incremental_vacuum").fetchall()

    def blocks(
        self, job: str, since: int, until: int, workers: Collection[str] | None, *, coarse: bool = False
    ) -> Iterator[tuple[int, int, bytes]]:
        """(Start, span, packed block) of what a job has between two times, by start; of some workers only, if named.

        ``coarse``: with quarters of an hour instead of minutes, of days of which there are such.
        """
        only = f" AND worker IN ({','.join('?' * len(workers))})" if workers is not None else ""
        query, values = _BLOCKS + only, (job, since - DAY, until, since, *(workers or ()))
        if coarse:
            query, values = f"{_DAYS}{only} UNION ALL {query}{_NOT_IN_DAYS}", values + values
        for start, span, data, _ in self._database().execute(f"{query} ORDER BY start, generation", values):
            yield start, span, data

    def recordings(self, job: str) -> list[Piece]:
        """Recordings of the time before hangs and failing exits, oldest first, without their data."""
        rows = self._database().execute(_RECORDINGS, (job,))
        return [
            Piece(job, worker, gen, start, until, b"", name, rank) for worker, gen, start, name, rank, until in rows
        ]

    def recording(self, job: str, name: str) -> list[tuple[int, int, bytes]]:
        """(Start, span, packed block) of each worker that a recording has."""
        query = "SELECT start, until - start, data FROM recordings WHERE job = ? AND name = ? ORDER BY worker"
        return self._database().execute(query, (job, name)).fetchall()

    def since(self, job: str) -> int | None:
        """The oldest time of which a job's series are kept."""
        row = self._database().execute("SELECT min(start) FROM blocks WHERE job = ?", (job,)).fetchone()
        return None if row[0] is None else int(row[0])

    def recover(self, error: Exception) -> None:
        """After an error: close the file, so that it is opened again, and set it aside if it is damaged."""
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED and isinstance(error, sqlite3.Error)
        self.close()
        if damaged:
            aside = self._path.with_suffix(".damaged")
            with contextlib.suppress(OSError):  # of a disk that is read-only, too
                os.replace(self._path, aside)
                self._remove_journals()
            log.warning("series.damaged", path=str(self._path), kept_as=str(aside), error=str(error))

    def close(self) -> None:
        """Let go of the file; it is opened again when it is needed."""
        database, self._open = self._open, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()

    def _database(self) -> sqlite3.Connection:
        if self._open is not None and inode(self._path) != self._file:
            log.warning("series.replaced", path=str(self._path))
            self.close()
            self._remove_journals()
        if self._open is None:
            if not self._path.exists():
                self._remove_journals()
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=1.0)
            try:
                # A block fills its pages but for half of one: the smallest waste least. An older file keeps its own.
                database.execute("PRAGMA page_size = 512")
                database.execute("PRAGMA auto_vacuum = INCREMENTAL")
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = NORMAL")
                database.execute("PRAGMA journal_size_limit = 67108864")
                version = database.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, 1):
                    raise sqlite3.NotSupportedError(f"it is of a newer release (form {version})")
                database.executescript(_TABLES)
            except BaseException:
                database.close()
                raise
            self._open, self._file = database, inode(self._path)
        return self._open

    def _has_room(self) -> bool:
        return shutil.disk_usage(self._path.parent).free >= self._reserve_bytes

    def _remove_journals(self) -> None:
        for end in ("-wal", "-shm"):
            self._path.with_name(self._path.name + end).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        database = self._database()
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def _bytes(self, database: sqlite3.Connection) -> int:
        pages, free, size = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


_BLOCKS = """SELECT start, span, data, generation FROM blocks
    WHERE job = ? AND start > ? AND start < ? AND start + span > ?"""
_DAYS = f"""SELECT start, {DAY} AS span, data, generation FROM days
    WHERE data IS NOT NULL AND job = ? AND start > ? AND start < ? AND start + {DAY} > ?"""
_NOT_IN_DAYS = f""" AND NOT (span = {HOUR} AND EXISTS (SELECT 1 FROM days WHERE job = blocks.job
    AND start = blocks.start / {DAY} * {DAY} AND worker = blocks.worker AND generation = blocks.generation
    AND data IS NOT NULL))"""
_RECORDINGS = """SELECT worker, generation, start, name, rank, until FROM recordings WHERE job = ?
    ORDER BY start, name, worker LIMIT 1000"""
_KEEP = "INSERT OR REPLACE INTO blocks (job, worker, generation, start, span, data) VALUES (?, ?, ?, ?, ?, ?)"
_KEEP_RECORDING = """INSERT OR REPLACE INTO recordings (job, name, worker, generation, start, rank, until, data)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_CUT_OLD = "DELETE FROM blocks WHERE id IN (SELECT id FROM blocks WHERE span = ? AND start < ? LIMIT ?)"
_CUT_DAYS = "DELETE FROM days WHERE start <= (SELECT ifnull(min(start), 1 << 62) FROM blocks) - ?"
_CUT_OLD_RECORDINGS = "DELETE FROM recordings WHERE id IN (SELECT id FROM recordings WHERE start < ? LIMIT ?)"


def _key(piece: Piece) -> tuple[str, str, str, int, int]:
    return piece.job, piece.name, piece.worker, piece.generation, piece.start


def _add(database: sqlite3.Connection, piece: Piece) -> None:
    """A minute; one that is there already was cut in two by a restart of the agent or by a clock, and is joined."""
    where = (piece.job, piece.start, piece.worker, piece.generation, MINUTE)
    query = "SELECT data FROM blocks WHERE job = ? AND start = ? AND worker = ? AND generation = ? AND span = ?"
    there = database.execute(query, where).fetchone()
    data = piece.data
    if there is not None:
        data = _together([there[0], data], piece.start, MINUTE, 1) or data
    database.execute(_KEEP, (piece.job, piece.worker, piece.generation, piece.start, MINUTE, data))


def _fold(database: sqlite3.Connection, span: int, into: int, step: int, before: float) -> bool:
    """Put some blocks of a length together into longer ones of slots of ``step``; whether there were any."""
    query = """SELECT DISTINCT job, worker, generation, start / ? * ? FROM blocks
        WHERE span = ? AND start / ? * ? < ? LIMIT ?"""
    groups = database.execute(query, (into, into, span, into, into, before, AT_ONCE)).fetchall()
    for job, worker, generation, start in groups:
        query = """SELECT id, data FROM blocks WHERE job = ? AND worker = ? AND generation = ?
            AND start >= ? AND start < ? AND span IN (?, ?) ORDER BY span DESC, start"""
        rows = database.execute(query, (job, worker, generation, start, start + into, span, into)).fetchall()
        data = _together([row[1] for row in rows], start, step, into // step)
        database.executemany("DELETE FROM blocks WHERE id = ?", [(row[0],) for row in rows])
        if data is not None:
            database.execute(_KEEP, (job, worker, generation, start, into, data))
    return bool(groups)


def _make_days(database: sqlite3.Connection, before: float) -> bool:
    """Make some days of quarters of an hour of the hours that they lie beside; whether there were any to make."""
    query = "SELECT id, job, worker, generation, start FROM days WHERE data IS NULL AND start < ? LIMIT ?"
    days = database.execute(query, (before, DAYS_AT_ONCE)).fetchall()
    for number, job, worker, generation, start in days:
        query = """SELECT data FROM blocks WHERE job = ? AND worker = ? AND generation = ?
            AND start >= ? AND start < ? AND span = ? ORDER BY start"""
        hours = database.execute(query, (job, worker, generation, start, start + DAY, HOUR)).fetchall()
        data = _together([row[0] for row in hours], start, QUARTER, DAY // QUARTER)
        if data is None:
            database.execute("DELETE FROM days WHERE id = ?", (number,))
        else:
            database.execute("UPDATE days SET data = ? WHERE id = ?", (data, number))
    return bool(days)


def _together(packed: Iterable[bytes], start: int, step: int, slots: int) -> bytes | None:
    """The blocks as one. None where nothing of them can be read, which is lost then, or held."""
    found: list[Block] = []
    for data in packed:
        try:
            found.append(unpack(data))
        except ValueError as error:
            log.warning("series.block_damaged", error=str(error))
    try:
        return pack(joined(found, start, step, slots)) if found else None
    except (ValueError, ArithmeticError) as error:  # more ranks than a block may have, or numbers that can't be
        log.warning("series.block_damaged", error=str(error))
        return None


def _cut(database: sqlite3.Connection) -> int:
    """Drop the oldest of all; how many."""
    chosen = "SELECT id FROM blocks ORDER BY start LIMIT ?"
    cut = database.execute(f"DELETE FROM blocks WHERE id IN ({chosen})", (CUT_AT_ONCE,)).rowcount
    if not cut:
        chosen = "SELECT id FROM recordings ORDER BY start LIMIT ?"
        cut = database.execute(f"DELETE FROM recordings WHERE id IN ({chosen})", (CUT_AT_ONCE // 8,)).rowcount
    if cut:
        database.execute(_CUT_DAYS, (DAY,))
        log.info("series.cut", blocks=cut, reason="series_mb")
    return cut
