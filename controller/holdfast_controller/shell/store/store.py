"""The durable store: one event log, snapshots beside it, one connection, one writer.

A commit is atomic, verifies that this controller's epoch is still the newest, and returns only once it is on
disk. A commit that fails ends the process: what is in memory may then be ahead of the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import sqlalchemy as sa

from holdfast._base.failpoints import hit
from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.restore.reconcile import left_out
from holdfast_controller.core.step.actions import Kept
from holdfast_controller.shell.store import codec, ended_jobs, high_water, kept_rows, ledger_rows, meta_rows, sweep
from holdfast_controller.shell.store.databases.engine import Engine, OutcomeUnknown, Standby
from holdfast_controller.shell.store.databases.sqlite import SqliteFile
from holdfast_controller.shell.store.faults import failing
from holdfast_controller.shell.store.following import Follower
from holdfast_controller.shell.store.load import load, write_snapshots
from holdfast_controller.shell.store.records import Record, history, record_of
from holdfast_controller.shell.store.schema import events, heads, snapshots
from holdfast_controller.shell.store.statements import remove

READ_BYTES, ROWS_AT_ONCE = 1 << 20, 1_000
"""Of one portion of a history, and of what is fetched of it together."""
P = ParamSpec("P")
R = TypeVar("R")


def store_at(file: Path, url: str = "", on_stand_by: Callable[[str], None] = lambda _: None) -> Store:
    """The store in a file of SQLite; with a ``url`` in that database of PostgreSQL. See ``PostgresDatabase``."""
    if not url:
        return Store(file)
    from holdfast_controller.shell.store.databases.postgresql.database import (
        PostgresDatabase,  # loaded only where it is used
    )

    return Store(PostgresDatabase(url, file.with_name("postgresql"), on_stand_by))


class Store:
    """The store of one controller. Every method but ``open`` runs on the store's own thread: use ``call``."""

    def __init__(self, at: Path | Engine) -> None:
        """``at``: a file of SQLite, or another engine."""
        self.engine: Engine = SqliteFile(at) if isinstance(at, Path) else at
        self.epoch = 0
        self.sequence = 0
        """Of the newest durable event."""
        self.snapshot_sequence = 0
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._cluster = ""
        self._whole = False
        """Whether nothing is missing that was known to be durable, or that was accepted."""
        self._removed = True
        """Whether rows were removed, or may have been, that the database still holds somewhere."""

    @property
    def path(self) -> Path:
        """The store's file, or where that would be: how far it has come is noted beside it."""
        return self.engine.path

    def open(self, *, accept_loss: bool = False) -> Cluster:
        """Take the store over: migrate it, fold the log into a cluster, and begin a new epoch.

        Raises ``StoreError`` when the store is damaged, held by another process, or of a newer version; ``Damaged``
        also where it lacks its end, unless the caller accepts that.
        """
        with self._failing("cannot be used"):
            self.engine.connect()
            follower = Follower(self.engine.name)
            cluster = None
            while cluster is None:
                self.engine.wait(lambda: follower.look(self._db))
                with self._db.begin():
                    if self.engine.take():
                        cluster = self._take_over(follower, accept_loss)
            hit("controller.epoch.after")
            return self._reading_jobs(cluster)

    def give_up(self) -> None:
        """Have ``open`` raise ``StoreError`` where it waits for another controller. Called on another thread."""
        self.engine.give_up()

    def _take_over(self, follower: Follower, accept_loss: bool) -> Cluster:
        self.epoch = int(self._meta("epoch") or 0)
        self._cluster = high_water.cluster_of(self._meta("secret_key"))
        if (followed := follower.taken(self._db)) is not None:
            cluster, self.snapshot_sequence = followed
        else:
            cluster = self._load()
        cluster.stopped_at = Wall(high_water.last_used(self.path))
        self.sequence = cluster.sequence
        set_back = "" if accept_loss else self._set_back()
        self._whole = not accept_loss
        hit("controller.epoch.before")
        if self._meta("secret_key") is None:
            self._set_meta("secret_key", secrets.token_hex(32))
        self._cluster = high_water.cluster_of(self._meta("secret_key"))
        if set_back:
            return self._go_on_unreconciled(cluster, set_back)
        self._begin_epoch(self.epoch + 1)
        cluster.epoch = self.epoch
        return cluster

    def _set_back(self) -> str:
        """Why what was acknowledged may be missing, if that is to be taken for a restore.

        Raises ``Damaged`` where an admin has to look: another cluster's store, or one without its end in its old place.
        """
        try:
            high_water.check(self.path, self.engine.name, self.reached)
        except high_water.Behind:
            if not self.engine.other_server:
                raise
            return "another server has taken over, and ends before what was reached here"
        return self.engine.set_back

    def _go_on_unreconciled(self, cluster: Cluster, why: str) -> Cluster:
        """Within the transaction that begins an epoch: take the store for restored, so that hosts are heard first."""
        now = Wall(time.time())
        newest = max((job.updated_at for job in cluster.jobs.heads()), default=now)
        log.warning("store.set_back", database=self.engine.name, reason=why, sequence=self.sequence)
        if not self.sequence:  # nothing has happened yet that hosts could tell of
            self._begin_epoch(self.epoch + left_out(now).epochs)
            cluster.epoch = self.epoch
            return cluster
        return self._restored(now, newest)

    @property
    def reached(self) -> high_water.HighWater:
        """The position of the newest durable event."""
        return high_water.HighWater(self._cluster, self.epoch, self.sequence)

    def continue_from_backup(self, now: Wall, taken_at: Wall) -> Cluster:
        """Continue from a backup that was made at ``taken_at``, with numbers beyond whatever came after it."""
        with self._failing("cannot be written"), self._writing():
            cluster = self._restored(now, taken_at)
        self.sequence = cluster.sequence
        self._whole = True
        return self._reading_jobs(cluster)

    def _reading_jobs(self, cluster: Cluster) -> Cluster:
        cluster.jobs.read = lambda names: self.call(self.jobs, names).result()
        return cluster

    def _restored(self, now: Wall, taken_at: Wall) -> Cluster:
        restored = ev.ClusterRestored(at=now, sequence=self.sequence + left_out(now).events, taken_at=taken_at)
        self.engine.append([codec.record(restored.sequence, restored, "", message_of(restored, None))])
        self._begin_epoch(self.epoch + left_out(now).epochs)
        cluster = self._load()
        self.sequence = cluster.sequence
        return cluster

    def copy_to(self, path: Path) -> tuple[int, int]:
        """Copy the store into a new file of SQLite; the epoch, and the number of its last event.

        Use ``copied``: while it runs on the store's thread nothing is committed.
        """
        epoch, sequence = self.epoch, self.sequence  # a copy that is made beside commits may hold some more
        with self._failing("cannot be copied"):
            self.engine.copy_to(path)
        return epoch, sequence

    async def copied(self, path: Path) -> tuple[int, int]:
        """``copy_to``, beside commits where the engine can do that: another controller takes over from a silent one."""
        if self.engine.copies_beside:
            return await asyncio.to_thread(self.copy_to, path)
        return await asyncio.wrap_future(self.call(self.copy_to, path))

    def copy_at_rest(self, path: Path) -> tuple[int, int]:
        """The same of a store that isn't open: nothing in it is changed."""
        with self._failing("cannot be copied"):
            try:
                self.engine.connect()
                self.engine.copy_to(path)
                with self.engine.reading():
                    sequence = self._db.execute(sa.select(sa.func.max(events.c.sequence))).scalar()
                    return int(self._meta("epoch") or 0), sequence or 0
            finally:
                self.engine.close(0)

    def call(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run ``work`` on the store's thread."""
        return self.thread.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Finish what was handed in, and end the connection: another controller may lead. Again it does nothing."""
        self.thread.shutdown(wait=True)
        self.engine.close(self.epoch)
        with contextlib.suppress(OSError):
            if self._whole:
                high_water.write(self.path, self.reached)
        self._whole = False

    def secret_key(self) -> bytes:
        """The cluster's key for derived secrets; made once."""
        with self._reading():
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
            raise StoreError(f"The events to commit don't follow event {self.sequence} of {self.engine.name}.")

        def work() -> None:
            hit("controller.commit.before")
            self.engine.append(records)
            kept_rows.write(self._db, kept, expected.stop - 1)
            ledger_rows.book(self._db, bookings)
            hit("controller.commit.written")

        self._durably(work)
        with self._failing("cannot be written"):
            hit("controller.commit.after")
        self.sequence = expected.stop - 1

    def kept_watches(self) -> dict[str, KeptWatch]:
        """States of the hang detector, by job. A record that can't be read is left out, and noted."""
        with self._reading():
            return kept_rows.read_watches(self._db)

    def snapshot(
        self, sequence: int, entities: Sequence[tuple[str, str]], of_ended: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Replace the snapshots of ``entities`` (name, payload), as of ``sequence``; an empty payload drops one.

        ``of_ended`` has the heads of those that are jobs and have ended: a start reads these alone.
        """

        def work() -> None:
            hit("controller.snapshot.before")
            gone = [entity for entity, payload in entities if not payload]
            for table in (snapshots, heads):
                remove(self._db, table, gone)
            sweep.drop_snapshots(self._db, sequence)
            write_snapshots(self._db, [entity for entity in entities if entity[1]], of_ended)
            self._set_meta("snapshot_sequence", str(sequence))
            hit("controller.snapshot.written")

        self._durably(work)
        self.snapshot_sequence = sequence

    def jobs(self, names: Sequence[str]) -> list[Job]:
        """Jobs that have ended, as the snapshots have them; who has none is left out."""
        with self._reading():
            return ended_jobs.read(self._db, names)

    def sweep(self, history_before: float) -> bool:
        """Remove a small part of what is no longer needed; whether there may be more.

        That is whatever there is of deleted jobs, events of hosts, users and the cluster that are older than
        ``history_before`` (wall clock), and pages of the file that nothing uses. Runs for some milliseconds.
        """

        def work() -> bool:
            hit("controller.sweep.before")
            more = sweep.portion(self._db, self.snapshot_sequence, history_before)
            hit("controller.sweep.written")
            return more

        more = self._durably(work)
        with self._failing("cannot be written"):
            hit("controller.sweep.after")
            emptied = self._removed and not more
            self._removed = more
            return self.engine.shrink(emptied=emptied) or more

    def waits_for_snapshot(self) -> bool:
        """Whether events of deleted jobs can't be dropped before the next snapshot."""
        with self._reading():
            return sweep.waits(self._db, self.snapshot_sequence)

    def read(
        self, entity: str, after: int, limit: int, *, since: float = 0.0, before: int | None = None
    ) -> list[Record]:
        """The entity's history after a sequence, oldest first: as many entries as ``READ_BYTES`` hold, at least one.

        Only what happened ``since`` (wall clock). With ``before`` the newest first, of those before that sequence.
        """
        query = history(entity, after, limit, since, before).execution_options(yield_per=ROWS_AT_ONCE)
        found: list[Record] = []
        size = 0
        with self._reading(), self._db.execute(query) as rows:
            for row in rows:
                found.append(record_of(row))
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
        return self.transaction(lambda database: [record_of(row) for row in database.execute(query)])

    def transaction(self, work: Callable[[sa.Connection], R]) -> R:
        """Do ``work`` on tables that aren't the log, in one transaction; again where the connection breaks within it.

        Raises ``StoreError``, and ``Deposed`` as a commit does.
        """
        return self._durably(lambda: work(self._db), "cannot be used")

    def standbys(self) -> list[Standby]:
        """Controllers that wait for this one to end."""
        with self._reading():
            return self.engine.standbys()

    def evidence(self, job_id: str, hang: int) -> list[tuple[str, bytes]]:
        """(worker, content) of what was kept of a job's hang, by worker."""
        with self._reading():
            return kept_rows.read_evidence(self._db, job_id, hang)

    def attachments(self, job_id: str, hang: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The samples, and the dumps of flight recorders, that were kept with a job's hang, by worker."""
        with self._reading():
            return kept_rows.read_attachments(self._db, job_id, hang)

    def _durably(self, work: Callable[[], R], how: str = "cannot be written") -> R:
        """Do ``work`` in a transaction, again if the connection breaks before it is known to be committed."""
        with self._failing(how):
            while True:
                try:
                    with self._writing():
                        done = work()
                except OutcomeUnknown:
                    if not self.engine.landed(self.epoch):
                        continue
                return done

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return self.engine.writing(self.epoch)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._failing("cannot be read"), self.engine.reading():
            yield

    def _failing(self, how: str) -> contextlib.AbstractContextManager[None]:
        return failing(self.engine.name, how)

    @property
    def _db(self) -> sa.Connection:
        return self.engine.connection

    def _load(self) -> Cluster:
        cluster, self.snapshot_sequence = load(self._db, self.engine.name)
        cluster.epoch = self.epoch
        return cluster

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._set_meta("epoch", str(epoch))
        self._set_meta("beat", f"{epoch}.0")
        self.engine.begun(epoch)

    def _meta(self, key: str) -> str | None:
        return meta_rows.read(self._db, key)

    def _set_meta(self, key: str, value: str) -> None:
        meta_rows.write(self._db, key, value)
