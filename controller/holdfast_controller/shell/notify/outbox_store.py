"""Letters that wait to be delivered, kept durably beside the log; see ``core.mailbox``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from holdfast_controller.core.outbox import Letter
from holdfast_controller.shell.store.schema import letters, meta
from holdfast_controller.shell.store.store import Store

_CURSOR = "letters_cursor"


class Letters:
    """The table of letters. Every method runs on the store's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self) -> tuple[int, list[Letter]]:
        """(sequence up to which the log was read for news, what waits). A log that never was counts as read."""
        with self._store.transaction() as database:
            cursor = database.execute(sa.select(meta.c.value).where(meta.c.key == _CURSOR)).scalar()
            if cursor is None:
                cursor = str(self._store.sequence)
                database.execute(sa.insert(meta), {"key": _CURSOR, "value": cursor})
            rows = database.execute(sa.select(letters).order_by(letters.c.sequence, letters.c.sink))
            return int(cursor), [Letter(r.sequence, r.sink, r.job, r.kind, r.body) for r in rows]

    def keep(self, cursor: int, new: Sequence[Letter]) -> None:
        """Keep letters, with the sequence up to which the log has now been read. It never goes back."""
        with self._store.transaction() as database:
            if new:
                rows = [
                    {"sequence": x.sequence, "sink": x.sink, "job": x.job_id, "kind": x.kind, "body": x.body}
                    for x in new
                ]
                database.execute(sa.insert(letters).prefix_with("OR IGNORE"), rows)
            behind = sa.cast(meta.c.value, sa.Integer) < cursor
            database.execute(sa.update(meta).where(meta.c.key == _CURSOR, behind).values(value=str(cursor)))

    def drop(self, done: Iterable[Letter]) -> None:
        """Forget letters that were delivered or given up."""
        with self._store.transaction() as database:
            for letter in done:
                which = (letters.c.sequence == letter.sequence, letters.c.sink == letter.sink)
                database.execute(sa.delete(letters).where(*which))
