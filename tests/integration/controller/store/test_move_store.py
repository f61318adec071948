"""A store is moved from a file to PostgreSQL and back: every row, and no controller starts from the old place."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_store import commit, folded, opened, record, records, same
from tests.support.postgres import Server
from tests.unit.controller.examples import EVENTS

from holdfast._base import config
from holdfast._daemon.instance_lock import only_one
from holdfast.errors import StoreError, WrongState
from holdfast_controller.core.step.actions import KeepEvidence
from holdfast_controller.shell.backup import accept_loss, backup, move_store, restore
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main import init
from holdfast_controller.shell.store import copying, high_water
from holdfast_controller.shell.store.schema import metadata
from holdfast_controller.shell.store.statements import put
from holdfast_controller.shell.store.store import Store, store_at

pytestmark = pytest.mark.require("postgres")


@pytest.fixture
def database(postgres_server: Server, tmp_path: Path) -> Iterator[InPostgres]:
    postgres_server.sql("CREATE DATABASE moved")
    yield InPostgres(tmp_path / "state/postgresql", postgres_server, "moved")
    postgres_server.sql("DROP DATABASE moved WITH (FORCE)")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Those of a cluster at rest, with some history in a file."""
    folders = ["--dir", str(tmp_path / "etc"), "--state-dir", str(tmp_path / "state")]
    assert init.main(["--advertise", "127.0.0.1", "--admin", "ann", *folders]) == 0
    store, _ = opened(tmp_path / "state/holdfast.db")
    store.call(store.commit, records(), [KeepEvidence("a", 1, "w0", b"\x00\xff" * 1000)]).result()
    store.close()
    (tmp_path / "state/secrets.key").write_bytes(b"opens the secrets")
    return tmp_path / "etc/controller.toml"


def say(settings: Path, url: str) -> None:
    """Set ``database_url``, or take it out."""
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("database_url")]
    settings.write_text("\n".join([f'database_url = "{url}"', *lines] if url else lines))


def rows(place: Path | InPostgres) -> dict[str, list[Any]]:
    """All rows by table, but for the store's own entries."""
    return {t.name: sorted(_rows(place, t.name)) for t in metadata.sorted_tables if t.name != "meta"}


def _rows(place: Path | InPostgres, table: str) -> list[Any]:
    if isinstance(place, InPostgres):
        return place.sql(f"SELECT * FROM {table}")
    with contextlib.closing(sqlite3.connect(place)) as database:
        return database.execute(f"SELECT * FROM {table}").fetchall()


def address(place: InPostgres) -> str:
    return place.server.address(place.database)


def moved(settings: Path, *to: str) -> int:
    return move_store.main(["--config", str(settings), *to])


