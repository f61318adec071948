"""Bugs of several controllers, planted in the product's own code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from holdfast_controller.core.events import RankExited
from holdfast_controller.core.fold import job
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.store import load
from holdfast_controller.shell.store.databases.postgresql import leadership
from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase
from holdfast_controller.shell.store.following import Follower
from holdfast_controller.shell.store.store import Store


def _unconfirmed() -> AbstractContextManager[Any]:
    sound = Driver.when_confirmed

    def when_confirmed(self: Driver, then: Callable[[], None], *, drops: bool = True) -> None:
        then() if drops else sound(self, then, drops=False)  # the signs of life go on, as fast as they may

    return patch.object(Driver, "when_confirmed", when_confirmed)


def _same_term() -> AbstractContextManager[Any]:
    sound = Store._begin_epoch
    return patch.object(Store, "_begin_epoch", lambda self, epoch: sound(self, max(epoch - 1, 1)))


def _no_fence() -> AbstractContextManager[Any]:
    claim = "UPDATE meta SET value = %s, checksum = %s WHERE key = 'beat' AND %s <> ''"
    return patch.object(leadership, "CLAIM", claim)


def _tail_unnoticed() -> AbstractContextManager[Any]:
    return patch.object(Store, "_set_back", lambda _: "")


def _sent_twice() -> AbstractContextManager[Any]:
    sound = PostgresDatabase.landed
    return patch.object(PostgresDatabase, "landed", lambda self, epoch: sound(self, epoch) and False)


def _skips_an_event() -> AbstractContextManager[Any]:
    goes_on, sound, following = Follower._goes_on, job.fold, 0

    def follow(self: Follower, *args: Any) -> bool:
        nonlocal following
        following += 1
        try:
            return goes_on(self, *args)
        finally:
            following -= 1

    def fold(cluster: Any, event: Any) -> None:
        if following and isinstance(event, RankExited):
            cluster.sequence += 1
        else:
            sound(cluster, event)

    stack = ExitStack()
    stack.enter_context(patch.object(Follower, "_goes_on", follow))
    stack.enter_context(patch.object(load, "fold", fold))
    return stack


def _reads_what_may_be_lost() -> AbstractContextManager[Any]:
    async def settled(_: Driver) -> None:
        return None

    return patch.object(Driver, "settled", settled)


def _reads_unproven() -> AbstractContextManager[Any]:
    async def still_leading(_: Driver) -> None:
        return None

    return patch.object(Driver, "still_leading", still_leading)


def _second_writer() -> AbstractContextManager[Any]:
    def transaction(self: Store, work: Callable[[Any], Any]) -> Any:
        def begin() -> None:
            self._db.begin()
            self._db.exec_driver_sql(leadership.LOOK)

        with self._failing("cannot be used"):
            self.engine.link.on_whole(begin)  # type: ignore[attr-defined]
            with self.engine.link.ending():  # type: ignore[attr-defined]
                return work(self._db)

    return patch.object(Store, "transaction", transaction)


SEVERAL: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "acks unconfirmed": ("answer a host without a commit that finds this controller leading", _unconfirmed),
    "takes over without an epoch": ("lead with the epoch of the controller before", _same_term),
    "no fence in the append": ("commit though another controller has begun a term", _no_fence),
    "lost tail unnoticed": ("lead on a promoted replica as if nothing were missing", _tail_unnoticed),
    "batch sent twice": ("send a commit of unknown outcome again though it has landed", _sent_twice),
    "standby skips an event": ("leave events out of what a standby follows", _skips_an_event),
    "reads what may be lost": ("tell a user what is not committed yet", _reads_what_may_be_lost),
    "reads unproven": ("tell a user how things are without asking the database who leads", _reads_unproven),
    "second writer of letters": ("write notifications without asking who leads", _second_writer),
}
"""What each does, and how it is planted."""
