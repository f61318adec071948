"""Folds what a store holds into a cluster: the snapshots, then the rest of the log.

Each function runs within a transaction of its caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from holdfast.errors import StoreError
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.jobs import JobHead, Jobs, Known, head_of
from holdfast_controller.shell.store import codec, ended_jobs, host_rows, kept_rows, ledger_rows, meta_rows, sweep
from holdfast_controller.shell.store.faults import RESTORE, Damaged, NotAsWritten
from holdfast_controller.shell.store.records import Record, checksum, record_of, with_checksum
from holdfast_controller.shell.store.schema import events, heads, snapshots
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.statements import put, remove

ROWS_AT_ONCE = 1_000
"""Of the log, that are in memory together."""


def load(database: sa.Connection, name: str, *, whole: bool = False) -> tuple[Cluster, int]:
    """The cluster, and the sequence that its snapshots are of. ``name`` is what errors call the store.

    Of jobs that had ended by then it has heads, unless it is to have them ``whole``: while another controller writes,
    what it reads later may be newer than what it has folded.

    All of the log is read where the snapshots are another build's: a field that an older build didn't know would have
    its default in them, which the log may contradict. Once parts of the log were dropped there is nothing else to
    begin with: then such a field has its default.
    """
    cluster = Cluster()
    other_layout = not _of_this_build(database)
    if other_layout and meta_rows.read(database, sweep.COMPACTED) is None:
        for table in (snapshots, heads):
            database.execute(sa.delete(table))
        meta_rows.write(database, "snapshot_sequence", "0")
    entities: list[tuple[str, Any]] = []
    from_heads = not whole and not other_layout
    known: list[Known] = list(_heads(database)) if from_heads else []
    for kind, entity in _entities(database, rewrite=other_layout, but_heads=from_heads):
        if kind != "job":
            entities.append((kind, entity))
        elif whole or not entity.terminal or entity.unreconciled is not None:
            known.append(entity)
        else:
            known.append(head_of(entity))
    cluster.hosts = {e.name: e for kind, e in entities if kind == "host"}
    known.sort(key=lambda job: job.number)
    cluster.jobs = Jobs(((job.id, job) for job in known), lambda names: ended_jobs.read(database, names))
    cluster.people = next((e for kind, e in entities if kind == "people"), cluster.people)
    cluster.shares = next((e for kind, e in entities if kind == "shares"), cluster.shares)
    reserved = (e for kind, e in entities if kind == "hostreservations")
    cluster.reservations = next(reserved, cluster.reservations)
    cluster.schedules = {f"{e.project}/{e.name}": e for kind, e in entities if kind == "schedule"}
    cluster.templates = {f"{e.project}/{e.name}": e for kind, e in entities if kind == "template"}
    cluster.draining = {host.name for host in cluster.hosts.values() if host.draining}
    cluster.requests = {(job.owner, job.request_id): job.id for job in known if job.request_id}
    cluster.answers = kept_rows.read_answers(database)
    for job_id in sweep.purged(database):
        cluster.purged.add(job_id)
    recount(cluster)
    cluster.sequence = begins_at = snapshot_sequence(database)
    cluster.gaps = _gaps(database, begins_at)
    fold_the_rest(database, cluster, name)
    return cluster, begins_at


def is_settled(database: sa.Connection) -> bool:
    """Whether ``load`` only reads: the snapshots are this build's, the ledger and hosts' records have begun."""
    begun = ledger_rows.ledger_since(database) is not None and meta_rows.read(database, host_rows.SINCE) is not None
    return begun and _of_this_build(database)


def snapshot_sequence(database: sa.Connection) -> int:
    """The sequence that the snapshots are of; 0 before the first ones."""
    return int(meta_rows.read(database, "snapshot_sequence") or 0)


def write_snapshots(
    database: sa.Connection, entities: Sequence[tuple[str, str]], of_ended: Sequence[tuple[str, str]]
) -> None:
    """Write snapshots (name, payload) as this build lays them out, in place of those of the same names.

    ``of_ended`` has heads of jobs that have ended, which are written as well; others of these jobs have none then.
    """
    remove(database, heads, {entity for entity, _ in entities} - {entity for entity, _ in of_ended})
    for table, written in ((snapshots, entities), (heads, of_ended)):
        rows = [with_checksum(table, {"entity": entity, "payload": payload}) for entity, payload in written]
        put(database, table, rows)
    meta_rows.write(database, "snapshot_layout", codec.layout())


def _of_this_build(database: sa.Connection) -> bool:
    layout = meta_rows.read(database, "snapshot_layout")
    return snapshot_sequence(database) == 0 if layout is None else layout == codec.layout()


def fold_the_rest(database: sa.Connection, cluster: Cluster, name: str) -> None:
    """Fold the events after ``cluster.sequence``; book what they say where the ledger or hosts' records begin.

    Raises ``Damaged`` where events are missing, and ``StoreError`` for those of a newer version.
    """
    whole, begins = cluster.sequence == 0, ledger_rows.ledger_since(database) is None
    records_begin = meta_rows.read(database, host_rows.SINCE) is None
    query = sa.select(events).where(events.c.sequence > cluster.sequence).order_by(events.c.sequence)
    newest = NEVER
    with database.execute(query.execution_options(yield_per=ROWS_AT_ONCE)) as rows:
        for row in rows:
            record = record_of(row)
            newest = Wall(max(newest, record.at))
            restored = record.type == ev.ClusterRestored.__name__
            if record.sequence != cluster.sequence + 1 and not restored:
                raise Damaged(f"The store {name} lacks event {cluster.sequence + 1}.", fix=RESTORE)
            fold(cluster, _event(record, name))
            if len(cluster.bookings.usage) + len(cluster.bookings.hosts) >= ledger_rows.BOOKED_AT_ONCE:
                ledger_rows.book_history(database, cluster, begins=begins, records_begin=records_begin)
    ledger_rows.book_history(database, cluster, begins=begins, records_begin=records_begin)
    if begins:
        meta_rows.write(database, ledger_rows.SINCE, ledger_rows.begin(cluster, newest, whole=whole))
    if records_begin:
        host_rows.begin_records(database, cluster)
        meta_rows.write(database, host_rows.SINCE, "0" if whole else str(round(newest * 1000)))


def _gaps(database: sa.Connection, upto: int) -> list[tuple[int, int]]:
    """Events left out at restores whose effects the snapshots contain."""
    of_cluster = (events.c.entity == "cluster", events.c.type == ev.ClusterRestored.__name__)
    restored = sa.select(events.c.sequence).where(*of_cluster, events.c.sequence <= upto)
    found = []
    for after in list(database.execute(restored.order_by(events.c.sequence)).scalars()):
        before = sa.select(sa.func.max(events.c.sequence)).where(events.c.sequence < after)
        found.append((database.execute(before).scalar() or 0, after))
    return found


def _heads(database: sa.Connection) -> Iterator[JobHead]:
    """The heads of jobs that had ended."""
    with database.execute(sa.select(heads).execution_options(yield_per=ROWS_AT_ONCE)) as rows:
        for row in rows:
            if checksum(row.entity, row.payload) != row.checksum:
                raise NotAsWritten(f"the head of {row.entity}")
            yield codec.load_head(row.payload)


def _entities(database: sa.Connection, *, rewrite: bool, but_heads: bool) -> Iterator[tuple[str, Any]]:
    """Kind and content of every snapshot, some at a time; ``rewrite`` them as this build lays them out.

    ``but_heads``: not of jobs of which there is a head.
    """
    last = ""
    of_some = sa.select(snapshots).order_by(snapshots.c.entity).limit(ROWS_AT_ONCE)
    if but_heads:
        of_some = of_some.where(~sa.exists().where(heads.c.entity == snapshots.c.entity))
    while True:
        rows = database.execute(of_some.where(snapshots.c.entity > last)).all()
        if not rows:
            return
        last = rows[-1].entity
        found = [_entity(row) for row in rows]
        if rewrite:
            entities = [(codec.name_of(entity), codec.dump_entity(entity)) for _, entity in found]
            write_snapshots(database, entities, heads_of(entity for kind, entity in found if kind == "job"))
        yield from found


def _entity(row: Any) -> tuple[str, Any]:
    if checksum(row.entity, row.payload) != row.checksum:
        raise NotAsWritten(f"the snapshot of {row.entity}")
    kind = row.entity.partition("/")[0]
    return kind, codec.load_entity(kind, row.payload)


def _event(record: Record, name: str) -> ev.Event:
    try:
        return codec.load_event(record.type, record.version, record.payload)
    except KeyError as error:
        raise StoreError(
            f"The store {name} was written by a newer version: it holds {record.type} version {record.version}.",
            fix="Start the newer controller, or restore a backup that this version made.",
        ) from error
