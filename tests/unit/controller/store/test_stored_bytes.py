"""Sums of stored bytes by user, project and job, and who sees them."""

from __future__ import annotations

import pytest
from tests.unit.controller.job_examples import GANG

from holdfast.errors import StorageFull
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.store import stored_bytes
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.stored_bytes import ROW_BYTES, StoredBytes


def stored(project_most: int = 0) -> StoredBytes:
    cluster = Cluster()
    for number, owner in enumerate(("ann", "ann", "ben")):
        fold(
            cluster,
            ev.JobSubmitted(
                job_id=f"j{number}",
                at=Wall(1.0),
                owner=owner,
                request_id="",
                display_name="j",
                labels={},
                gang=GANG,
                spec_json="{}",
            ),
        )
    found = StoredBytes(cluster, project_most=project_most)
    for number in range(3):
        found.on_published([event(f"j{number}", 1000 * (number + 1))])
    return found


def event(job: str, size: int, kind: str = "JobSubmitted") -> Record:
    return Record(1, f"job/{job}", kind, 1, 1.0, "", "", "x" * size)


def sizes(found: StoredBytes, user: str, *, everything: bool = False, sees: str = "") -> dict[str, int]:
    pieces = found.shown(user, lambda name: name == sees, everything=everything)
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            return {use.subject: use.size for use in done.value}


def test_events_and_evidence_count_for_the_owner_and_the_project() -> None:
    found = stored()
    found.add("j0", evidence=50_000)
    found.add("gone", evidence=1)
    assert found.by_user == {"ann": 53_000 + 2 * ROW_BYTES, "ben": 3000 + ROW_BYTES}
    assert found.by_project[GANG.project] == 56_000 + 3 * ROW_BYTES


def test_evidence_that_was_dropped_counts_no_more() -> None:
    found = stored()
    found.add("j0", evidence=50_000)
    found.set_evidence({"j0": 10_000, "j2": 5})
    assert found.by_user == {"ann": 13_000 + 2 * ROW_BYTES, "ben": 3005 + ROW_BYTES}


def test_deleted_job_counts_no_more() -> None:
    found = stored()
    found.on_published([event("j0", 10, "JobDeleted")])
    assert found.by_user["ann"] == 2000 + ROW_BYTES
    assert "j0" not in found.jobs


def test_users_see_their_own_and_admins_all() -> None:
    found = stored()
    assert sizes(found, "ben") == {"user/ben": 3000 + ROW_BYTES, "job/j2": 3000 + ROW_BYTES}
    assert sizes(found, "eve") == {}
    assert sizes(found, "eve", sees=GANG.project).keys() == {
        f"project/{GANG.project}",
        "job/j0",
        "job/j1",
        "job/j2",
    }
    assert {"user/ann", "user/ben", "job/j0"} <= sizes(found, "root", everything=True).keys()


def test_the_largest_jobs_are_found_in_pieces_while_jobs_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_bytes, "JOBS_AT_ONCE", 2)
    monkeypatch.setattr(stored_bytes, "LARGEST", 2)
    found = stored()
    found.on_published([event("j1", 1000)])
    pieces = found.shown("root", lambda _: True, everything=True)
    next(pieces)
    found.on_published([event("j0", 10, "JobDeleted")])
    with pytest.raises(StopIteration) as done:
        next(pieces)
    jobs = [(use.subject, use.size) for use in done.value.value if use.subject.startswith("job/")]
    assert jobs == [("job/j1", 3000 + 2 * ROW_BYTES), ("job/j2", 3000 + ROW_BYTES)]


def test_limit_of_a_project_is_held_too() -> None:
    found = stored(project_most=5000)
    found.check("ann", "another")
    with pytest.raises(StorageFull, match=f"The jobs of project {GANG.project} take"):
        found.check("eve", GANG.project)


def test_who_has_reached_a_limit_is_told_apart() -> None:
    assert stored().full() == frozenset(), "no limit"
    found = stored(project_most=1000)
    found.user_most = 3000 + 2 * ROW_BYTES
    assert found.full() == {"user/ann", f"project/{GANG.project}"}
