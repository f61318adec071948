"""Two controllers on one database of PostgreSQL: who leads, and who waits for whom."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_postgresql import on_another_machine, opened
from tests.integration.controller.store.test_store import commit, folded, record, records, same
from tests.support.postgres import running
from tests.unit.controller.examples import EVENTS

from holdfast_controller.shell.store import migrate
from holdfast_controller.shell.store.databases.engine import Deposed
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")


class Looks:
    """The time of a controller that waits: it passes with its looks, and something may happen at each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at_each: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.at_each()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    from holdfast_controller.shell.store.databases.postgresql import takeover

    made = Looks()
    monkeypatch.setattr(takeover, "time", made)
    return made


def test_a_second_controller_waits_until_the_first_has_ended(
    made: InPostgres, tmp_path: Path, looks: Looks
) -> None:
    first, _ = opened(made)
    written = 0

    def lead() -> None:
        nonlocal written
        if written == 100:
            first.close()
        elif round(looks.now, 1) % 1.0 == 0:
            written += 1
            commit(first, [record(written, EVENTS[0])])

    looks.at_each = lead
    told: list[str] = []
    second = Store(made.other(tmp_path / "other", told.append))
    cluster = second.call(second.open).result()
    assert (cluster.epoch, cluster.sequence) == (2, 100)
    assert told == [socket.gethostname()]
    assert looks.now == pytest.approx(100.1), "the end of the first is seen at the next look"
    second.close()


def test_a_controller_that_writes_nothing_any_more_is_replaced_and_nothing_of_it_lands(
    made: InPostgres, tmp_path: Path, looks: Looks
) -> None:
    frozen, _ = opened(made)
    commit(frozen, records(EVENTS[:2]))
    second, cluster = opened(on_another_machine(made, tmp_path))
    assert (cluster.epoch, cluster.sequence) == (2, 2)
    for write in (
        lambda: frozen.commit(records(EVENTS[2:4], 3)),
        lambda: frozen.commit([]),
        lambda: frozen.snapshot(2, []),
        lambda: frozen.sweep(0.0),
    ):
        with pytest.raises(Deposed, match="Another controller has taken over PostgreSQL database holdfast"):
            frozen.call(write).result()
    frozen.close()
    commit(second, records(EVENTS[2:], 3))
    second.close()
    third, cluster = opened(on_another_machine(made, tmp_path, "third"))
    third.close()
    assert same(cluster, folded(EVENTS))


def test_a_controller_that_is_frozen_within_an_answer_keeps_no_other_from_leading(tmp_path: Path) -> None:
    """The server is not idle in its transaction then: it waits for the rest to be read."""
    from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase

    frozen, thaw = threading.Event(), threading.Event()

    def work(database: sa.Connection) -> None:
        driver: Any = database.connection.driver_connection
        driver.pgconn.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 200000)")
        driver.pgconn.flush()
        frozen.set()
        thaw.wait(60)
        driver.pgconn.finish()

    with running() as server:
        server.sql(
            "ALTER SYSTEM SET listen_addresses = '127.0.0.77'"
        )  # a socket of the machine has no such timeout
        server.stop()
        server.start()
        server.sql("CREATE DATABASE holdfast")
        address = "host=127.0.0.77 user=holdfast dbname=holdfast"
        first, second = (Store(PostgresDatabase(address, tmp_path / name / "postgresql")) for name in "ab")
        first.call(first.open).result()
        reading = first.call(first.transaction, work)
        assert frozen.wait(60)
        assert second.call(second.open).result(60).epoch == 2
        thaw.set()
        with pytest.raises(Deposed, match="taken over"):
            reading.result(60)
        first.close()
        second.close()


def test_a_controller_with_slow_commits_keeps_leading(
    made: InPostgres, tmp_path: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is locked for as long as a commit is in flight, and is another one afterwards."""
    slow, _ = opened(made)
    migrated = threading.Event()
    monkeypatch.setattr(migrate, "in_transaction", lambda *_: migrated.set())

    def write(seconds: int) -> None:
        def work(database: sa.Connection) -> None:
            begun.set()
            database.exec_driver_sql(f"SELECT pg_sleep({seconds})")
            begun.clear()

        slow.transaction(work)

    begun = threading.Event()
    looks.at_each = lambda: begun.wait(60)  # between two commits no time passes, however long this machine takes
    writing = slow.call(write, 1)
    begun.wait(60)
    second = Store(made.other(tmp_path / "other"))
    waiting = second.call(second.open)
    for _ in range(3):
        writing.result()
        assert not waiting.done() and not migrated.is_set()
        writing = slow.call(write, 1)
        begun.wait(60)
    slow.close()
    looks.at_each = lambda: None
    begun.set()
    assert waiting.result(60).epoch == 2 and migrated.is_set()
    second.close()


def test_a_killed_controller_has_no_one_to_wait_for_when_it_is_started_again(made: InPostgres) -> None:
    from holdfast_controller.shell.store import high_water

    store, _ = opened(made)
    high_water.write(store.path, store.reached)  # a second after its start
    commit(store, records())
    began = time.monotonic()
    again, cluster = opened(made)  # the first one is not closed: its machine knows that it is not there
    assert (cluster.epoch, cluster.sequence) == (2, len(EVENTS))
    assert time.monotonic() - began < 60
    assert "leader" in dict(made.sql("SELECT key, value FROM meta"))
    again.close()
    with pytest.raises(Deposed):
        commit(store, [])
    store.close()
