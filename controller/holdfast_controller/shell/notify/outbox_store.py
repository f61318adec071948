"""The outbox on disk: notifications waiting to be delivered, and the position in the log they were read up to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.shell.store import meta_rows
from holdfast_controller.shell.store.records import as_written, with_checksum
from holdfast_controller.shell.store.schema import outbox
from holdfast_controller.shell.store.statements import Twice, put
from holdfast_controller.shell.store.store import Store

_CURSOR = "letters_cursor"


class OutboxStore:
    """Reads and writes the outbox. Call every method on the store's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self) -> tuple[int, list[OutboxEntry]]:
        """(sequence the log was read up to, waiting entries); on first use the whole log counts as read.

        Entries that are damaged are dropped, and noted: they may be addressed to another receiver by now.
        """

        def work(database: sa.Connection) -> tuple[int, list[OutboxEntry]]:
            cursor = meta_rows.read(database, _CURSOR)
            if cursor is None:
                cursor = str(self._store.sequence)
                meta_rows.write(database, _CURSOR, cursor)
            rows = list(database.execute(sa.select(outbox).order_by(outbox.c.sequence, outbox.c.sink)))
            for row in [row for row in rows if not as_written(outbox, row)]:
                log.warning("store.row_damaged", table=outbox.name, sequence=row.sequence)
                database.execute(
                    sa.delete(outbox).where(outbox.c.sequence == row.sequence, outbox.c.sink == row.sink)
                )
                rows.remove(row)
            return int(cursor), [OutboxEntry(r.sequence, r.sink, r.job, r.kind, r.body) for r in rows]

        return self._store.transaction(work)

    def keep(self, cursor: int, new: Sequence[OutboxEntry]) -> None:
        """Store new entries and the sequence the log was read up to, which never decreases."""
        rows = [
            {"sequence": x.sequence, "sink": x.sink, "job": x.subject, "kind": x.kind, "body": x.body} for x in new
        ]

        def work(database: sa.Connection) -> None:
            put(database, outbox, [with_checksum(outbox, row) for row in rows], Twice.LEAVE)
            if int(meta_rows.read(database, _CURSOR) or cursor) < cursor:
                meta_rows.write(database, _CURSOR, str(cursor))

        self._store.transaction(work)

    def drop(self, done: Collection[OutboxEntry]) -> None:
        """Delete entries that were delivered or given up."""

        def work(database: sa.Connection) -> None:
            for entry in done:
                which = (outbox.c.sequence == entry.sequence, outbox.c.sink == entry.sink)
                database.execute(sa.delete(outbox).where(*which))

        self._store.transaction(work)
