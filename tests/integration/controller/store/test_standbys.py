"""Controllers that stand by say how far they have read the log, and which settings they have otherwise."""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_store import commit, records
from tests.support.postgres import Server

from holdfast.errors import StoreError
from holdfast_controller.shell.store.databases.engine import Standby
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")


def test_who_leads_knows_how_far_each_standby_is_and_that_its_settings_differ(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.sql("CREATE DATABASE holdfast")
    place = InPostgres(tmp_path / "one/postgresql", server, "holdfast")
    leader = Store(place.engine())
    leader.engine.settings = {"lease": "a", "quotas": "b", "admins": "c"}
    leader.call(leader.open).result()
    commit(leader, records()[:3])
    standby = Store(place.other(tmp_path / "two"))
    standby.engine.settings = {"lease": "a", "quotas": "other", "admins": "other", "newer": "d"}
    opening = standby.call(standby.open)
    ends = threading.Event()
    found: list[Standby] = []
    deadline = time.monotonic() + 60
    while not ends.wait(0.25):
        commit(leader, [])  # as a controller does that has nothing to write
        found = leader.call(leader.standbys).result()
        if found == [Standby(socket.gethostname(), 3, "admins+1")]:
            break
        assert time.monotonic() < deadline, found
    leader.engine.settings = dict(standby.engine.settings)
    while leader.call(leader.standbys).result() != [Standby(socket.gethostname(), 3, "")]:
        commit(leader, [])
        assert time.monotonic() < deadline
        time.sleep(0.25)
    leader.close()
    opening.result(60)
    assert standby.call(standby.standbys).result() == []
    standby.close()
    said = [record.getMessage() for record in caplog.records]
    assert "controller.settings_differ" in said and "controller.same_name" in said
    server.sql("DROP DATABASE holdfast WITH (FORCE)")


@pytest.mark.parametrize("name", ["holdfast", "holdfast/", "holdfast/x/ y", "holdfast/1"])
def test_another_program_with_a_name_like_ours_is_no_standby(server: Server, tmp_path: Path, name: str) -> None:
    import psycopg

    server.sql("CREATE DATABASE holdfast")
    leader = Store(InPostgres(tmp_path / "one/postgresql", server, "holdfast").engine())
    leader.call(leader.open).result()
    with psycopg.connect(server.address("holdfast"), application_name=name):
        commit(leader, records()[:1])
        assert leader.call(leader.standbys).result() == []
    leader.close()
    server.sql("DROP DATABASE holdfast WITH (FORCE)")


def test_a_leader_without_its_database_ends_soon_for_another_that_may_reach_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store.databases.postgresql import leadership, patience

    monkeypatch.setattr(patience, "BESIDE_ANOTHER_S", 0.5)
    monkeypatch.setattr(leadership, "SERVER_LOOK_EVERY_S", 0.1)
    server.sql("CREATE DATABASE holdfast")
    leader = Store(InPostgres(tmp_path / "one/postgresql", server, "holdfast").engine())
    leader.call(leader.open).result()
    standby = Store(InPostgres(tmp_path, server, "holdfast").other(tmp_path / "two"))
    opening = standby.call(standby.open)
    deadline = time.monotonic() + 60
    while not leader.call(leader.standbys).result():
        commit(leader, [])
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.2)
    commit(leader, records()[:1])  # within which it looks who stands by
    server.stop("immediate")
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            commit(leader, records()[1:2])  # where none stood by it would wait for the server's return
        assert not opening.done(), "the one that stands by has more patience"
    finally:
        server.start()
    opening.result(60)
    commit(standby, [])
    standby.close()
    leader.close()
    server.sql("DROP DATABASE holdfast WITH (FORCE)")


def test_a_leader_that_was_killed_is_replaced_sooner_than_one_that_is_only_silent(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast_controller.shell.store.databases.postgresql import takeover

    monkeypatch.setattr(takeover, "TERM_S", 3600.0)  # a silent one keeps its place for the length of this test
    server.sql("CREATE DATABASE holdfast")
    leader = Store(InPostgres(tmp_path / "one/postgresql", server, "holdfast").engine())
    leader.call(leader.open).result()
    commit(leader, records()[:1])
    waits = threading.Event()
    standby = Store(InPostgres(tmp_path, server, "holdfast").other(tmp_path / "two", lambda _: waits.set()))
    opening = standby.call(standby.open)
    deadline = time.monotonic() + 60
    while not (waits.is_set() and leader.call(leader.standbys).result()):
        commit(leader, [])
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2 * takeover.GONE_S)
    assert not opening.done(), "it is silent, and connected"
    # The server ends the connection of a process that is gone; the leader never comes back for another one.
    of_leader = "application_name LIKE 'holdfast-leads/%'"
    server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of_leader}")
    opening.result(60)
    with pytest.raises(StoreError, match="has taken over"):
        commit(leader, records()[1:2])
    standby.close()
    leader.close()
    server.sql("DROP DATABASE holdfast WITH (FORCE)")
