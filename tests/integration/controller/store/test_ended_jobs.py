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
from holdfast_controller.core.model.jobs import JobHead
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.store import Store

HISTORY = [*life("a", 1.0), *life("b", 2.0), *life("c", 3.0)[:-2]]
"""Two jobs that have ended, and one that goes on."""


def snapshot(store: Store, cluster: Cluster) -> None:
    entities = [(f"job/{job.id}", codec.dump_entity(job)) for job in cluster.jobs.values()]
    store.call(store.snapshot, cluster.sequence, entities).result()


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
