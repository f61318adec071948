"""A replica of PostgreSQL that takes over: with every commit it goes unnoticed, without some it is a restore."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_store import commit, record, records
from tests.support.postgres import Server, copied, with_replica
from tests.unit.controller.examples import EVENTS

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.restore.reconcile import EPOCHS_LEFT_OUT, EVENTS_LEFT_OUT
from holdfast_controller.shell.store.databases.engine import SetBack
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")
FIRST, REST = records()[:3], records()[3:6]


@pytest.fixture
def both() -> Iterator[tuple[Server, Server]]:
    with with_replica() as servers:
        servers[0].sql("CREATE DATABASE holdfast")
        yield servers


@pytest.fixture
def place(both: tuple[Server, Server], tmp_path: Path) -> InPostgres:
    return InPostgres(tmp_path / "one/postgresql", both[0], "holdfast")


@pytest.fixture
def other(both: tuple[Server, Server], tmp_path: Path) -> InPostgres:
    """The same store, used from another machine."""
    return InPostgres(tmp_path / "two/postgresql", both[0], "holdfast")


def opened(place: InPostgres) -> tuple[Store, Cluster]:
    store = Store(place.engine())
    return store, store.call(store.open).result()


def fail_over(both: tuple[Server, Server], store: Store, *, lost: list[object]) -> None:
    """The primary dies for good, and its replica is promoted; it was away when what is ``lost`` was committed."""
    primary, replica = both
    primary.caught_up(replica)
    if lost:
        replica.stop()
        commit(store, lost)  # type: ignore[arg-type]
    primary.stop("immediate")
    if lost:
        replica.start()
    replica.promote()


def is_in_doubt(store: Store, cluster: Cluster, *, sequence: int) -> bool:
    """Whether hosts are heard first, and no number of what was lost is given out again."""
    beyond = store.sequence == cluster.sequence > sequence + EVENTS_LEFT_OUT and store.epoch > EPOCHS_LEFT_OUT
    doubted = all(host.unreconciled for host in cluster.hosts.values())
    return beyond and doubted and cluster.gaps == [(sequence, store.sequence)]


def synchronous(server: Server, names: str) -> None:
    """Set which replicas a commit waits for, and wait until sessions know."""
    import psycopg

    server.sql(f"ALTER SYSTEM SET synchronous_standby_names = {names}")
    server.sql("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 60
    while True:
        with psycopg.connect(f"host={server.folder} user=holdfast dbname=postgres") as connection:
            if connection.execute("SHOW synchronous_standby_names").fetchone() == (names.strip("'"),):
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill(store: Store) -> None:
    """As the kernel does: nothing is noted and nothing resigned; only the connection is closed."""
    store.thread.shutdown(wait=True)
    store.engine.connection.close()


def test_a_controller_that_leads_ends_when_its_own_commits_are_gone_and_the_next_start_is_in_doubt(
    both: tuple[Server, Server], place: InPostgres
) -> None:
    store, _ = opened(place)
    commit(store, FIRST)
    fail_over(both, store, lost=list(REST))
    with pytest.raises(SetBack, match="come back without its newest commits"):
        commit(store, [record(7, EVENTS[6])])
    store.close()
    again, cluster = opened(place)
    assert is_in_doubt(again, cluster, sequence=3)
    commit(again, [record(again.sequence + 1, EVENTS[3])])
    again.close()
    quiet, cluster = opened(place)
    assert len(cluster.gaps) == 1, "it is a restore once"
    assert quiet.epoch == again.epoch + 1
    quiet.close()


def test_another_machine_doubts_a_replica_of_a_server_that_had_no_synchronous_one(
    both: tuple[Server, Server], place: InPostgres, other: InPostgres
) -> None:
    store, _ = opened(place)
    commit(store, FIRST)
    assert "synchronous_standby_names" in store.engine.risk()
    fail_over(both, store, lost=list(REST))
    kill(store)
    second, cluster = opened(other)
    assert is_in_doubt(second, cluster, sequence=3)
    second.close()


def test_a_restore_that_was_lost_with_its_server_gives_no_number_to_the_next_one(
    both: tuple[Server, Server], place: InPostgres, tmp_path: Path
) -> None:
    store, _ = opened(place)
    commit(store, FIRST)
    primary, replica = both
    primary.caught_up(replica)
    with copied(replica) as last:  # it never hears of the first restore
        fail_over(both, store, lost=list(REST))
        kill(store)
        first, _ = opened(place)
        commit(first, [record(first.sequence + 1, EVENTS[3])])
        kill(first)
        replica.stop("immediate")
        last.start()
        last.promote()
        second, cluster = opened(InPostgres(tmp_path / "three/postgresql", last, "holdfast"))
        assert is_in_doubt(second, cluster, sequence=3)
        assert second.epoch > first.epoch, "hosts that obeyed the first one turn it away, and nothing of it lands"
        assert second.sequence > first.sequence, "no cursor into what is lost names another event"
        second.close()


def test_a_controller_that_leads_goes_on_after_a_promotion_that_lost_nothing(
    both: tuple[Server, Server], place: InPostgres, other: InPostgres
) -> None:
    store, _ = opened(place)
    commit(store, FIRST)
    fail_over(both, store, lost=[])  # it was not synchronous, and had everything all the same: this one can tell
    commit(store, REST)
    store.close()
    second, cluster = opened(other)
    assert (second.epoch, cluster.sequence, cluster.gaps) == (2, 6, [])
    second.close()


def test_a_synchronous_replica_is_believed_by_who_has_seen_the_old_server_to_the_end(
    both: tuple[Server, Server], place: InPostgres, other: InPostgres
) -> None:
    synchronous(both[0], "'*'")
    store, _ = opened(place)
    commit(store, FIRST)
    assert store.engine.risk() == ""
    fail_over(both, store, lost=[])
    kill(store)
    unseen, cluster = opened(other)
    assert is_in_doubt(unseen, cluster, sequence=3), "a machine that has seen nothing of it can't tell"
    unseen.close()


def test_the_machine_that_led_believes_a_synchronous_replica_that_ends_where_it_did(
    both: tuple[Server, Server], place: InPostgres
) -> None:
    synchronous(both[0], "'*'")
    store, _ = opened(place)
    commit(store, FIRST)
    fail_over(both, store, lost=[])
    store.close()
    again, cluster = opened(place)
    assert (again.epoch, cluster.sequence, cluster.gaps) == (2, 3, [])
    again.close()


def test_replicas_that_are_no_longer_synchronous_are_noted_while_a_controller_leads(
    both: tuple[Server, Server], place: InPostgres, other: InPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store.databases.postgresql import leadership

    monkeypatch.setattr(leadership, "SERVER_LOOK_EVERY_S", 0.0)
    synchronous(both[0], "'*'")
    store, _ = opened(place)
    commit(store, FIRST)
    assert "lossless" in place.sql("SELECT value FROM meta WHERE key = 'server'")[0][0]
    synchronous(both[0], "''")
    commit(store, REST)
    assert "lossy" in place.sql("SELECT value FROM meta WHERE key = 'server'")[0][0]
    store.close()


def test_who_has_followed_further_than_a_server_comes_back_with_doubts_it_whatever_it_promised(
    both: tuple[Server, Server], place: InPostgres, other: InPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store.databases.postgresql import server

    sound = server.look
    monkeypatch.setattr(server, "look", lambda found: sound(found)._replace(lossless=True))
    monkeypatch.setattr(server, "is_lossless", lambda _: True)
    store, _ = opened(place)
    commit(store, FIRST)
    both[0].caught_up(both[1])
    both[1].stop()
    follows = threading.Event()
    standby = Store(other.other(other.path.parent, lambda _: follows.set()))
    opening = standby.call(standby.open)
    for number, each in enumerate(REST * 40, start=4):
        commit(store, [replace(each, sequence=number)])
        if follows.wait(0.1) and number > 12:
            break
    assert follows.is_set()
    time.sleep(1.0)  # it looks ten times in a second
    both[0].stop("immediate")
    both[1].start()
    both[1].promote()
    kill(store)
    cluster = opening.result(90)
    assert is_in_doubt(standby, cluster, sequence=3)
    standby.close()
