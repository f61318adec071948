"""A store that is damaged, or has lost its end, is refused, and the refusal says what to do."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.integration.controller.store.test_store import commit, folded, opened, records, same
from tests.unit.controller.examples import EVENTS

from holdfast.errors import StoreError, WrongState
from holdfast_controller.shell.backup.accept_loss import accept
from holdfast_controller.shell.store import high_water
from holdfast_controller.shell.store.databases.sqlite import SqliteFile
from holdfast_controller.shell.store.faults import Damaged
from holdfast_controller.shell.store.store import Store

HALF = 20


def crashed(path: Path, batches: int = 2) -> Path:
    """A store as a killed controller leaves it: its newest events in the write-ahead log, the position noted."""
    store, _ = opened(path)
    all_of_it = records()
    commit(store, all_of_it[:HALF])
    if batches > 1:
        commit(store, all_of_it[HALF:])
    high_water.write(path, store.reached)
    left = path.parent.parent / "left"
    shutil.copytree(path.parent, left)
    store.close()
    assert (left / f"{path.name}-wal").stat().st_size > 10_000
    return left / path.name


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def refusal(path: Path) -> str:
    with pytest.raises(Damaged) as refused:
        opened(path)
    return str(refused.value)


def test_store_of_a_killed_controller_is_whole(path: Path) -> None:
    store, cluster = opened(crashed(path))
    store.close()
    assert same(cluster, folded(EVENTS))


def test_write_ahead_log_that_was_cut_is_noticed_each_time(path: Path) -> None:
    left = crashed(path)
    os.truncate(wal_of(left), wal_of(left).stat().st_size - 4096)
    for _ in range(2):
        said = refusal(left)
        assert f"ends at event {HALF} and had reached {len(EVENTS)}" in said
        assert f"{len(EVENTS) - HALF} events that were acknowledged are missing" in said
        assert "holdfast-controller accept-loss" in said


def test_write_ahead_log_that_was_removed_is_noticed(path: Path) -> None:
    left = crashed(path)
    wal_of(left).unlink()
    assert "are missing" in refusal(left)


def test_write_ahead_log_of_another_store_is_noticed(path: Path, tmp_path: Path) -> None:
    left = crashed(path)
    other = crashed(tmp_path / "other" / "state" / "holdfast.db")
    shutil.copy(wal_of(other), wal_of(left))
    assert "is another cluster's" in refusal(left)


def test_database_that_is_gone_is_noticed(path: Path) -> None:
    left = crashed(path)
    left.unlink()
    wal_of(left).unlink()
    assert f"ends at event 0 and had reached {len(EVENTS)}" in refusal(left)
    with pytest.raises(WrongState, match="is empty: there is nothing to go on with"):
        accept(Store(left))
    refusal(left)


def test_store_of_another_cluster_is_noticed(path: Path, tmp_path: Path) -> None:
    left = crashed(path)
    other = crashed(tmp_path / "other" / "state" / "holdfast.db")
    shutil.copy(other, left)
    shutil.copy(wal_of(other), wal_of(left))
    assert "is another cluster's" in refusal(left)


def test_loss_may_be_accepted_and_numbers_go_on_beyond_it(path: Path) -> None:
    left = crashed(path)
    os.truncate(wal_of(left), wal_of(left).stat().st_size - 4096)
    assert accept(Store(left)) == len(EVENTS) - HALF
    store, cluster = opened(left)
    store.close()
    assert cluster.sequence > len(EVENTS)
    assert len(cluster.gaps) == 1, "watchers of what is lost are told so"
    with pytest.raises(WrongState, match="has not lost its end"):
        accept(Store(left))


def test_store_without_a_noted_position_is_taken_as_it_is(path: Path) -> None:
    left = crashed(path)
    high_water.path_of(left).write_text("{")
    store, cluster = opened(left)
    store.close()
    assert same(cluster, folded(EVENTS))
    assert high_water.read(left) is not None


def test_position_is_noted_at_the_end_and_never_of_a_store_that_was_refused(path: Path) -> None:
    store, _ = opened(path)
    commit(store, records())
    store.close()
    noted = high_water.read(path)
    assert noted is not None
    assert noted.sequence == len(EVENTS)
    path.unlink()
    refusal(path)
    assert high_water.read(path) == noted


def test_damaged_page_is_noticed_at_the_start(path: Path) -> None:
    store, _ = opened(path)
    commit(store, records())
    store.close()
    pages = path.stat().st_size // 4096
    noticed: list[str] = []
    for page in range(1, pages):
        damaged = bytearray(path.read_bytes())
        damaged[page * 4096 : page * 4096 + 16] = b"\xff" * 16
        aside = path.with_name(f"damaged-{page}.db")
        aside.write_bytes(damaged)
        try:
            opened(aside)[0].close()
        except Damaged as error:
            noticed.append(str(error))
    assert len(noticed) > pages * 0.9, "all but pages that nothing is on"
    assert all("holdfast-controller restore" in said for said in noticed)


def test_damaged_page_that_is_met_at_work_says_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened(path)
    commit(store, records())
    store.close()
    content = bytearray(path.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as looked:
        of_the_log = looked.execute("SELECT rootpage - 1 FROM sqlite_master WHERE tbl_name = 'events'").fetchall()
    for (page,) in of_the_log:
        content[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    path.write_bytes(content)
    file = SqliteFile(path)
    store = Store(file)
    monkeypatch.setattr(file, "_connection", file._engine.connect())
    with pytest.raises(StoreError, match=r"is damaged: .*holdfast-controller restore FILE") as met:
        store.read("job/a", 0, 10)
    assert isinstance(met.value, Damaged)
    store.close()
