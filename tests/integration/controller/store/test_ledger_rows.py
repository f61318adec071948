"""The goodput ledger in the store: each time is booked once, history of older releases too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa
from tests.integration.controller.store.places import Place
from tests.integration.controller.store.test_store import opened, record
from tests.unit.controller.ledger.goodput_story import Story

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.step.actions import ForgetJob
from holdfast_controller.core.views.metering import Meter
from holdfast_controller.shell.store import ledger_rows
from holdfast_controller.shell.store.store import Store


class Recorded(Story):
    """A story whose events are kept."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        super().__init__()

    def take(self, at_s: float, kind: Any, **fields: Any) -> None:
        self.events.append(kind(at=self.wall(at_s), **fields))
        super().take(at_s, kind, **fields)


def story() -> list[ev.Event]:
    recorded = Recorded()
    recorded.run()
    recorded.end(115)
    return recorded.events


def commit_all(store: Store, events: list[ev.Event]) -> None:
    cluster = Cluster()
    for number, event in enumerate(events, 1):
        fold(cluster, event)
        bookings, cluster.bookings = cluster.bookings, Bookings()
        store.call(store.commit, [record(number, event)], (), [bookings]).result()


def look(store: Store) -> tuple[dict[str, int], Any, int | None]:
    """Milliseconds by category of all hosts, the job's statement, and since when the days are complete."""

    def read(database: sa.Connection) -> tuple[dict[str, int], Any, int | None]:
        rows = ledger_rows.read_days(database, by_host=True, since=0, until=1 << 30)
        sums: dict[str, int] = {}
        for row in rows:
            sums[row.category] = sums.get(row.category, 0) + row.ms
        return sums, ledger_rows.read_statement(database, "a"), ledger_rows.ledger_since(database)

    found: tuple[dict[str, int], Any, int | None] = store.call(store.transaction, read).result()
    return found


WANTED = {"prepare": 32_000, "launch": 8_000, "ran": 800_000, "wind_down": 12_000}


def test_each_settled_time_is_booked_once_whatever_is_read_again(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    store.close()
    for _ in range(2):
        store, cluster = opened(place)
        sums, statement, since = look(store)
        store.close()
        assert (sums, since) == (WANTED, 0)
        assert sum(statement.sums.values()) == sum(WANTED.values())
        assert not cluster.bookings.some


def test_the_counter_of_gpu_time_is_what_the_store_holds_so_a_restart_goes_on_with_it(place: Place) -> None:
    cluster = Cluster()
    meter = Meter(cluster)
    store, _ = opened(place)
    earlier: Counter[tuple[str, str]] = Counter()
    for number, event in enumerate(story(), 1):
        fold(cluster, event)
        bookings, cluster.bookings = cluster.bookings, Bookings()
        store.call(store.commit, [record(number, event)], (), [bookings]).result()
        meter.book(bookings)
        kept = store.call(store.transaction, ledger_rows.read_sums).result()
        assert kept == meter.gpu_ms
        assert all(kept[key] >= ms for key, ms in earlier.items())
        earlier = kept
    store.close()
    sums: dict[str, int] = {}
    for (category, _), ms in earlier.items():
        sums[category] = sums.get(category, 0) + ms
    assert sums == WANTED


def test_history_of_an_older_release_is_booked_at_its_first_start(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    store.close()
    place.sql("DELETE FROM meta WHERE key = 'ledger_since'")
    for table in ("host_days", "owner_days", "statements"):
        place.sql(f"DELETE FROM {table}")
    store, _ = opened(place)
    sums, statement, since = look(store)
    store.close()
    assert (sums, since) == (WANTED, 0)
    assert sum(statement.sums.values()) == sum(WANTED.values())


def test_damaged_statement_is_none(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    store.close()
    place.sql("UPDATE statements SET payload = replace(payload, '800000', '900000')")
    store, _ = opened(place)
    assert look(store)[1] is None
    store.close()


def test_deleted_job_leaves_its_days_and_no_statement(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    store.call(store.commit, [], [ForgetJob("a", purged=False)]).result()
    while store.call(store.sweep, 0.0).result():
        pass
    sums, statement, _ = look(store)
    store.close()
    assert (sums, statement) == (WANTED, None)
