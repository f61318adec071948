"""Changes since a place in the log, from memory alone."""

from __future__ import annotations

from holdfast_controller.shell.store.recent_changes import RecentChanges


def test_entities_after_a_place_are_named_once() -> None:
    recent = RecentChanges(10)
    recent.extend([(11, "job/a"), (12, "job/a"), (13, "host/h"), (14, "job/a")])
    assert recent.newest == 14
    assert recent.since(10) == {"job/a", "host/h"}
    assert recent.since(11) == {"job/a", "host/h"}
    assert recent.since(13) == {"job/a"}
    assert recent.since(14) == set()


def test_what_is_no_longer_or_not_yet_known_is_a_gap() -> None:
    recent = RecentChanges(10, most=2)
    recent.extend([(11, "job/a"), (12, "job/b"), (13, "job/c")])
    assert recent.since(9) is None and recent.since(10) is None and recent.since(15) is None
    assert recent.since(11) == {"job/b", "job/c"}


def test_a_long_run_of_one_entity_pushes_nothing_out() -> None:
    recent = RecentChanges(0, most=2)
    recent.extend([(1, "job/a"), *((number, "job/b") for number in range(2, 9_000))])
    assert recent.since(0) == {"job/a", "job/b"}
