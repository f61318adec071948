"""What the store no longer needs goes in portions; a crash in the middle leaves a whole store."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from tests.integration.controller.store.places import Place
from tests.integration.controller.store.test_store import commit, folded, opened, record, same
from tests.unit.controller.job_examples import GANG, INVENTORY

from holdfast._base import failpoints
from holdfast.errors import StoreError
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.actions import ForgetJob, KeepEvidence
from holdfast_controller.shell.store import codec, sweep
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.store import Store

HELD = 700
"""Events of each job, more than one portion drops."""


def host_events(count: int) -> list[ev.Event]:
    joined: list[ev.Event] = [
        ev.HostJoined(
            host="h1", at=Wall(1.0), address="10.0.0.1", boot_id="boot", agent_version="0.1", inventory=INVENTORY
        )
    ]
    return joined + [ev.HostCordoned(host="h1", at=Wall(2.0 + n), reason=str(n), by="ann") for n in range(count)]


def life(job: str, at: float) -> list[ev.Event]:
    begin = ev.JobSubmitted(
        job_id=job, at=Wall(at), owner="ann", request_id="", display_name=job, labels={}, gang=GANG, spec_json="{}"
    )
    held = [ev.JobHeld(job_id=job, at=Wall(at), by="ann", until=None) for _ in range(HELD)]
    ended = ev.JobEnded(job_id=job, at=Wall(at), state=JobState.CANCELLED)
    return [begin, *held, ev.JobEnding(job_id=job, at=Wall(at), outcome=JobState.CANCELLED), ended]


def deleted(job: str, at: float) -> list[ev.Event]:
    return [
        ev.JobDeleted(job_id=job, at=Wall(at), by="ann", with_output=True),
        ev.JobPurged(job_id=job, at=Wall(at)),
    ]


EVENTS = [*host_events(600), *life("a", 1000.0), *life("b", 1001.0), *deleted("a", 1002.0)]


def filled(place: Path | Place) -> Store:
    """A store with two jobs that have ended, of which one was deleted and had evidence."""
    store, _ = opened(place)
    batch = [record(number, event) for number, event in enumerate(EVENTS, 1)]
    commit(store, batch[:-2])
    evidence = KeepEvidence("a", 1, "workerpool0-0", b"e" * 5000, b"s" * 5000, b"d" * 5000)
    store.call(store.commit, [], [evidence, KeepEvidence("b", 1, "workerpool0-0", b"kept")]).result()
    store.call(store.commit, batch[-2:], [ForgetJob("a", purged=False), ForgetJob("a", purged=True)]).result()
    return store


def snapshot(store: Store, upto: int) -> None:
    cluster = folded(EVENTS[:upto])
    entities = [(f"job/{job.id}", codec.dump_entity(job)) for job in cluster.jobs.values()]
    entities += [(f"host/{host.name}", codec.dump_entity(host)) for host in cluster.hosts.values()]
    entities.append(("people", codec.dump_entity(cluster.people)))
    if "a" not in cluster.jobs:
        entities.append(("job/a", ""))
    store.call(store.snapshot, upto, entities, heads_of(cluster.jobs.values())).result()


def swept(store: Store, before: float = 0.0) -> int:
    """Portions that it took."""
    for portion in range(1, 1000):
        if not store.call(store.sweep, before).result():
            return portion
    raise AssertionError("it never ends")


def counts(place: Place) -> dict[str, int]:
    found = {
        table: place.sql(f"SELECT count(*) FROM {table} WHERE job = 'a'")[0][0]
        for table in ("evidence", "samples", "dumps")
    }
    for entity in ("job/a", "job/b", "host/h1"):
        found[entity] = place.sql("SELECT count(*) FROM events WHERE entity = ?", entity)[0][0]
    return found


def reopened(place: Place) -> tuple[Cluster, dict[str, int]]:
    store, cluster = opened(place)
    cluster.jobs.bring(cluster.jobs)
    store.close()
    return cluster, counts(place)


def test_everything_of_a_deleted_job_goes_and_nothing_of_another(place: Place) -> None:
    store = filled(place)
    snapshot(store, len(EVENTS))
    swept(store)
    assert store.call(store.evidence, "b", 1).result() == [("workerpool0-0", b"kept")]
    store.close()
    cluster, found = reopened(place)
    assert found == {"evidence": 0, "samples": 0, "dumps": 0, "job/a": 0, "job/b": HELD + 3, "host/h1": 601}
    assert same(cluster, folded(EVENTS))
    assert "a" in cluster.purged, "its id stays taken"


def test_no_byte_of_a_deleted_job_stays_in_the_files_while_the_controller_runs(path: Path) -> None:
    store = filled(path)
    marker = b"e" * 1000

    def in_files() -> bool:
        return any(marker in file.read_bytes() for file in path.parent.glob(f"{path.name}*"))

    assert in_files()
    snapshot(store, len(EVENTS))
    swept(store)
    assert not in_files()
    assert b'"a"' not in b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}-wal"))
    store.close()


def test_of_history_that_a_clock_set_back_has_put_out_of_order_only_the_old_goes(place: Place) -> None:
    store, _ = opened(place)
    times = [100.0 + n for n in range(500)]
    times[200:301] = [5.0] * 101  # the middle, which is looked at first
    joined = host_events(0)
    cordons = [ev.HostCordoned(host="h1", at=Wall(at), reason="", by="ann") for at in times]
    commit(store, [record(number, event) for number, event in enumerate([*joined, *cordons], 1)])
    store.call(store.snapshot, 501, []).result()

    swept(store, before=50.0)

    store.close()
    left = [at for (at,) in place.sql("SELECT at FROM events WHERE entity = ? ORDER BY sequence", "host/h1")]
    assert [at for at in left if at >= 50.0] == [at for at in times if at >= 50.0]
    assert 1.0 not in left


def test_events_wait_for_the_snapshot_that_contains_them(place: Place) -> None:
    store = filled(place)
    snapshot(store, len(EVENTS) - 1)
    swept(store)
    assert store.call(store.waits_for_snapshot).result()
    store.close()
    cluster, found = reopened(place)
    assert (found["job/a"], found["evidence"]) == (HELD + 5, 0)
    assert same(cluster, folded(EVENTS))


def test_job_that_was_purged_before_a_restart_is_in_no_later_snapshot(place: Place) -> None:
    store = filled(place)
    snapshot(store, len(EVENTS) - 2)
    store.close()
    store, cluster = opened(place)
    assert "a" not in cluster.jobs
    # What has changed since the start, as the driver has it: it knows nothing of a job that was gone by then.
    store.call(store.snapshot, len(EVENTS), [("people", codec.dump_entity(cluster.people))]).result()
    swept(store)
    store.close()
    cluster, found = reopened(place)
    assert same(cluster, folded(EVENTS))
    assert found["job/a"] == 0


def test_old_history_of_hosts_goes_and_that_of_jobs_stays(place: Place) -> None:
    store = filled(place)
    snapshot(store, len(EVENTS))
    swept(store, before=302.0)
    store.close()
    cluster, found = reopened(place)
    assert (found["host/h1"], found["job/b"]) == (300, HELD + 3)
    assert same(cluster, folded(EVENTS))


def test_compacted_log_of_another_build_begins_with_the_snapshots(place: Place) -> None:
    store = filled(place)
    snapshot(store, len(EVENTS))
    swept(store)
    store.close()
    noted = zlib.crc32(repr(("snapshot_layout", "older")).encode())
    place.sql("UPDATE meta SET value = 'older', checksum = ? WHERE key = 'snapshot_layout'", noted)
    place.sql("UPDATE snapshots SET payload = replace(payload, ',\"output_on\":[]', ''), checksum = 0")
    for entity, payload in place.sql("SELECT entity, payload FROM snapshots"):
        checksum = zlib.crc32(repr((entity, payload)).encode())
        place.sql("UPDATE snapshots SET checksum = ? WHERE entity = ?", checksum, entity)
    for _ in range(2):  # the second start finds the layout of this build
        cluster, _ = reopened(place)
        assert same(cluster, folded(EVENTS))


@pytest.mark.parametrize("point", ["controller.sweep.before", "controller.sweep.written", "controller.sweep.after"])
def test_crash_in_any_portion_leaves_the_same_state_and_the_next_start_goes_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    store = filled(place)
    snapshot(store, len(EVENTS))
    store.close()
    monkeypatch.setattr(failpoints, "_DIRECTORY", str(tmp_path))
    crashes, more = 0, True
    while more:
        store, cluster = opened(place)
        assert same(cluster, folded(EVENTS))
        (tmp_path / point).write_text("error")
        with pytest.raises(StoreError, match="cannot be written"):
            store.call(store.sweep, 302.0).result()
        crashes += 1
        # What follows the crash gets one portion further, and no more than that.
        more = store.call(store.sweep, 302.0).result()
        store.close()
    assert crashes > 3
    cluster, found = reopened(place)
    assert found == {"evidence": 0, "samples": 0, "dumps": 0, "job/a": 0, "job/b": HELD + 3, "host/h1": 300}


def test_file_shrinks_when_much_of_it_is_free(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "FREE_PAGES_KEPT", 16)
    store = filled(path)
    for worker in range(20):
        piece = KeepEvidence("a", 1, f"workerpool0-{worker}", bytes(200_000))
        store.call(store.commit, [], [piece]).result()
    snapshot(store, len(EVENTS))
    portions = swept(store)
    assert portions > 10, "each of them is small"
    store.close()
    assert path.stat().st_size < 2_000_000, "without the evidence of 4 MB"
