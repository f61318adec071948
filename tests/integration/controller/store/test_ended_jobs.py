"""Ended jobs in a store: a start has their heads, and reads a job whole when somebody asks for it."""

from __future__ import annotations

import threading

import pytest
from tests.integration.controller.store.places import Place
from tests.integration.controller.store.test_store import commit, folded, opened, record, records, same
from tests.integration.controller.store.test_sweep import deleted, life

from holdfast._session.reports import Exit, ExitReason
from holdfast.errors import StoreError
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.jobs import JobHead, head_of
from holdfast_controller.core.step.actions import ForgetJob
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import checksum
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.store import Store

HISTORY = [*life("a", 1.0), *life("b", 2.0), *life("c", 3.0)[:-2]]
"""Two jobs that have ended, and one that goes on."""


def snapshot(store: Store, cluster: Cluster) -> None:
    entities = [(f"job/{job.id}", codec.dump_entity(job)) for job in cluster.jobs.values()]
    store.call(store.snapshot, cluster.sequence, entities, heads_of(cluster.jobs.values())).result()


def filled(place: Place) -> None:
    store, _ = opened(place)
    commit(store, records(HISTORY))
    snapshot(store, folded(HISTORY))
    store.close()


def test_a_start_has_heads_of_jobs_that_have_ended_and_reads_them_whole(place: Place) -> None:
    filled(place)
    store, cluster = opened(place)
    assert set(cluster.jobs.whole) == {"c"}
    assert [type(each) for each in cluster.jobs.heads()][:2] == [JobHead, JobHead]
    assert same(cluster, folded(HISTORY))
    store.close()


def test_a_start_reads_the_snapshots_of_jobs_that_go_on_and_of_others_what_is_kept_beside_them(
    place: Place,
) -> None:
    filled(place)
    place.sql("UPDATE snapshots SET payload = '{}' WHERE entity = 'job/a'")
    store, cluster = opened(place)
    head = cluster.jobs.head("a")
    assert head == head_of(folded(HISTORY).jobs["a"])
    with pytest.raises(StoreError, match="snapshot of job/a is not what was written"):
        cluster.jobs.get("a")
    store.close()
    place.sql("UPDATE heads SET payload = '{}' WHERE entity = 'job/b'")
    with pytest.raises(StoreError, match="head of job/b is not what was written"):
        opened(place)


def test_a_job_of_which_no_head_was_written_is_read_from_its_snapshot(place: Place) -> None:
    filled(place)
    store, cluster = opened(place)
    again = [("job/a", codec.dump_entity(cluster.jobs["a"]))]
    store.call(store.snapshot, cluster.sequence, again).result()
    store.close()
    assert place.sql("SELECT entity FROM heads") == [("job/b",)]
    store, cluster = opened(place)
    assert set(cluster.jobs.whole) == {"c"} and same(cluster, folded(HISTORY))
    store.close()


def test_heads_of_another_build_are_made_again_from_the_snapshots(place: Place) -> None:
    filled(place)
    place.sql("UPDATE heads SET payload = '{}', checksum = 0")
    another = (codec.layout()[::-1], checksum("snapshot_layout", codec.layout()[::-1]))
    place.sql("UPDATE meta SET value = ?, checksum = ? WHERE key = 'snapshot_layout'", *another)
    compacted = ("compacted", "1", checksum("compacted", "1"))
    place.sql("INSERT INTO meta (key, value, checksum) VALUES (?, ?, ?)", *compacted)
    for _ in range(2):  # the second start reads what the first one has written
        store, cluster = opened(place)
        assert set(cluster.jobs.whole) == {"c"} and same(cluster, folded(HISTORY))
        store.close()
    assert {name for (name,) in place.sql("SELECT entity FROM heads WHERE checksum != 0")} == {"job/a", "job/b"}


def test_a_store_from_before_heads_gets_a_table_for_them(place: Place) -> None:
    filled(place)
    place.sql("DROP TABLE heads")
    place.sql("UPDATE alembic_version SET version_num = '0019'")
    for _ in range(2):
        store, cluster = opened(place)
        assert same(cluster, folded(HISTORY))
        snapshot(store, cluster)
        store.close()
    assert place.sql("SELECT count(*) FROM heads") == [(2,)]


def test_a_deleted_job_leaves_no_head(place: Place) -> None:
    filled(place)
    store, _ = opened(place)
    commit(store, records(deleted("b", 9.0), len(HISTORY) + 1))
    cluster = folded([*HISTORY, *deleted("b", 9.0)])
    store.call(store.commit, [], [ForgetJob("b", purged=True)]).result()
    snapshot(store, cluster)
    store.close()
    assert place.sql("SELECT entity FROM heads") == [("job/a",)]


def test_a_thread_beside_the_stores_own_may_ask(place: Place) -> None:
    filled(place)
    store, cluster = opened(place)
    found = []
    asking = threading.Thread(target=lambda: found.append(cluster.jobs["a"]))
    asking.start()
    asking.join(20)
    assert [job.id for job in found] == ["a"]
    store.close()


def test_what_happens_to_a_job_after_the_snapshot_changes_the_one_that_was_read(place: Place) -> None:
    filled(place)
    late = Exit(9, 1, 0, ExitReason.COMPLETED, 0)
    after: list[ev.Event] = [
        ev.LateExitFound(job_id="a", at=Wall(9.0), worker="workerpool0-0", exit=late),
        *deleted("b", 9.0),
    ]
    store, _ = opened(place)
    commit(store, records(after, len(HISTORY) + 1))
    store.close()
    store, cluster = opened(place)
    assert same(cluster, folded([*HISTORY, *after]))
    assert cluster.jobs["a"].late_exits == [late]
    assert "b" not in cluster.jobs and "b" in cluster.purged
    store.close()


def test_a_job_that_was_let_go_and_changes_again_is_in_the_next_snapshot(place: Place) -> None:
    filled(place)
    store, cluster = opened(place)
    late = ev.LateExitFound(
        job_id="a", at=Wall(9.0), worker="workerpool0-0", exit=Exit(9, 1, 0, ExitReason.COMPLETED)
    )
    commit(store, [record(len(HISTORY) + 1, late)])
    again = folded([*HISTORY, late])
    snapshot(store, again)
    store.close()
    store, cluster = opened(place)
    assert isinstance(cluster.jobs.head("a"), JobHead)
    assert len(cluster.jobs["a"].late_exits) == 1
    store.close()


def test_what_is_restored_from_a_backup_reads_them_too(place: Place) -> None:
    filled(place)
    store, _ = opened(place)
    cluster = store.call(store.continue_from_backup, Wall(99.0), Wall(50.0)).result()
    assert set(cluster.jobs.whole) == {"c"}
    assert cluster.jobs["c"].unreconciled is not None and cluster.jobs["a"].unreconciled is None
    store.close()


def test_a_snapshot_that_was_damaged_meanwhile_is_named(place: Place) -> None:
    filled(place)
    store, cluster = opened(place)

    def damage() -> None:
        store.engine.connection.exec_driver_sql("UPDATE snapshots SET payload = '{}' WHERE entity = 'job/a'")

    store.call(store.transaction, lambda _: damage()).result()
    with pytest.raises(StoreError, match="snapshot of job/a is not what was written"):
        cluster.jobs.get("a")
    assert cluster.jobs["b"].id == "b"
    store.close()
