"""What the store keeps beside the log: evidence of hangs, within bounds, and what was learned of jobs' rhythms."""

from __future__ import annotations

import pytest
from tests.integration.controller.store.places import Place

from holdfast.hang.judge.state import begin
from holdfast.hang.records.persistence import resting
from holdfast_controller.core.model.cluster import Answer
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.step.actions import KeepAnswer, KeepEvidence, KeepWatch
from holdfast_controller.shell.store import kept_rows
from holdfast_controller.shell.store.store import Store


def opened(place: Place) -> Store:
    store = Store(place.engine())
    store.call(store.open).result()
    return store


def test_evidence_of_the_newest_hangs_is_kept_and_no_more_of_a_job_than_has_room(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "EVIDENCE_HANGS", 3)
    monkeypatch.setattr(kept_rows, "EVIDENCE_BYTES", 1000)
    store = opened(place)
    try:

        def kept(job: str, hang: int) -> list[str]:
            return [worker for worker, _ in store.call(store.evidence, job, hang).result()]

        def keep(hang: int, size: int, *workers: str, job: str = "a") -> None:
            pieces = [KeepEvidence(job, hang, worker, b"x" * size) for worker in workers]
            store.call(store.commit, [], pieces).result()

        keep(1, 900, "w0", job="b")
        for hang in range(1, 6):
            keep(hang, 100, "w0", "w1")
        assert [kept("a", hang) for hang in range(1, 6)] == [[], [], ["w0", "w1"], ["w0", "w1"], ["w0", "w1"]]
        keep(6, 400, "w0")
        assert [kept("a", hang) for hang in range(3, 7)] == [[], ["w0", "w1"], ["w0", "w1"], ["w0"]]
        keep(7, 500, "w0", "w1", "w2")
        assert [kept("a", hang) for hang in range(5, 8)] == [[], [], ["w0", "w1"]]
        assert kept("b", 1) == ["w0"]
    finally:
        store.close()


def watch_of(generation: int) -> KeptWatch:
    return KeptWatch(generation, resting(begin(100.0 * generation), 500.0))


def kept_watches(place: Place) -> dict[str, KeptWatch]:
    store = opened(place)
    try:
        found: dict[str, KeptWatch] = store.call(store.kept_watches).result()
        return found
    finally:
        store.close()


def test_watches_are_kept_by_job_until_they_are_given_up(place: Place) -> None:
    store = opened(place)
    first = [KeepWatch("a", watch_of(1)), KeepWatch("b", watch_of(1)), KeepWatch("c", watch_of(1))]
    try:
        store.call(store.commit, [], first).result()
        store.call(store.commit, [], [KeepWatch("a", watch_of(2)), KeepWatch("b", None)]).result()
    finally:
        store.close()
    assert kept_watches(place) == {"a": watch_of(2), "c": watch_of(1)}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE watches SET payload = replace(payload, '1', '2') WHERE job = 'a'",
        "UPDATE watches SET payload = 'x' WHERE job = 'a'",
        "UPDATE watches SET checksum = 1 WHERE job = 'a'",
    ],
)
def test_watch_that_cannot_be_read_is_left_out_and_the_others_are_there(
    place: Place, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(place)
    try:
        store.call(store.commit, [], [KeepWatch(job, watch_of(1)) for job in "ab"]).result()
    finally:
        store.close()
    place.sql(damage)
    assert kept_watches(place) == {"b": watch_of(1)}
    assert "hang_watch.unreadable" in [entry.getMessage() for entry in caplog.records]


def test_evidence_is_kept_by_hang_and_worker_and_the_newest_counts(place: Place) -> None:
    store = opened(place)
    pieces = [
        KeepEvidence("a", 1, "w1", b"old"),
        KeepEvidence("a", 1, "w0", b""),
        KeepEvidence("a", 2, "w0", b"other hang"),
        KeepEvidence("b", 1, "w0", b"other job"),
        KeepEvidence("a", 1, "w1", b"new"),
    ]
    try:
        store.call(store.commit, [], pieces).result()
    finally:
        store.close()
    store = opened(place)
    try:
        assert store.call(store.evidence, "a", 1).result() == [("w0", b""), ("w1", b"new")]
        assert store.call(store.evidence, "a", 3).result() == []
    finally:
        store.close()


def test_samples_of_a_hang_are_the_first_that_came_and_those_of_the_newest_hangs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first show how it began. Evidence of more hangs is kept than samples."""
    monkeypatch.setattr(kept_rows, "SAMPLES_HANGS", 2)
    monkeypatch.setattr(kept_rows, "SAMPLES_BYTES", 100)
    store = opened(place)

    def samples(hang: int) -> dict[str, bytes]:
        found: dict[str, bytes] = store.call(store.attachments, "a", hang).result()[0]
        return found

    try:
        pieces = [KeepEvidence("a", 1, "w0", b"e", b"began"), KeepEvidence("a", 1, "w0", b"e", b"later")]
        store.call(store.commit, [], [*pieces, KeepEvidence("a", 1, "w1", b"e")]).result()
        assert samples(1) == {"w0": b"began"}
        pieces = [KeepEvidence("a", 1, "w0", b"e", dumps=b"old"), KeepEvidence("a", 1, "w0", b"e", dumps=b"new")]
        store.call(store.commit, [], pieces).result()
        assert store.call(store.attachments, "a", 1).result() == ({"w0": b"began"}, {"w0": b"new"})
        for hang in (2, 3):
            store.call(store.commit, [], [KeepEvidence("a", hang, "w0", b"e", b"x" * 50)]).result()
        assert [list(samples(hang)) for hang in (1, 2, 3)] == [[], ["w0"], ["w0"]]
        store.call(store.commit, [], [KeepEvidence("a", 4, "w0", b"e", b"x" * 90)]).result()
        assert [list(samples(hang)) for hang in (2, 3, 4)] == [[], [], ["w0"]]
        assert [worker for worker, _ in store.call(store.evidence, "a", 1).result()] == ["w0", "w1"]
    finally:
        store.close()


def test_answers_are_kept_by_caller_and_id_and_the_newest_of_them_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "KEPT_ANSWERS", 2)
    store = opened(place)
    try:
        for number in range(3):
            store.call(store.commit, [], [KeepAnswer("ann", f"r-{number}", Answer(f"d{number}", "job-1"))]).result()
    finally:
        store.close()
    store = Store(place.engine())
    try:
        answers = store.call(store.open).result().answers
    finally:
        store.close()
    assert answers == {("ann", "r-1"): Answer("d1", "job-1"), ("ann", "r-2"): Answer("d2", "job-1")}
    assert list(answers) == [("ann", "r-1"), ("ann", "r-2")], "the oldest first, as it is the first to go"
