"""Failures and time in service of hosts in the store: counted once, by day, bounded, and read from older history."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from tests.integration.controller.store.places import Place
from tests.integration.controller.store.test_store import opened, record

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.goodput.reliability import HostTotals
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.shell.store import host_rows
from holdfast_controller.shell.store.store import Store

DAY = 86_400.0
BEGUN = 20_000 * DAY
"""Midnight UTC."""


def joined(at: float, boot: str = "b1", *, rebooted: bool = False) -> ev.HostJoined:
    return ev.HostJoined(
        host="h1",
        at=Wall(at),
        address="",
        boot_id=boot,
        agent_version="1",
        inventory=Inventory(8, 1 << 34),
        rebooted=rebooted,
    )


def story() -> list[ev.Event]:
    """Up for a day and a half, lost for an hour, up for half a day; then it boots without a word."""
    lost = BEGUN + 1.5 * DAY
    return [
        joined(BEGUN),
        ev.HostLost(host="h1", at=Wall(lost + 60), silent_s=60.0),
        ev.HostReturned(host="h1", at=Wall(lost + 3_600), silent_since=Wall(lost)),
        joined(lost + 3_600 + DAY / 2, "b2", rebooted=True),
        ev.HostCordoned(host="h1", at=Wall(lost + 3_600 + DAY / 2), reason="", by="ann"),
        ev.HostRemoved(host="h1", at=Wall(lost + 3_600 + DAY / 2), by="ann"),
    ]


WANTED = HostTotals(
    since=round(BEGUN * 1000),
    up_ms=[round(2 * DAY * 1000), 0],
    failures=[2, 0],
    kinds={"lost": 1, "rebooted": 1},
    repairs=1,
    repair_ms=3_600_000,
)


def commit_all(store: Store, events: list[ev.Event]) -> None:
    cluster = Cluster()
    for number, event in enumerate(events, 1):
        fold(cluster, event)
        bookings, cluster.bookings = cluster.bookings, Bookings()
        store.call(store.commit, [record(number, event)], (), [bookings]).result()


def read(store: Store, since: int = 0, until: int = 1 << 30) -> dict[tuple[str, int], HostTotals]:
    def work(database: sa.Connection) -> dict[tuple[str, int], HostTotals]:
        return host_rows.read(database, since, until)

    found: dict[tuple[str, int], HostTotals] = store.call(store.transaction, work).result()
    return found


def test_each_failure_and_all_time_is_counted_once_whatever_is_read_again(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    store.close()
    for _ in range(2):
        store, cluster = opened(place)
        assert read(store) == {("h1", WANTED.since): WANTED}
        assert not cluster.bookings.some
        store.close()


def test_time_is_cut_at_midnight_so_windows_add_up(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    by_day = [read(store, day, day + 1) for day in range(20_000, 20_003)]
    assert [found["h1", WANTED.since].up_ms[0] for found in by_day] == [
        round(DAY * 1000),
        round(DAY * 1000) - 3_600_000,
        3_600_000,
    ]
    assert [found["h1", WANTED.since].failures[0] for found in by_day] == [0, 1, 1]
    store.close()


def test_history_of_an_older_release_is_counted_at_its_first_start(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())
    store.close()
    place.sql("DELETE FROM meta WHERE key = 'host_facts_since'")
    place.sql("DELETE FROM host_facts")
    for _ in range(2):
        store, _ = opened(place)
        assert read(store) == {("h1", WANTED.since): WANTED}
        store.close()


def test_a_host_of_a_compacted_log_has_a_record_from_the_upgrade_on(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story()[:1])
    host = Cluster()
    fold(host, story()[0])
    host.hosts["h1"].record = None  # as an older release has it
    from holdfast_controller.shell.store import codec

    payload = codec.dump_entity(host.hosts["h1"])
    store.call(store.snapshot, 1, [("host/h1", payload)]).result()
    store.close()
    place.sql("DELETE FROM meta WHERE key = 'host_facts_since'")
    place.sql("DELETE FROM host_facts")
    store, cluster = opened(place)
    found = cluster.hosts["h1"].record
    assert found is not None and found.since == round(BEGUN * 1000)
    store.close()


def test_old_days_go_a_year_after_events_of_hosts_and_never_where_those_stay(place: Place) -> None:
    store, _ = opened(place)
    commit_all(store, story())

    def drop(before: float) -> bool:
        return store.transaction(lambda database: host_rows.drop_old(database, before))

    kept = host_rows.KEPT_DAYS * DAY
    for before, days in ((0.0, 3), (BEGUN + kept, 3), (BEGUN + kept + DAY, 2), (BEGUN + kept + 3 * DAY, 0)):
        while store.call(drop, before).result():
            pass
        found = sum(bool(read(store, day, day + 1)) for day in range(20_000, 20_003))
        assert found == days, before
    store.close()


def test_hosts_of_a_year_take_little_of_the_disk(path: Path) -> None:
    """A thousand hosts that work, idle and fail each day: what a row takes, with its index, is bounded."""
    store, _ = opened(path)

    def fill(database: sa.Connection) -> int:
        driver = database.connection.driver_connection
        assert driver is not None
        rows = [(day, f"gpu-{n:04}", 1, what, busy, 1, 1_000) for day in range(10) for n in range(1_000)
                for what, busy in (("up", 0), ("up", 1), ("lost", 1), ("repair", 1))]  # fmt: skip
        driver.executemany(
            "INSERT INTO host_facts (day, host, since, what, busy, count, ms) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )
        return len(rows)

    before = path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size
    count = store.call(store.transaction, fill).result()
    store.close()
    assert (path.stat().st_size - before) / count < 80
