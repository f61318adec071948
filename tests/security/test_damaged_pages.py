"""Bits of the controller's database are flipped: it refuses to start, or it starts with what it had."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.store.test_store import commit, folded, opened, records
from tests.unit.controller.examples import EVENTS

from holdfast.errors import StoreError
from holdfast_controller.core.model.cluster import Answer
from holdfast_controller.core.step.actions import ForgetJob, KeepAnswer
from holdfast_controller.shell.store import codec, high_water
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.store import Store

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/holdfast.db"


@pytest.fixture
def store(path: Path) -> Path:
    """A store with a bit of everything that a start relies on: a log, snapshots, answers, a deleted job."""
    made, _ = opened(path)
    commit(made, records()[:-3])
    state = folded(EVENTS[:-3])
    entities = [(f"job/{job.id}", codec.dump_entity(job)) for job in state.jobs.values()]
    entities += [(f"host/{host.name}", codec.dump_entity(host)) for host in state.hosts.values()]
    entities += [(f"schedule/{key}", codec.dump_entity(each)) for key, each in state.schedules.items()]
    entities += [(f"template/{key}", codec.dump_entity(each)) for key, each in state.templates.items()]
    entities.append(("people", codec.dump_entity(state.people)))
    made.call(made.snapshot, len(EVENTS) - 3, entities, heads_of(state.jobs.values())).result()
    kept = [KeepAnswer("user/ann", f"request-{n}", Answer(f"digest-{n}", f"job-{n}")) for n in range(8)]
    made.call(made.commit, records()[-3:], [*kept, ForgetJob("gone-1", purged=True)]).result()
    made.close()
    return path


def state_of(made: Store, cluster: Any) -> tuple[object, ...]:
    """All that a controller goes by after its start."""
    durable = (cluster.jobs, cluster.hosts, cluster.people, cluster.queue, cluster.requests, cluster.answers)
    key = made.call(made.secret_key).result()
    return cluster.sequence, "gone-1" in cluster.purged, key, *durable


@contextlib.contextmanager
def flipped(path: Path, offset: int, mask: int) -> Iterator[None]:
    sound, position = path.read_bytes(), high_water.path_of(path).read_bytes()
    damaged = bytearray(sound)
    damaged[offset] ^= mask
    path.write_bytes(damaged)
    try:
        yield
    finally:
        for rest in path.parent.glob("holdfast.db*"):
            rest.unlink()
        path.write_bytes(sound)
        high_water.path_of(path).write_bytes(position)


def pages_of(path: Path, *tables: str) -> Iterator[int]:
    """Numbers of the first page of each table and of each of its indexes."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table in tables:
            query = "SELECT rootpage - 1 FROM sqlite_master WHERE tbl_name = ?"
            yield from (page for (page,) in database.execute(query, (table,)))


def checked(path: Path, offsets: list[int], mask: int) -> int:
    """How many of the flips were refused. Fails for one that was taken for the truth."""
    made, cluster = opened(path)
    expected = state_of(made, cluster)
    made.close()
    refused = 0
    for offset in offsets:
        with flipped(path, offset, mask):
            problem = None
            try:
                made, cluster = opened(path)
            except StoreError as error:
                problem = error
            if problem is not None:
                assert problem.fix, "what to do is said"
                refused += 1
                continue
            try:
                found = state_of(made, cluster)
            finally:
                made.close()
            assert found == expected, f"byte {offset} of page {offset // PAGE} has changed the state"
    return refused


def test_what_the_store_knows_of_itself_is_never_read_as_something_else(store: Path) -> None:
    """One bit, so that digits stay digits and names stay names."""
    content = store.read_bytes()
    pages = sorted(set(pages_of(store, "meta", "answers", "deleted_jobs")))
    offsets = [at for page in pages for at in range(page * PAGE, (page + 1) * PAGE) if content[at]]
    assert len(offsets) > 500
    refused = checked(store, offsets[::13], 1)
    assert refused > len(offsets[::13]) // 3


def test_pages_of_the_log_and_of_snapshots_are_never_read_as_something_else(store: Path) -> None:
    content = store.read_bytes()
    offsets = [at for at in range(len(content)) if content[at]]
    assert checked(store, offsets[:: len(offsets) // 40], 1) > 10