def test_a_store_is_moved_there_and_back_with_every_row(
    settings: Path, database: InPostgres, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = config.load(ControllerConfig, settings)
    file, before = loaded.database, rows(loaded.database)
    assert moved(settings, "--to", address(database)) == 0
    said = capsys.readouterr().out
    assert "The store is in PostgreSQL database moved at " in said and "each compared. Now set database_url" in said
    assert rows(database) == before
    with pytest.raises(StoreError, match=r"was moved to a database of PostgreSQL.*Set database_url"):
        high_water.check_presence(file, loaded.secrets_key)
    say(settings, address(database))
    store = store_at(file, address(database))
    cluster = store.call(store.open).result()
    assert same(cluster, folded(EVENTS))
    assert store.call(store.evidence, "a", 1).result() == [("w0", b"\x00\xff" * 1000)]
    commit(store, [record(len(EVENTS) + 1, EVENTS[0])])
    store.close()

    before = rows(database)
    assert moved(settings, "--to-file") == 0
    assert "Now take database_url out" in capsys.readouterr().out
    assert rows(file) == before
    with pytest.raises(StoreError, match=rf"was moved to .*{file}\. Take database_url out"):
        opened(database)
    high_water.check_presence(file, loaded.secrets_key)
    store, again = opened(file)
    store.close()
    assert (again.sequence, again.epoch) == (len(EVENTS) + 1, cluster.epoch + 2)
    with contextlib.closing(sqlite3.connect(file)) as moved_back:
        assert moved_back.execute("PRAGMA auto_vacuum").fetchone() == (2,), "what is deleted is given back"


def test_a_store_is_not_moved_onto_another(
    settings: Path, database: InPostgres, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = opened(database)
    store.close()
    file = config.load(ControllerConfig, settings).database
    assert moved(settings, "--to", address(database)) == 1
    assert "moved at " in (said := capsys.readouterr().err) and "holds a store already. Make an empty one" in said
    assert file.exists() and not high_water.moved_name(file).exists()
    assert moved(settings, "--to-file") == 1
    assert "The store is in a file already" in capsys.readouterr().err


def test_a_store_that_another_controller_takes_over_meanwhile_is_not_put_in_place(
    settings: Path,
    database: InPostgres,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert moved(settings, "--to", address(database)) == 0
    say(settings, address(database))
    copy_to, elsewhere = (
        Store.copy_to,
        InPostgres(tmp_path / "other/postgresql", database.server, database.database),
    )
    others: list[Store] = []

    def slow(store: Store, path: Path) -> tuple[int, int]:
        made = copy_to(store, path)
        others.append(opened(elsewhere)[0])  # once nothing was written for a term
        return made

    monkeypatch.setattr(Store, "copy_to", slow)
    assert moved(settings, "--to-file") == 1
    assert "Another controller has taken over" in capsys.readouterr().err
    file = config.load(ControllerConfig, settings).database
    assert not file.exists() and high_water.moved_name(file).exists()
    others[0].close()
    store, _ = opened(elsewhere)
    store.close()


@pytest.mark.parametrize("command", [[move_store.main, "--to-file"], [accept_loss.main, "--set-back"]])
def test_nothing_is_changed_while_a_controller_leads_on_another_machine(
    settings: Path, database: InPostgres, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[Any]
) -> None:
    assert moved(settings, "--to", address(database)) == 0
    say(settings, address(database))
    leader, _ = opened(InPostgres(tmp_path / "other/postgresql", database.server, database.database))
    main, *options = command
    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(main, ["--config", str(settings), *options])
        while not done.done():
            commit(leader, [])  # as a controller does that has nothing to write
            time.sleep(0.1)
        assert done.result() == 1
    commit(leader, [])
    leader.close()
    assert "is at work there. Stop every controller" in capsys.readouterr().err


def test_a_copy_that_differs_is_no_copy(
    settings: Path, database: InPostgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def careless(target: Any, table: Any, portion: list[dict[str, Any]]) -> None:
        put(target, table, [{**row, "state": "x"} if table.name == "events" else row for row in portion])

    monkeypatch.setattr(copying, "put", careless)
    assert moved(settings, "--to", address(database)) == 1
    assert "the copy of the table events is not what was written" in capsys.readouterr().err
    assert database.sql("SELECT count(*) FROM events") == [(0,)]
    assert config.load(ControllerConfig, settings).database.exists()


def test_settings_that_name_a_database_while_the_store_is_in_a_file_are_refused(settings: Path) -> None:
    loaded = config.load(ControllerConfig, settings)
    with pytest.raises(StoreError, match=r"database_url names another place.*move-store"):
        high_water.check_presence(loaded.database, loaded.secrets_key, "postgresql:///holdfast")


def test_a_backup_of_a_database_is_restored_to_a_file_and_moved_from_there(
    settings: Path, database: InPostgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moved(settings, "--to", address(database)) == 0
    say(settings, address(database))
    (tmp_path / "pass").write_text("a long passphrase\n")
    with only_one(tmp_path / "state", "controller"), pytest.raises(WrongState) as stands_by:
        backup.back_up(settings, tmp_path / "backup", "a long passphrase")
    assert "on the machine whose controller leads" in stands_by.value.fix
    made, _ = backup.back_up(settings, tmp_path / "backup", "a long passphrase")
    assert made.sequence == len(EVENTS)
    options = [str(tmp_path / "backup"), "--to", str(tmp_path / "new"), "--passphrase-file", str(tmp_path / "pass")]
    assert restore.main(options) == 0
    assert "holdfast-controller move-store --to URL" in capsys.readouterr().out
    database.server.sql("CREATE DATABASE anew")
    try:
        again = InPostgres(tmp_path / "new/state/postgresql", database.server, "anew")
        assert moved(tmp_path / "new/controller.toml", "--to", address(again)) == 0
        store = Store(again.engine())
        cluster = store.call(store.open).result()
        store.close()
        assert cluster.jobs.keys() == folded(EVENTS).jobs.keys()
        assert cluster.sequence > len(EVENTS)
    finally:
        database.server.sql("DROP DATABASE anew WITH (FORCE)")
