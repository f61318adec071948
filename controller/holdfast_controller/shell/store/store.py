"""The durable store: one event log, snapshots beside it, one connection, one writer.

A commit is atomic, verifies that this controller's epoch is still the newest, and returns only once it is on
disk (WAL with synchronous FULL). SQLite before 3.51.3 can corrupt a WAL when two connections share a file, so
readers use the same connection, on the same thread. A commit that fails ends the process: what is in memory
may then be ahead of the disk.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from holdfast._base.failpoints import hit
from holdfast.errors import StoreError
from holdfast_controller.core.events import job as ev
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.restore.reconcile import EPOCHS_LEFT_OUT, EVENTS_LEFT_OUT
from holdfast_controller.core.step.actions import Kept
from holdfast_controller.shell.store import codec, high_water, host_rows, kept_rows, ledger_rows, meta_rows, sweep
from holdfast_controller.shell.store.faults import RESTORE, Damaged, failing, inode
from holdfast_controller.shell.store.migrate import migrate
from holdfast_controller.shell.store.records import INSERT, Record, checksum, history, row_of, sql
from holdfast_controller.shell.store.schema import events, snapshots
from holdfast_controller.shell.store.sqlite_engine import sqlite_engine

READ_BYTES = 1 << 20
"""Of one portion of a history."""
P = ParamSpec("P")
R = TypeVar("R")


class Deposed(StoreError):
    """Another controller has taken over this store; this one must end."""


class Store:
    """The store of one controller. Every method but ``open`` runs on the store's own thread: use ``call``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = 0
        self.sequence = 0
        """Of the newest durable event."""
        self.snapshot_sequence = 0
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._beat = 0
        self._engine = sqlite_engine(path)
        self._connection: sa.Connection | None = None
        self._cluster = ""
        self._whole = False
        """Whether nothing is missing that was known to be durable, or that was accepted."""
        self._removed = True
        """Whether rows were removed, or may have been, that the write-ahead log still has."""
        self._file = (0, 0)
        """Device and inode of what is open, which ``path`` has to be still when anything is written."""

    def open(self, *, accept_loss: bool = False) -> Cluster:
        """Take the store over: migrate it, begin a new epoch, and fold the log into a cluster.

        Raises ``StoreError`` when the file is damaged, held by another process, or of a newer version; ``Damaged``
        also where it lacks its end, unless the caller accepts that.
        """
        with self._failing("cannot be used"):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = self._engine.connect()
            migrate(self._db, self.path)
            self._file = inode(self.path)
            with self._db.begin():
                high_water.quick_check(self._driver, self.path)
                self.epoch = int(self._meta("epoch") or 0)
                self._cluster = high_water.cluster_of(self._meta("secret_key"))
            cluster = self._load()
            cluster.stopped_at = Wall(high_water.last_used(self.path))
            self.sequence = cluster.sequence
            if not accept_loss:
                high_water.check(self.path, self.reached)
                self._whole = True
            hit("controller.epoch.before")
            with self._db.begin():
                self.epoch = int(self._meta("epoch") or 0) + 1
                self._set_meta("epoch", str(self.epoch))
                self._set_meta("beat", "0")
                if self._meta("secret_key") is None:
                    self._set_meta("secret_key", secrets.token_hex(32))
                self._cluster = high_water.cluster_of(self._meta("secret_key"))
            hit("controller.epoch.after")
            cluster.epoch = self.epoch
            return cluster

    @property
    def reached(self) -> high_water.HighWater:
        """The position of the newest durable event."""
        return high_water.HighWater(self._cluster, self.epoch, self.sequence)

    def continue_from_backup(self, now: Wall, taken_at: Wall) -> Cluster:
        """Continue from a backup that was made at ``taken_at``, with numbers beyond whatever came after it."""
        restored = ev.ClusterRestored(at=now, sequence=self.sequence + EVENTS_LEFT_OUT, taken_at=taken_at)
        record = Record(
            restored.sequence,
            codec.entity_of(restored),
            codec.stored_name(type(restored)),
            codec.VERSIONS[codec.stored_name(type(restored))],
            now,
            "",
            message_of(restored, None),
            codec.dump_event(restored),
        )
        with self._failing("cannot be written"), self._writing():
            self._driver.execute(INSERT, row_of(record))
            self.epoch += EPOCHS_LEFT_OUT
            self._set_meta("epoch", str(self.epoch))
        cluster = self._load()
        self.sequence = cluster.sequence
        self._whole = True
        return cluster

    def copy_to(self, path: Path) -> tuple[int, int]:
        """Copy the store into a new file, readable by its owner only; the epoch, and the number of its last event."""
        with self._failing("cannot be copied"):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with contextlib.closing(sqlite3.connect(path)) as target:
                target.execute("PRAGMA synchronous=OFF")  # the caller reads it at once
                self._driver.backup(target)
            self._db.rollback()
        return self.epoch, self.sequence

    def call(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run ``work`` on the store's thread; a ``concurrent.futures.Future``."""
        return self.thread.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Finish what was handed in and close the file."""
        self.thread.shutdown(wait=True)
        if self._connection is not None:
            self._connection.close()
            with contextlib.suppress(OSError):
                if self._whole:
                    high_water.write(self.path, self.reached)
        self._engine.dispose()

    def secret_key(self) -> bytes:
        """The cluster's key for derived secrets; made once."""
        with self._failing("cannot be read"), self._db.begin():
            return bytes.fromhex(self._meta("secret_key") or "")

    def commit(
        self, records: Sequence[Record], kept: Sequence[Kept] = (), bookings: Sequence[Bookings] = ()
    ) -> None:
        """Append ``records``, which go on where the log ends, and keep what is to be. On disk when this returns.

        Without records it confirms that this controller still owns the store, and that the store can be written.
        Raises ``Deposed`` when another controller has begun a newer epoch, ``StoreError`` when it can't be done.
        """
        expected = range(self.sequence + 1, self.sequence + 1 + len(records))
        if [record.sequence for record in records] != list(expected):
            raise StoreError(f"The events to commit don't follow event {self.sequence} of {self.path}.")
        with self._failing("cannot be written"), self._writing():
            hit("controller.commit.before")
            if records:
                self._driver.executemany(INSERT, map(row_of, records))
            else:
                self._beat += 1
                self._driver.execute(_BEAT, (str(self._beat), checksum("beat", str(self._beat))))
            kept_rows.write(self._db, self._driver, kept, expected.stop - 1)
            ledger_rows.book(self._driver, bookings)
            hit("controller.commit.written")
        with self._failing("cannot be written"):
            hit("controller.commit.after")
        self.sequence = expected.stop - 1

    def kept_watches(self) -> dict[str, KeptWatch]:
        """States of the hang detector, by job. A record that can't be read is left out, and noted."""
        with self._failing("cannot be read"), self._db.begin():
            return kept_rows.read_watches(self._db)

    def snapshot(self, sequence: int, entities: Sequence[tuple[str, str]]) -> None:
        """Replace the snapshots of ``entities`` (name, payload), as of ``sequence``; an empty payload drops one."""
        with self._failing("cannot be written"), self._writing():
            hit("controller.snapshot.before")
            for gone in [entity for entity, payload in entities if not payload]:
                self._db.execute(sa.delete(snapshots).where(snapshots.c.entity == gone))
            sweep.drop_snapshots(self._db, sequence)
            rows = [(entity, payload, checksum(entity, payload)) for entity, payload in entities if payload]
            if rows:
                self._db.exec_driver_sql(_REPLACE, rows)
            self._set_meta("snapshot_sequence", str(sequence))
            self._set_meta("snapshot_layout", codec.layout())
            hit("controller.snapshot.written")
        self.snapshot_sequence = sequence

    def sweep(self, history_before: float) -> bool:
        """Remove a small part of what is no longer needed; whether there may be more.

        That is whatever there is of deleted jobs, events of hosts, users and the cluster that are older than
        ``history_before`` (wall clock), and pages of the file that nothing uses. Runs for some milliseconds.
        """
        with self._failing("cannot be written"), self._writing():
            hit("controller.sweep.before")
            more = sweep.portion(self._db, self.snapshot_sequence, history_before)
            hit("controller.sweep.written")
        with self._failing("cannot be written"):
            hit("controller.sweep.after")
            if self._removed and not more:
                sweep.empty_wal(self._driver)
            self._removed = more
            return sweep.shrink(self._driver) or more

    def waits_for_snapshot(self) -> bool:
        """Whether events of deleted jobs can't be dropped before the next snapshot."""
        with self._failing("cannot be read"), self._db.begin():
            return sweep.waits(self._db, self.snapshot_sequence)

    def read(
        self, entity: str, after: int, limit: int, *, since: float = 0.0, before: int | None = None
    ) -> list[Record]:
        """The entity's history after a sequence, oldest first: as many entries as ``READ_BYTES`` hold, at least one.

        Only what happened ``since`` (wall clock). With ``before`` the newest first, of those before that sequence.
        """
        query = history(entity, after, limit, since, before)
        found: list[Record] = []
        size = 0
        with self._failing("cannot be read"), self._db.begin():
            for row in self._db.execute(query):
                found.append(self._record(row))
                size += len(found[-1].payload)
                if size >= READ_BYTES:
                    break
        return found

    def read_types(self, types: Sequence[str], after: int, limit: int) -> list[Record]:
        """Events of these types of every entity after a sequence, oldest first."""
        query = (
            sa.select(events)
            .where(events.c.sequence > after, events.c.type.in_(types))
            .order_by(events.c.sequence)
            .limit(limit)
        )
        with self.transaction() as database:
            return [self._record(row) for row in database.execute(query)]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One transaction for tables that aren't the log. Raises ``StoreError``, and ``Deposed`` as a commit does."""
        with self._failing("cannot be used"), self._writing():
            yield self._db

    def evidence(self, job_id: str, hang: int) -> list[tuple[str, bytes]]:
        """(worker, content) of what was kept of a job's hang, by worker."""
        with self._failing("cannot be read"), self._db.begin():
            return kept_rows.read_evidence(self._db, job_id, hang)

    def attachments(self, job_id: str, hang: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The samples, and the dumps of flight recorders, that were kept with a job's hang, by worker."""
        with self._failing("cannot be read"), self._db.begin():
            return kept_rows.read_attachments(self._db, job_id, hang)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction of the controller that owns the store. Raises ``Deposed`` where that is no longer us."""
        if inode(self.path) != self._file:
            raise Deposed(f"{self.path} was moved or replaced under the controller.", fix=_DEPOSED_FIX)
        with self._db.begin():
            if self._driver.execute(_EPOCH).fetchone() != (str(self.epoch),):
                raise Deposed(f"Another controller has taken over {self.path}.", fix=_DEPOSED_FIX)
            yield

    def _failing(self, how: str) -> contextlib.AbstractContextManager[None]:
        return failing(self.path, how)

    def _record(self, row: Any) -> Record:
        """A row of the log. Raises ``StoreError`` when it isn't what was written."""
        *values, noted = row
        record = Record(*values)
        if noted != checksum(*values):
            raise self._damaged(f"event {record.sequence}")
        return record

    def _damaged(self, what: str) -> StoreError:
        return Damaged(f"The store {self.path} is damaged: {what} is not what was written.", fix=RESTORE)

    @property
    def _db(self) -> sa.Connection:
        assert self._connection is not None, "the store is not open"
        return self._connection

    @property
    def _driver(self) -> sqlite3.Connection:
        """SQLAlchemy's raw connection within its transaction, for statements of every commit."""
        driver: sqlite3.Connection | None = self._db.connection.driver_connection
        assert driver is not None, "the store is not open"
        return driver

    def _meta(self, key: str) -> str | None:
        return meta_rows.read(self._db, key)

    def _set_meta(self, key: str, value: str) -> None:
        meta_rows.write(self._db, key, value)

    def _load(self) -> Cluster:
        """Snapshots first, then the rest of the log; all of the log where the snapshots are another build's.

        A field that an older build didn't know would have its default in them, which the log may contradict. Once
        parts of the log were dropped there is nothing else to begin with: then such a field has its default.
        """
        cluster = Cluster(epoch=self.epoch)
        with self._db.begin():
            other_layout = self._meta("snapshot_layout") != codec.layout()
            if other_layout and self._meta(sweep.COMPACTED) is None:
                self._db.execute(sa.delete(snapshots))
                self._set_meta("snapshot_sequence", "0")
            entities = [self._entity(row) for row in self._db.execute(sa.select(snapshots))]
            if other_layout and entities:
                self._rewrite_snapshots([entity for _, entity in entities])
            cluster.hosts = {e.name: e for kind, e in entities if kind == "host"}
            jobs = sorted((e for kind, e in entities if kind == "job"), key=lambda job: int(job.number))
            cluster.jobs = {job.id: job for job in jobs}
            cluster.people = next((e for kind, e in entities if kind == "people"), cluster.people)
            cluster.draining = {host.name for host in cluster.hosts.values() if host.draining}
            cluster.requests = {(job.owner, job.request_id): job.id for job in jobs if job.request_id}
            cluster.answers = kept_rows.read_answers(self._db)
            for job_id in sweep.purged(self._db):
                cluster.purged.add(job_id)
            recount(cluster)
            cluster.sequence = self.snapshot_sequence = int(self._meta("snapshot_sequence") or 0)
            cluster.gaps = self._gaps(cluster.sequence)
            whole, begins = cluster.sequence == 0, ledger_rows.ledger_since(self._db) is None
            records_begin = self._meta(host_rows.SINCE) is None
            query = sa.select(events).where(events.c.sequence > cluster.sequence).order_by(events.c.sequence)
            newest = NEVER
            for row in self._db.execute(query):
                record = self._record(row)
                newest = Wall(max(newest, record.at))
                restored = record.type == ev.ClusterRestored.__name__
                if record.sequence != cluster.sequence + 1 and not restored:
                    raise Damaged(f"The store {self.path} lacks event {cluster.sequence + 1}.", fix=RESTORE)
                fold(cluster, self._event(record))
                if len(cluster.bookings.usage) + len(cluster.bookings.hosts) >= ledger_rows.BOOKED_AT_ONCE:
                    ledger_rows.book_history(self._driver, cluster, begins=begins, records_begin=records_begin)
            ledger_rows.book_history(self._driver, cluster, begins=begins, records_begin=records_begin)
            if begins:
                self._set_meta(ledger_rows.SINCE, ledger_rows.begin(cluster, newest, whole=whole))
            if records_begin:
                host_rows.begin_records(self._db, cluster)
                self._set_meta(host_rows.SINCE, "0" if whole else str(round(newest * 1000)))
        return cluster

    def _rewrite_snapshots(self, entities: Sequence[Any]) -> None:
        """Bring snapshots of another build to the layout of this one, all of them or none."""
        payloads = [(codec.name_of(entity), codec.dump_entity(entity)) for entity in entities]
        rows = [(name, payload, checksum(name, payload)) for name, payload in payloads]
        self._db.exec_driver_sql(_REPLACE, rows)
        self._set_meta("snapshot_layout", codec.layout())

    def _gaps(self, upto: int) -> list[tuple[int, int]]:
        """Events left out at restores whose effects the snapshots contain."""
        of_cluster = (events.c.entity == "cluster", events.c.type == ev.ClusterRestored.__name__)
        restored = sa.select(events.c.sequence).where(*of_cluster, events.c.sequence <= upto)
        found = []
        for after in list(self._db.execute(restored.order_by(events.c.sequence)).scalars()):
            before = sa.select(sa.func.max(events.c.sequence)).where(events.c.sequence < after)
            found.append((self._db.execute(before).scalar() or 0, after))
        return found

    def _entity(self, row: Any) -> tuple[str, Any]:
        if row.checksum != checksum(row.entity, row.payload):
            raise self._damaged(f"the snapshot of {row.entity}")
        kind = row.entity.partition("/")[0]
        return kind, codec.load_entity(kind, row.payload)

    def _event(self, record: Record) -> ev.Event:
        try:
            return codec.load_event(record.type, record.version, record.payload)
        except KeyError as error:
            raise StoreError(
                f"The store {self.path} was written by a newer version: it holds {record.type} version"
                f" {record.version}.",
                fix="Start the newer controller, or restore a backup that this version made.",
            ) from error


_DEPOSED_FIX = "What it has not acknowledged is not kept; ask the controller that is at work there now."
_REPLACE = sql(sa.insert(snapshots).prefix_with("OR REPLACE"))
_EPOCH = "SELECT value FROM meta WHERE key = 'epoch'"
_BEAT = "UPDATE meta SET value = ?, checksum = ? WHERE key = 'beat'"
