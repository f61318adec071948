"""The store: what was acknowledged is there again, and what is damaged or somebody else's is refused."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from tests.integration.controller.store.places import InFile, Place
from tests.unit.controller.examples import EVENTS

from holdfast.errors import StoreError
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.step.actions import KeepEvidence
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.databases import sqlite
from holdfast_controller.shell.store.databases.engine import Deposed
from holdfast_controller.shell.store.migrate import newest_revision
from holdfast_controller.shell.store.records import Record, checksum
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.store import Store


def opened(at: Path | Place) -> tuple[Store, Cluster]:
    store = Store(at if isinstance(at, Path) else at.engine())
    try:
        return store, store.call(store.open).result()
    except BaseException:
        store.close()
        raise


def record(sequence: int, event: ev.Event, message: str = "") -> Record:
    name = codec.stored_name(type(event))
    return Record(
        sequence, codec.entity_of(event), name, codec.VERSIONS[name], event.at, "", message, codec.dump_event(event)
    )


def records(events: list[ev.Event] = EVENTS, start: int = 1) -> list[Record]:
    return [record(start + number, event) for number, event in enumerate(events)]


def commit(store: Store, batch: list[Record]) -> None:
    store.call(store.commit, batch).result()


def folded(events: list[ev.Event]) -> Cluster:
    cluster = Cluster()
    for event in events:
        fold(cluster, event)
    return cluster


def same(one: Cluster, other: Cluster) -> bool:
    def durable(c: Cluster) -> tuple[object, ...]:
        return c.sequence, c.jobs, c.hosts, c.people, c.queue, c.requests

    return durable(one) == durable(other)


def test_log_comes_back_as_the_state_that_it_folds_into(place: Place) -> None:
    store, cluster = opened(place)
    assert (cluster.epoch, cluster.sequence) == (1, 0)
    commit(store, records())
    store.close()
    store, cluster = opened(place)
    assert same(cluster, folded(EVENTS))
    store.close()
    assert cluster.epoch == 2


def folds_with_a_snapshot_at(place: Place, at: int) -> bool:
    store, _ = opened(place)
    commit(store, records())
    then = folded(EVENTS[:at])
    entities = [(f"job/{j.id}", codec.dump_entity(j)) for j in then.jobs.values()]
    entities += [(f"host/{h.name}", codec.dump_entity(h)) for h in then.hosts.values()]
    entities += [(f"schedule/{key}", codec.dump_entity(each)) for key, each in then.schedules.items()]
    entities += [(f"template/{key}", codec.dump_entity(each)) for key, each in then.templates.items()]
    entities.append(("people", codec.dump_entity(then.people)))
    store.call(store.snapshot, at, entities, heads_of(then.jobs.values())).result()
    store.close()
    store, cluster = opened(place)
    try:
        return same(cluster, folded(EVENTS)) and store.snapshot_sequence == at
    finally:
        store.close()


@pytest.mark.parametrize("at", range(len(EVENTS) + 1))
def test_snapshot_and_the_rest_of_the_log_give_the_same_state(path: Path, at: int) -> None:
    assert folds_with_a_snapshot_at(InFile(path), at)


def test_snapshot_and_the_rest_of_the_log_are_read_from_every_kind_of_store(place: Place) -> None:
    assert folds_with_a_snapshot_at(place, len(EVENTS) // 2)


def test_snapshots_of_another_build_are_left_for_the_log(place: Place) -> None:
    store, _ = opened(place)
    commit(store, records())
    then = folded(EVENTS[:9])
    store.call(store.snapshot, 9, [(f"job/{j.id}", codec.dump_entity(j)) for j in then.jobs.values()]).result()
    store.close()
    noted = checksum("snapshot_layout", "older")
    edit(place, f"UPDATE meta SET value = 'older', checksum = {noted} WHERE key = 'snapshot_layout'")
    store, cluster = opened(place)
    store.close()
    assert same(cluster, folded(EVENTS))
    assert store.snapshot_sequence == 0


def test_secret_key_is_made_once(place: Place) -> None:
    keys = []
    for _ in range(2):
        store, _ = opened(place)
        keys.append(store.call(store.secret_key).result())
        store.close()
    assert keys[0] == keys[1]
    assert len(keys[0]) == 32


def test_second_store_on_the_same_file_is_refused_while_the_first_lives(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = opened(path)
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 0.2)
    with pytest.raises(StoreError, match=r"cannot be used: database is locked.*no other controller"):
        opened(path)
    commit(store, records())
    store.close()


def test_controller_of_an_older_epoch_commits_nothing(store: Store) -> None:
    commit(store, records(EVENTS[:2]))
    store.epoch -= 1
    with pytest.raises(Deposed, match="taken over"):
        commit(store, records(EVENTS[2:4], 3))
    assert store.call(store.read, "host/h1", 0, 10).result()[-1].sequence == 1


def test_commit_is_all_or_nothing(place: Place, store: Store) -> None:
    broken = records(EVENTS[:3])
    broken[2] = Record(3, "host/h1", "HostCordoned", 1, 0.0, "", None, "{}")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="cannot be written"):
        commit(store, broken)
    assert store.call(store.read, "host/h1", 0, 10).result() == []
    commit(store, records(EVENTS[:3]))


@pytest.mark.parametrize("start", [1, 3, 4])
def test_commit_must_follow_on_the_log(store: Store, start: int) -> None:
    commit(store, records(EVENTS[:1]))
    with pytest.raises(StoreError, match="don't follow event 1"):
        commit(store, records(EVENTS[1:3], start))
    commit(store, records(EVENTS[1:3], 2))


def test_history_of_an_entity_is_read_from_a_cursor_in_batches(store: Store) -> None:
    commit(store, records())
    everything = store.call(store.read, "job/a", 0, 100).result()
    of_a = [e for e in EVENTS if isinstance(e, ev.JobEvent) and e.job_id == "a"]
    assert [r.type for r in everything] == [type(e).__name__ for e in of_a]
    assert store.call(store.read, "job/a", everything[2].sequence, 2).result() == everything[3:5]
    assert store.call(store.read, "job/none", 0, 100).result() == []


def edit(at: Path | Place, statement: str) -> None:
    (InFile(at) if isinstance(at, Path) else at).sql(statement)


def drop_all_but(path: Path, *kept: str) -> None:
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for name in names:
        if name not in kept and not name.startswith("sqlite_"):
            connection.execute(f"DROP TABLE {name}")
    connection.commit()
    connection.close()


@pytest.fixture
def filled(place: Place) -> Place:
    store, _ = opened(place)
    commit(store, records())
    store.close()
    return place


@pytest.fixture
def filled_file(path: Path) -> Path:
    store, _ = opened(path)
    commit(store, records())
    store.close()
    return path


def test_newest_migration_is_known_by_its_name() -> None:
    config = Config()
    config.set_main_option("script_location", "holdfast_controller.shell.store:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == newest_revision()


def test_file_of_a_newer_schema_is_refused(filled: Place) -> None:
    edit(filled, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"written by a newer version \(schema 9999\)"):
        opened(filled)


@pytest.mark.parametrize("change", ["type = 'JobTeleported'", "version = 7"])
def test_event_of_a_newer_version_is_refused(filled: Place, change: str) -> None:
    event = EVENTS[7]
    name, version = (type(event).__name__, 7) if "version" in change else ("JobTeleported", 1)
    altered = Record(8, codec.entity_of(event), name, version, event.at, "", "", codec.dump_event(event))
    values = [getattr(altered, field) for field in Record.__slots__]
    edit(filled, f"UPDATE events SET {change}, checksum = {checksum(*values)} WHERE sequence = 8")
    with pytest.raises(StoreError, match=f"newer version: it holds {name} version {version}"):
        opened(filled)


def test_gap_in_the_log_is_refused(filled: Place) -> None:
    edit(filled, "DELETE FROM events WHERE sequence = 5")
    with pytest.raises(StoreError, match="lacks event 5"):
        opened(filled)


@pytest.mark.parametrize("column", ["payload", "at", "entity", "message", "state"])
def test_row_that_is_not_what_was_written_is_refused(filled: Place, column: str) -> None:
    value = "at + 1" if column == "at" else f"replace({column}, 'a', 'b') || ' '"
    edit(filled, f"UPDATE events SET {column} = {value} WHERE sequence = 4")
    with pytest.raises(StoreError, match=r"damaged: event 4 is not what was written.*Restore a backup"):
        opened(filled)


def test_snapshot_that_is_not_what_was_written_is_refused(place: Place) -> None:
    store, _ = opened(place)
    commit(store, records(EVENTS[:2]))
    host = folded(EVENTS[:2]).hosts["h1"]
    store.call(store.snapshot, 2, [("host/h1", codec.dump_entity(host))]).result()
    store.close()
    edit(place, "UPDATE snapshots SET payload = replace(payload, '\"cpus\":8', '\"cpus\":9')")
    with pytest.raises(StoreError, match="the snapshot of host/h1"):
        opened(place)


def test_flipped_bytes_anywhere_never_go_unnoticed(filled_file: Path) -> None:
    """Either the file is refused, or the byte meant nothing: the state is never another one."""
    sound, expected = filled_file.read_bytes(), folded(EVENTS)
    refused = 0
    for offset in range(0, len(sound), 797):
        damaged = bytearray(sound)
        damaged[offset] ^= 0xFF
        filled_file.write_bytes(damaged)
        try:
            store, cluster = opened(filled_file)
        except StoreError:
            refused += 1
        else:
            store.close()
            assert same(cluster, expected), f"byte {offset} has changed the state"
        for rest in filled_file.parent.glob("holdfast.db-*"):
            rest.unlink()
    assert refused > 3


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be looked at" * 40, b"SQLite format 3\0"]
)
def test_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"cannot be used|is damaged: file is not a database"):
        opened(path)


def test_a_full_disk_asks_for_room_and_keeps_what_was_committed(path: Path) -> None:
    store, _ = opened(path)
    commit(store, records(EVENTS[:2]))

    def end_the_disk() -> None:
        """SQLite's own end of it."""
        store.engine.connection.exec_driver_sql("PRAGMA max_page_count = 1")
        store.engine.connection.rollback()

    store.call(end_the_disk).result()
    with pytest.raises(StoreError, match=r"is full\. Make room where it lies"):
        commit(store, records(EVENTS[2:] * 1000, start=3))
    store.close()
    _, cluster = opened(path)
    assert same(cluster, folded(EVENTS[:2]))


