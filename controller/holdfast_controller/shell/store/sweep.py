"""Removes, in small portions between commits, all that the store no longer needs: the log's growth has a bound.

Of a deleted job everything goes: evidence at once, its events once it is purged and a snapshot is past that. Of hosts,
users and the cluster, events that are older than the history that is kept go once a snapshot contains them; what
happened to a job is kept for as long as the job. From the first dropped event on, a start begins with the snapshots,
which are then no cache any more (``COMPACTED``). What was counted of hosts goes a year after their events. Each
portion is one transaction: a crash leaves a whole store.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

import sqlalchemy as sa

from holdfast_controller.core.step.actions import ForgetJob
from holdfast_controller.shell.store import host_rows, meta_rows
from holdfast_controller.shell.store.faults import NotAsWritten
from holdfast_controller.shell.store.records import as_written, with_checksum
from holdfast_controller.shell.store.schema import (
    deleted_jobs,
    dumps,
    events,
    evidence,
    heads,
    progress,
    samples,
    snapshots,
    statements,
    watches,
)
from holdfast_controller.shell.store.statements import put, total

COMPACTED = "compacted"
"""Key in ``meta``: set once the log lacks events, so that the snapshots are needed."""
EVENTS_AT_ONCE = 500
SIZED_AT_ONCE = 1_000
BLOBS_AT_ONCE = 4
"""Pieces of evidence, each of which may have some MiB."""
PAGES_AT_ONCE = 256
FREE_PAGES_KEPT = 2_048
"""Free pages that stay in the file for the next events."""


def note(database: sa.Connection, piece: ForgetJob, sequence: int) -> None:
    """Note that a job was deleted, or that it was purged at ``sequence`` of the log."""
    purged = sequence if piece.purged else 0
    put(
        database,
        deleted_jobs,
        [with_checksum(deleted_jobs, {"job": piece.job_id, "purged": purged, "swept": False})],
    )


def purged(database: sa.Connection) -> list[str]:
    """Ids of all jobs that were purged. Raises ``NotAsWritten``."""
    rows = database.execute(sa.select(deleted_jobs)).all()
    for row in rows:
        if not as_written(deleted_jobs, row):
            raise NotAsWritten(f"the entry of the deleted job {row.job}")
    return [row.job for row in rows if row.purged > 0]


def drop_snapshots(database: sa.Connection, sequence: int) -> None:
    """Drop the snapshots of jobs that are purged as of ``sequence``, before that reaches beyond the event."""
    gone = sa.select(sa.literal("job/") + deleted_jobs.c.job).where(
        ~deleted_jobs.c.swept, deleted_jobs.c.purged.between(1, sequence)
    )
    for table in (snapshots, heads):
        database.execute(sa.delete(table).where(table.c.entity.in_(gone)))


def waits(database: sa.Connection, snapshot_sequence: int) -> bool:
    """Whether there are purged jobs whose last event no snapshot contains."""
    query = sa.select(deleted_jobs.c.job).where(~deleted_jobs.c.swept, deleted_jobs.c.purged > snapshot_sequence)
    return database.execute(query.limit(1)).first() is not None


def event_sizes(database: sa.Connection, after: int, upto: int) -> tuple[int, list[tuple[str, int, int]]]:
    """(Last sequence looked at, (entity, events, characters) of some events after a sequence); 0 at the end."""
    some = (
        sa.select(events.c.sequence, events.c.entity, events.c.payload, events.c.message)
        .where(events.c.sequence > after, events.c.sequence <= upto)
        .order_by(events.c.sequence)
        .limit(SIZED_AT_ONCE)
        .subquery()
    )
    size = total(sa.func.length(some.c.payload) + sa.func.length(some.c.message))
    query = sa.select(some.c.entity, sa.func.count(), size, sa.func.max(some.c.sequence)).group_by(some.c.entity)
    rows = list(database.execute(query))
    return max((row[3] for row in rows), default=0), [(row[0], row[1], row[2]) for row in rows]


def evidence_sizes(database: sa.Connection) -> dict[str, int]:
    """Bytes of evidence, samples and dumps, by job."""
    found: Counter[str] = Counter()
    for table in (evidence, samples, dumps):
        query = sa.select(table.c.job, total(sa.func.length(table.c.content))).group_by(table.c.job)
        for job, size in database.execute(query):
            found[job] += size
    return dict(found)


def portion(database: sa.Connection, snapshot_sequence: int, history_before: float) -> bool:
    """Remove some rows; False once there are none left to remove."""
    for row in list(database.execute(sa.select(deleted_jobs).where(~deleted_jobs.c.swept))):
        if _sweep_blobs(database, row.job):
            return True
        if not 0 < row.purged <= snapshot_sequence:
            continue
        if not _drop(database, _events_of(f"job/{row.job}", snapshot_sequence)):
            swept = with_checksum(deleted_jobs, {"job": row.job, "purged": row.purged, "swept": True})
            database.execute(sa.update(deleted_jobs).where(deleted_jobs.c.job == row.job).values(swept))
        return True
    return _drop(database, _old_events(database, snapshot_sequence, history_before)) or host_rows.drop_old(
        database, history_before
    )


def _sweep_blobs(database: sa.Connection, job: str) -> bool:
    for table in (evidence, samples, dumps):
        key = tuple(table.primary_key.columns)
        chosen = sa.select(*key).where(table.c.job == job).limit(BLOBS_AT_ONCE)
        if database.execute(sa.delete(table).where(sa.tuple_(*key).in_(chosen))).rowcount:
            return True
    rows = [database.execute(sa.delete(t).where(t.c.job == job)).rowcount for t in (watches, progress, statements)]
    return any(rows)


def _events_of(entity: str, upto: int) -> sa.Select[tuple[int]]:
    return sa.select(events.c.sequence).where(events.c.entity == entity, events.c.sequence <= upto)


def _old_events(database: sa.Connection, snapshot_sequence: int, before: float) -> sa.Select[tuple[int]]:
    """Old events of all but jobs. A restore from a backup is kept: the numbers before it are others."""
    upto = min(snapshot_sequence, _last_before(database, before))
    kinds = sa.or_(
        sa.and_(events.c.entity >= "host/", events.c.entity < "host0"),
        sa.and_(events.c.entity >= "schedule/", events.c.entity < "schedule0"),
        sa.and_(events.c.entity >= "template/", events.c.entity < "template0"),
        events.c.entity == "people",
        sa.and_(events.c.entity == "cluster", events.c.type != "ClusterRestored"),
    )
    # The log isn't in the order of time where a clock was set back.
    return sa.select(events.c.sequence).where(kinds, events.c.sequence <= upto, events.c.at < before)


def _last_before(database: sa.Connection, moment: float) -> int:
    """Number of the newest event before a moment, found by halving: the log is in the order of time, if not exactly."""
    first, last = database.execute(sa.select(sa.func.min(events.c.sequence), sa.func.max(events.c.sequence))).one()
    low, high = (first or 1) - 1, last or 0
    while low < high:
        middle = (low + high + 1) // 2
        at = database.execute(
            sa.select(events.c.at).where(events.c.sequence <= middle).order_by(events.c.sequence.desc()).limit(1)
        ).scalar()
        if at is None or at < moment:
            low = middle
        else:
            high = middle - 1
    return low


def _drop(database: sa.Connection, chosen: sa.Select[tuple[int]]) -> bool:
    """Drop some events, and note that the log is no longer whole."""
    rows = list(database.execute(chosen.limit(EVENTS_AT_ONCE)).scalars())
    if not rows:
        return False
    meta_rows.write(database, COMPACTED, "1")
    database.execute(sa.delete(events).where(events.c.sequence.in_(rows)))
    return True


def empty_wal(driver: sqlite3.Connection) -> None:
    """Bring the write-ahead log into the database, and cut it: it has pages from before rows were removed."""
    driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def shrink(driver: sqlite3.Connection) -> bool:
    """Give some free pages back to the file system; whether there are more than are kept."""
    free = driver.execute("PRAGMA freelist_count").fetchone()[0]
    if free <= FREE_PAGES_KEPT or not driver.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return False
    driver.execute(f"PRAGMA incremental_vacuum({min(PAGES_AT_ONCE, free - FREE_PAGES_KEPT)})").fetchall()
    return bool(free - PAGES_AT_ONCE > FREE_PAGES_KEPT)
