"""PostgreSQL as the store: servers that go away, commits that nobody heard of, copies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.controller.store.places import InFile, InPostgres, Place
from tests.integration.controller.store.test_store import commit, folded, record, records, same
from tests.unit.controller.examples import EVENTS

from holdfast._base.rpc_status import code_name
from holdfast.errors import ConfigError, StoreError, Unavailable
from holdfast_controller.core.model.cluster import Answer, Cluster
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.core.step.actions import KeepAnswer, KeepEvidence
from holdfast_controller.shell.notify.outbox_store import OutboxStore
from holdfast_controller.shell.store.databases.engine import Deposed
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")


def on_another_machine(made: InPostgres, tmp_path: Path, name: str = "other") -> InPostgres:
    return InPostgres(tmp_path / name / "postgresql", made.server, made.database)


def opening(place: Place) -> tuple[Store, Future[Cluster]]:
    store = Store(place.engine())
    return store, store.call(store.open)


def opened(place: Place) -> tuple[Store, Cluster]:
    store, cluster = opening(place)
    return store, cluster.result()


def test_a_server_that_was_restarted_between_two_commits_is_not_noticed(made: InPostgres) -> None:
    store, _ = opened(made)
    commit(store, records(EVENTS[:2]))
    made.server.stop("immediate")
    made.server.start()
    commit(store, records(EVENTS[2:], 3))
    assert store.call(store.read, "host/h1", 0, 100).result()[0].sequence == 1
    made.server.stop("fast")
    made.server.start()
    assert store.call(store.read, "host/h1", 0, 100).result()
    store.close()
    store, cluster = opened(made)
    store.close()
    assert same(cluster, folded(EVENTS))


def test_a_commit_waits_for_a_server_that_is_away(made: InPostgres) -> None:
    store, _ = opened(made)
    made.server.stop("immediate")
    waiting = store.call(store.commit, records())
    time.sleep(1.0)
    assert not waiting.done()
    made.server.start()
    waiting.result(60)
    store.close()
    assert made.sql("SELECT count(*) FROM events") == [(len(records()),)]


def test_a_controller_that_was_frozen_as_a_commit_began_goes_on(
    made: InPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store.databases.postgresql import leadership

    store, _ = opened(made)
    execute = sa.Connection.exec_driver_sql
    frozen: list[bool] = []

    def slow(connection: sa.Connection, statement: str, *given: Any) -> Any:
        if statement == leadership.CLAIM and not frozen:
            execute(connection, "SET LOCAL idle_in_transaction_session_timeout = '100ms'")
            frozen.append(True)
            time.sleep(1.0)
        return execute(connection, statement, *given)

    monkeypatch.setattr(sa.Connection, "exec_driver_sql", slow)
    commit(store, records())
    store.close()
    assert frozen and made.sql("SELECT count(*) FROM events") == [(len(records()),)]


def test_a_controller_whose_server_stays_away_says_so(made: InPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast_controller.shell.store.databases.postgresql import patience

    monkeypatch.setattr(patience, "FOR_S", 0.5)
    store, _ = opened(made)
    made.server.stop("immediate")
    try:
        with pytest.raises(
            StoreError, match=r"PostgreSQL database holdfast at .* cannot be written: .*server runs"
        ):
            commit(store, records())
        # Whoever watches is told to ask again: another controller may have the answer.
        with pytest.raises(Unavailable, match="cannot be read") as read:
            store.call(store.read, "host/h1", 0, 100).result()
        assert code_name(read.value) == "UNAVAILABLE"
    finally:
        made.server.start()
        store.close()


def breaking(monkeypatch: pytest.MonkeyPatch, *, lands: bool) -> list[str]:
    """Break the connection at the next commit, before or after the server has heard of it."""
    import psycopg

    commit_of_driver: Callable[[Any], None] = psycopg.Connection.commit
    broken: list[str] = []

    def instead(connection: Any) -> None:
        if not broken:
            broken.append("once")
            if lands:
                commit_of_driver(connection)
            connection.close()
            raise psycopg.OperationalError("the connection was lost")
        commit_of_driver(connection)

    monkeypatch.setattr(psycopg.Connection, "commit", instead)
    return broken


@pytest.mark.parametrize("lands", [True, False], ids=["committed", "not committed"])
def test_a_commit_of_unknown_outcome_is_looked_up_and_there_once(
    made: InPostgres, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    store, _ = opened(made)
    commit(store, records(EVENTS[:2]))
    broken = breaking(monkeypatch, lands=lands)
    pieces = [KeepEvidence("a", 1, "w0", b"\x00\xff")]
    store.call(store.commit, records(EVENTS[2:], 3), pieces).result()
    assert broken
    assert store.call(store.evidence, "a", 1).result() == [("w0", b"\x00\xff")]
    commit(store, [])
    store.close()
    assert made.sql("SELECT count(*), max(sequence) FROM events") == [(len(EVENTS), len(EVENTS))]


@pytest.mark.parametrize("lands", [True, False], ids=["committed", "not committed"])
def test_a_transaction_beside_the_log_is_done_again_where_it_did_not_land(
    made: InPostgres, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    store, _ = opened(made)
    assert store.call(OutboxStore(store).open).result() == (0, [])
    broken = breaking(monkeypatch, lands=lands)
    entry = OutboxEntry(1, "ops", "job-1", "JOB_FAILED", "{}")
    store.call(OutboxStore(store).keep, 7, [entry]).result()
    assert broken
    assert store.call(OutboxStore(store).open).result() == (7, [entry])
    store.close()


def test_a_connection_that_is_lost_within_a_transaction_beside_the_log_is_not_noticed(made: InPostgres) -> None:
    store, _ = opened(made)
    lost: list[int] = []

    def work(database: sa.Connection) -> int:
        found = int(database.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        if not lost:
            lost.append(found)
            made.sql("SELECT pg_terminate_backend(?)", found)
        return int(database.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    assert store.call(store.transaction, work).result() not in lost
    commit(store, records())
    store.close()


def test_a_commit_of_unknown_outcome_ends_a_controller_that_was_replaced_meanwhile(
    made: InPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = opened(made)
    broken = breaking(monkeypatch, lands=False)
    engine, taken = old.engine, []

    def landed(epoch: int) -> bool:
        new, cluster = opened(on_another_machine(made, tmp_path))  # once the old one has been silent for a term
        taken.append(cluster.epoch)
        new.close()
        return type(engine).landed(engine, epoch)

    monkeypatch.setattr(engine, "landed", landed)
    with pytest.raises(Deposed, match="taken over"):
        commit(old, records())
    old.close()
    assert (broken, taken) == (["once"], [2])
    assert made.sql("SELECT count(*) FROM events") == [(0,)]


def test_a_database_that_was_set_back_is_refused(made: InPostgres) -> None:
    store, _ = opened(made)
    commit(store, records())
    store.close()
    made.sql("DELETE FROM events WHERE sequence > 10")
    with pytest.raises(
        StoreError, match=r"ends at event 10 and had reached .* events that were acknowledged are missing"
    ):
        opened(made)


def test_a_start_may_take_longer_than_a_transaction_may_stand_still(
    made: InPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.core.fold.allocation import recount
    from holdfast_controller.shell.store import load
    from holdfast_controller.shell.store.databases.postgresql import connection

    store, _ = opened(made)
    commit(store, records())
    store.close()
    monkeypatch.setitem(connection.SESSION, "idle_in_transaction_session_timeout", "200ms")

    def slow(cluster: Cluster) -> None:
        time.sleep(1.0)
        recount(cluster)

    monkeypatch.setattr(load, "recount", slow)
    store, cluster = opened(made)
    store.close()
    assert same(cluster, folded(EVENTS))


def test_tables_of_something_else_are_left_alone(made: InPostgres) -> None:
    made.sql("CREATE TABLE events (id int)")
    with pytest.raises(
        StoreError, match=r"holds a table events that is not of a store\. Give the controller a database"
    ):
        opened(made)
    assert made.sql("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'") == [(1,)]


def test_text_that_the_server_cannot_hold_is_refused_by_name(made: InPostgres) -> None:
    made.server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StoreError, match=r"latin at .* is encoded in LATIN1\. Make another one"):
            opened(InPostgres(made.path, made.server, "latin"))
    finally:
        made.server.sql("DROP DATABASE latin WITH (FORCE)")


def test_errors_of_the_server_say_what_to_do(made: InPostgres) -> None:
    with pytest.raises(StoreError, match=r'database "none" does not exist.*Make the database'):
        opened(InPostgres(made.path, made.server, "none"))
    made.server.sql("ALTER DATABASE holdfast SET default_transaction_read_only = on")
    with pytest.raises(StoreError, match=r"read-only.*takes writes"):
        opened(made)


def test_an_address_that_cannot_be_read_is_named_without_its_password() -> None:
    from holdfast_controller.shell.store.databases.postgresql.address import checked, name_of

    with pytest.raises(ConfigError, match=r"database_url can't be read: .*postgresql://USER@HOST"):
        checked("postgresql://[")
    name = name_of(checked("postgresql://ann:secret@db1:5433,db2:5434/holdfast"))
    assert name == "PostgreSQL database holdfast at db1:5433 or db2:5434"


@pytest.mark.parametrize("words", ["\0", "a\0b\0", "\ue000", "\ue0000", "\0\ue000\0001", "Grüße 你好 🙂"])
def test_text_that_postgresql_cannot_hold_comes_back_as_it_was(
    made: InPostgres, tmp_path: Path, words: str
) -> None:
    store, _ = opened(made)
    given = replace(record(1, EVENTS[0]), message=words)
    store.call(store.commit, [given], [KeepAnswer("ann", words, Answer("digest", "job-1"))]).result()
    assert store.call(store.read, given.entity, 0, 10).result() == [given]
    store.call(store.copy_to, tmp_path / "copy.db").result()
    store.close()
    for place in (made, InFile(tmp_path / "copy.db")):
        store, cluster = opened(place)
        assert store.call(store.read, given.entity, 0, 10).result() == [given]
        assert list(cluster.answers) == [("ann", words)]
        store.close()


def test_a_copy_is_a_whole_store_in_a_file(made: InPostgres, tmp_path: Path) -> None:
    store, _ = opened(made)
    store.call(store.commit, records(), [KeepEvidence("a", 1, "w0", b"\x00\xff")]).result()
    store.call(store.copy_to, tmp_path / "copy.db").result()
    store.close()
    copy = Store(tmp_path / "copy.db")
    cluster = copy.call(copy.open).result()
    assert same(cluster, folded(EVENTS))
    assert copy.call(copy.evidence, "a", 1).result() == [("w0", b"\x00\xff")]
    copy.close()


def test_a_controller_that_makes_a_copy_goes_on_writing(
    made: InPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store import copying

    began, go_on, to_new_file = threading.Event(), threading.Event(), copying.to_new_file

    def slow(source: sa.Connection, path: Path) -> None:
        source.exec_driver_sql("SELECT 1")
        began.set()
        assert go_on.wait(20)
        to_new_file(source, path)

    monkeypatch.setattr(copying, "to_new_file", slow)
    store, _ = opened(made)
    commit(store, records(EVENTS[:2]))
    with ThreadPoolExecutor(1) as beside:
        copied = beside.submit(lambda: asyncio.run(store.copied(tmp_path / "copy.db")))
        assert began.wait(20)
        try:
            store.call(store.commit, records(EVENTS[2:], 3)).result(5)
        finally:
            go_on.set()
        assert copied.result(20) == (1, 2)
    store.close()
    copy, cluster = opened(InFile(tmp_path / "copy.db"))
    copy.close()
    assert same(cluster, folded(EVENTS[:2]))


def test_a_copy_may_take_longer_than_a_transaction_may_stand_still(
    made: InPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store import copying
    from holdfast_controller.shell.store.databases.postgresql import connection

    monkeypatch.setitem(connection.SESSION, "idle_in_transaction_session_timeout", "200ms")
    digest = copying._digest

    def slow(row: dict[str, Any]) -> int:
        time.sleep(0.2)
        return digest(row)

    monkeypatch.setattr(copying, "_digest", slow)
    store, _ = opened(made)
    commit(store, records(EVENTS[:2]))
    store.call(store.copy_to, tmp_path / "copy.db").result()
    store.close()