def test_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        opened(tmp_path / "file" / "holdfast.db")


WRITER = """
import sys
from pathlib import Path
from holdfast_controller.core import events as ev
from holdfast_controller.core.step.actions import KeepEvidence
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.databases import sqlite
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.store import Store

store = Store(Path(sys.argv[1]))
cluster = store.call(store.open).result()
sequence = cluster.sequence
if sequence == 0:
    from holdfast_controller.core.model.hosts.host import Inventory
    first = ev.HostJoined(
        host="h", at=0.0, address="", agent_version="", boot_id="", inventory=Inventory(1, 1)
    )
    store.call(store.commit, [Record(1, "host/h", "HostJoined", 1, 0.0, "", "", codec.dump_event(first))]).result()
    sequence = 1
while True:
    batch = []
    for _ in range(3):
        sequence += 1
        event = ev.HostCordoned(host="h", at=0.0, reason=str(sequence), by="ann")
        batch.append(Record(sequence, "host/h", "HostCordoned", 1, 0.0, "", "", codec.dump_event(event)))
    store.call(store.commit, batch).result()
    print(sequence, flush=True)
"""


def test_killed_in_the_middle_of_commits_nothing_acknowledged_is_lost(path: Path) -> None:
    acknowledged = 0
    for round_ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = max(acknowledged, int(process.stdout.readline()))
        time.sleep(0.02 * round_)
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        acknowledged = max([acknowledged, *map(int, rest)])
        store, cluster = opened(path)
        store.close()
        assert cluster.sequence >= acknowledged
        assert cluster.sequence % 3 == 1, "half a batch"
        assert cluster.hosts["h"].cordon_reason == str(cluster.sequence)


def test_store_of_the_first_schema_is_brought_up_to_date_with_all_it_holds(filled_file: Path) -> None:
    drop_all_but(filled_file, "alembic_version", "meta", "events", "snapshots")
    edit(filled_file, "ALTER TABLE meta DROP COLUMN checksum")
    edit(filled_file, "UPDATE alembic_version SET version_num = '0001'")
    store, cluster = opened(filled_file)
    try:
        assert same(cluster, folded(EVENTS))
        assert store.call(store.evidence, "a", 1).result() == []
        store.call(store.commit, [], [KeepEvidence("a", 1, "workerpool0-0", b"\x00\xff")]).result()
        assert store.call(store.evidence, "a", 1).result() == [("workerpool0-0", b"\x00\xff")]
    finally:
        store.close()
    store, cluster = opened(filled_file)
    store.close()
    assert same(cluster, folded(EVENTS))
