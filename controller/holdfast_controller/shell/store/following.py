"""A standby's copy of the state, which follows the log of the controller that leads: a takeover folds the end alone.

It has jobs that have ended whole, until it is given away. A look only reads. The copy is given away when its store is
taken over, not before: it is then compared with the log again, and brought up to date, within the transaction that
keeps every other controller from writing. A log that isn't the one that was folded, since a backup was restored or a
replica promoted that lacks its end, is read from its beginning.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.store import kept_rows, load, migrate
from holdfast_controller.shell.store.faults import Damaged
from holdfast_controller.shell.store.schema import events


class Follower:
    """The copy of one standby. ``name`` is what errors call the store."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cluster: Cluster | None = None
        self._end: tuple[Any, ...] | None = None
        """The newest event that was folded, as it is stored; None where the log holds none."""
        self._gave_up = False

    def look(self, database: sa.Connection) -> int:
        """Fold what is new, within a transaction that sees one state of the database; how far the log was read.

        A log that this build can't read is noted, and followed no more: to take over says what is wrong with it.
        """
        if self._gave_up:
            return 0
        followed, self._cluster = self._cluster, None  # nothing is left of a look that fails half-way
        try:
            if followed is not None and self._goes_on(database, followed):
                self._cluster = followed
            elif migrate.is_current(database) and load.is_settled(database):
                self._cluster, _ = load.load(database, self._name, whole=True)
                self._end = _end(database, self._cluster.sequence)
                log.info("store.follows", sequence=self._cluster.sequence)
        except (StoreError, ValueError) as error:
            self._gave_up = True
            log.warning("store.not_followed", error=str(error))
        return self._cluster.sequence if self._cluster is not None else 0

    def taken(self, database: sa.Connection) -> tuple[Cluster, int] | None:
        """The same as ``load``, within the transaction that begins an epoch; None where the log has to be loaded."""
        followed, self._cluster = self._cluster, None
        if followed is None or not load.is_settled(database):
            return None
        from_sequence = followed.sequence
        if not self._goes_on(database, followed):
            return None
        followed.answers = kept_rows.read_answers(database)
        log.info("store.followed", events=followed.sequence - from_sequence)
        return followed, load.snapshot_sequence(database)

    def _goes_on(self, database: sa.Connection, followed: Cluster) -> bool:
        """Fold the rest of the log, if it is the one that was ``followed`` and nothing is missing in between."""
        if _end(database, followed.sequence) != self._end:
            return False
        before = followed.sequence
        try:
            load.fold_the_rest(database, followed, self._name)
        except Damaged:
            return False  # events were dropped that the snapshots contain
        if followed.sequence < load.snapshot_sequence(database):
            return False  # as were the newest ones, so that nothing in the log comes after the gap
        if followed.sequence != before:
            self._end = _end(database, followed.sequence)
        return True


def _end(database: sa.Connection, sequence: int) -> tuple[Any, ...] | None:
    """The newest event up to a sequence that the log still holds."""
    query = sa.select(events).where(events.c.sequence <= sequence).order_by(events.c.sequence.desc()).limit(1)
    row = database.execute(query).one_or_none()
    return None if row is None else tuple(row)
