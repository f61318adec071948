"""A store that an older version has left: copied, then brought up to date as a whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.integration.controller.cluster import Controller
from tests.support.stubs import job_stub

from holdfast._session.reports import ExitReason
from holdfast.errors import StoreError
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.store import migrate
from holdfast_controller.shell.store.store import Store

FIRST = Path(__file__).parent / "stores/first_schema.sql"
OF_0_1 = Path(__file__).parents[3] / "fixtures/store-0.1/holdfast.db.gz"
OLDEST = "0001"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store as the first schema's controller left it when it was killed."""
    path = tmp_path / "state/holdfast.db"
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(FIRST.read_text())
    return path


def opened(path: Path) -> Cluster:
    store = Store(path)
    try:
        cluster: Cluster = store.call(store.open).result()
    finally:
        store.close()
    return cluster


def schema(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return str(db.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def copies(path: Path) -> list[Path]:
    return sorted((path.parent / "backups").glob("*"))


def break_migrations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str) -> None:
    """One more migration after those there are; ``step`` is its body."""
    scripts = tmp_path / "migrations"
    shipped = Path(migrate.__file__).parent / "migrations"
    shutil.copytree(shipped, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    newest = max(path.name[:4] for path in (scripts / "versions").glob("0*.py"))
    text = f'import sqlalchemy as sa\nfrom alembic import op\nrevision = "9000"\ndown_revision = "{newest}"\n'
    (scripts / "versions/9000_broken.py").write_text(f"{text}\ndef upgrade() -> None:\n    {step}\n")
    monkeypatch.setattr(migrate, "SCRIPTS", scripts)


def test_what_the_first_schema_held_is_all_there(path: Path) -> None:
    cluster = opened(path)
    states = {job.display_name: job.state.name for job in cluster.jobs.values()}
    assert states == {
        "sh -c exit 0": "SUCCEEDED",
        "sh -c exit 7": "FAILED",
        "sleep 600": "RUNNING",
        "sleep 601": "QUEUED",
    }
    failed = next(job for job in cluster.jobs.values() if job.state.name == "FAILED")
    ends = {
        generation: [(e.reason, e.exit_code) for e in ends.values()] for generation, ends in failed.exits.items()
    }
    assert ends == {1: [(ExitReason.NONZERO_EXIT, 7)], 2: [(ExitReason.NONZERO_EXIT, 7)]}
    running = next(job for job in cluster.jobs.values() if job.state.name == "RUNNING")
    assert {place.host for place in running.places} == {"host-0", "host-1"}
    held = {name: sorted(host.allocations) for name, host in cluster.hosts.items()}
    assert held == {"host-0": [f"{running.id}/0"], "host-1": [f"{running.id}/1"]}
    assert cluster.hosts["host-1"].cordon_reason == "a fan"
    assert cluster.epoch == 2


def test_a_copy_from_before_is_kept_and_is_a_whole_store(path: Path) -> None:
    before = dump(path)
    opened(path)
    assert schema(path) > OLDEST
    [copy] = copies(path)
    assert copy.name.startswith(f"holdfast.db.schema-{OLDEST}.2")
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert dump(copy) == before
    again = path.with_name("restored.db")
    shutil.copy(copy, again)
    assert len(opened(again).jobs) == 4


def test_a_store_of_today_is_not_copied(path: Path) -> None:
    opened(path)
    opened(path)
    assert len(copies(path)) == 1


def test_a_new_store_is_not_copied(tmp_path: Path) -> None:
    opened(tmp_path / "state/holdfast.db")
    assert copies(tmp_path / "state/holdfast.db") == []


def test_only_the_newest_copies_are_kept(path: Path) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as db:
        made = [migrate.back_up(db, path, "0001", first + timedelta(seconds=number)) for number in range(5)]
    engine.dispose()
    assert copies(path) == made[-migrate.BACKUPS_KEPT :]


def test_a_copy_that_was_just_made_is_kept_though_the_clock_is_behind(path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as db:
        years = (2026, 2027, 2028, 2029, 2000)
        made = [migrate.back_up(db, path, "0001", datetime(year, 1, 1, tzinfo=UTC)) for year in years]
    engine.dispose()
    assert copies(path) == [made[-1], *made[-migrate.BACKUPS_KEPT : -1]]


@pytest.mark.parametrize(
    "step",
    [
        'op.execute("DROP TABLE no_such_table")',
        'op.drop_table("events"); op.execute("SELECT nonsense")',
    ],
)
def test_a_migration_that_fails_leaves_the_store_as_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = dump(path)
    with pytest.MonkeyPatch.context() as broken:
        break_migrations(broken, tmp_path, step)
        with pytest.raises(StoreError, match=r"from schema 0001 to 9000.*It is as it was") as refused:
            opened(path)
    [copy] = copies(path)
    assert str(copy) in str(refused.value)
    assert dump(path) == before
    assert len(opened(path).jobs) == 4


def test_a_migration_with_a_bug_leaves_the_store_as_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump(path)
    break_migrations(monkeypatch, tmp_path, 'op.drop_table("events"); [][1]')
    with pytest.raises(IndexError):
        opened(path)
    assert dump(path) == before


def test_without_room_for_a_copy_nothing_is_touched(path: Path) -> None:
    before = dump(path)
    (path.parent / "backups").write_text("in the way")
    with pytest.raises(StoreError, match=r"can't be copied to .*backups before"):
        opened(path)
    assert dump(path) == before


def test_a_store_of_a_newer_version_is_refused_and_neither_copied_nor_changed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as newer:
        break_migrations(newer, tmp_path, 'op.create_table("more", sa.Column("key", sa.Text))')
        opened(path)
    assert schema(path) == "9000"
    before, kept = dump(path), copies(path)
    with pytest.raises(StoreError, match=r"written by a newer version \(schema 9000\)"):
        opened(path)
    assert (dump(path), copies(path)) == (before, kept)


def test_a_new_store_has_the_tables_that_all_migrations_make(tmp_path: Path) -> None:
    opened(tmp_path / "new.db")
    with sa.create_engine(f"sqlite:///{tmp_path / 'migrated.db'}").connect() as database, database.begin():
        migrate._upgrade(database, "migrated.db", None)
    assert tables(tmp_path / "new.db") == tables(tmp_path / "migrated.db")


def tables(path: Path) -> dict[str, str]:
    """How each table and index was made, by its name; how Alembic words its own differs from version to version."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        made = database.execute("SELECT name, sql FROM sqlite_master WHERE tbl_name <> 'alembic_version'")
        return {name: " ".join((sql or "").split()) for name, sql in made}


def test_a_file_with_tables_of_something_else_is_refused_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE events (id INTEGER)")
    before = dump(path)
    with pytest.raises(StoreError, match=r"other\.db holds a table events that is not of a store"):
        opened(path)
    assert dump(path) == before


@pytest.fixture
def config(config: ControllerConfig) -> ControllerConfig:
    """Of a controller that finds the store that release 0.1 has left."""
    config.state_dir.mkdir(mode=0o700)
    config.database.write_bytes(gzip.decompress(OF_0_1.read_bytes()))
    return config


async def test_the_store_of_release_0_1_is_served(controller: Controller) -> None:
    jobs = job_stub(controller.channel("user/ann"))
    found = (await jobs.GetJob(job_pb2.GetJobRequest(id="a"))).job
    assert found.state == job_pb2.JOB_STATE_CANCELLED
    assert [hang.outcome for hang in found.hangs] == ["WOULD_RESTART", "RESTARTED", "BUDGET_SPENT"]
    async with asyncio.timeout(20):
        history = [event async for event in jobs.WatchJob(job_pb2.WatchJobRequest(id="a"))]
    assert [event.type for event in history][:3] == ["JobSubmitted", "JobQueued", "PlacementTried"]
    restart = next(event for event in history if event.type == "RestartDecided")
    assert restart.data["related"] == "workerpool0-0 rank 0"
    assert restart.data["end_reason"] == "SIGNALED"
