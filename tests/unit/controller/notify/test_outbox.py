"""Letters: order, pauses, who gives way to whom, and when it is given up. All times are virtual."""

from __future__ import annotations

import pytest

from holdfast_controller.core import outbox
from holdfast_controller.core.outbox import AT_ONCE, IN_TROUBLE, Outbox, OutboxEntry


def entry(number: int, sink: str = "a") -> OutboxEntry:
    return OutboxEntry(number, sink, "job", "FAILED", "{}")


def numbers(entries: list[OutboxEntry]) -> list[int]:
    return [each.sequence for each in entries]


def test_one_receiver_gets_its_letters_one_after_another() -> None:
    boxes = Outbox(60)
    for number in (1, 2):
        assert boxes.put(entry(number), 0) == []
    assert numbers(boxes.take(0)) == [1]
    assert boxes.take(0) == []
    boxes.delivered(entry(1))
    assert numbers(boxes.take(0)) == [2]
    boxes.delivered(entry(2))
    assert (boxes.take(0), len(boxes), boxes.next_due(0)) == ([], 0, None)


def test_pauses_double_up_to_five_minutes_and_the_letter_stays_first() -> None:
    boxes, now, pauses = Outbox(1e9), 0.0, []
    boxes.put(entry(1), now)
    boxes.put(entry(2), now)
    for _ in range(12):
        assert numbers(boxes.take(now)) == [1]
        assert boxes.failed(entry(1), now) == []
        due = boxes.next_due(now)
        assert due is not None and boxes.take(due - 0.001) == []
        pauses.append(due - now)
        now = due
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_success_ends_the_pauses() -> None:
    boxes = Outbox(60)
    for number in (1, 2):
        boxes.put(entry(number), 0)
    boxes.take(0)
    boxes.failed(entry(1), 0)
    assert numbers(boxes.take(1)) == [1]
    boxes.delivered(entry(1))
    assert numbers(boxes.take(1)) == [2]


def test_letters_that_waited_too_long_are_given_up_at_a_failure_and_not_before() -> None:
    boxes = Outbox(10)
    for number, at in ((1, 0.0), (2, 5.0), (3, 9.0)):
        boxes.put(entry(number), at)
    boxes.take(9)
    assert boxes.failed(entry(1), 9.5) == []
    assert numbers(boxes.take(16)) == [1]
    assert numbers(boxes.failed(entry(1), 16)) == [1, 2]
    assert numbers(boxes.take(100)) == [3]


def test_receiver_that_is_gone_for_good_loses_all_its_letters() -> None:
    boxes = Outbox(1e9)
    for number in (1, 2):
        boxes.put(entry(number), 0)
    boxes.take(0)
    assert numbers(boxes.failed(entry(1), 0, for_good=True)) == [1, 2]
    assert len(boxes) == 0


def test_any_number_of_dead_receivers_leaves_room_for_the_living() -> None:
    boxes = Outbox(1e9)
    dead = [entry(number, f"dead-{number}") for number in range(50)]
    for each in dead:
        boxes.put(each, 0)
    tried: set[str] = set()
    while len(tried) < len(dead):
        taken = boxes.take(0)
        assert 0 < len(taken) <= AT_ONCE
        for each in taken:
            tried.add(each.sink)
            boxes.failed(each, 0)
    boxes.put(entry(100, "alive"), 10)
    # All have failed: those in trouble hold their few places, and no more, for as long as they like.
    taken = boxes.take(10)
    assert len(taken) == IN_TROUBLE + 1 and "alive" in {each.sink for each in taken}
    boxes.put(entry(101, "alive-too"), 10)
    assert numbers(boxes.take(10)) == [101]


def test_what_there_is_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 2)
    monkeypatch.setattr(outbox, "MAX_ENTRIES", 3)
    boxes = Outbox(60)
    assert [numbers(boxes.put(entry(n), 0)) for n in range(3)] == [[], [], [2]]
    assert [numbers(boxes.put(entry(n, "b"), 0)) for n in range(2)] == [[], [1]]
    boxes.take(0)
    boxes.delivered(entry(0))
    assert boxes.put(entry(9, "b"), 0) == []


def test_a_user_who_fills_all_the_room_gives_way_to_others_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_ENTRIES", 6)
    boxes = Outbox(60)
    for number in range(6):
        assert boxes.put(entry(number, f"dead-{number}"), 0, "mallory") == []
    assert numbers(boxes.put(entry(6, "dead-6"), 0, "mallory")) == [6]
    assert numbers(boxes.put(entry(7, "ann"), 0, "ann")) == [5]
    assert numbers(boxes.put(entry(8), 0)) == [4], "what the cluster tells has a share of its own"
    assert numbers(boxes.put(entry(9, "ann"), 0, "ann")) == [3]
    assert numbers(boxes.put(entry(10, "ann"), 0, "ann")) == [10], "three and two: neither has far more"
    assert len(boxes) == 6
    assert numbers(boxes.take(0)) == [0, 1, 2, 7, 8]


def test_a_receiver_of_several_users_is_shared_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", 3)
    boxes = Outbox(60)
    for number in range(3):
        boxes.put(entry(number), 0, "mallory")
    assert numbers(boxes.take(0)) == [0]
    assert numbers(boxes.put(entry(3), 0, "ann")) == [2]
    boxes.delivered(entry(0))
    for number in (1, 3):
        assert numbers(boxes.take(0)) == [number]
        boxes.delivered(entry(number))
    assert len(boxes) == 0 and boxes.next_due(0) is None


def test_what_is_being_delivered_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_ENTRIES", 2)
    boxes = Outbox(60)
    for number in range(2):
        boxes.put(entry(number, f"dead-{number}"), 0, "mallory")
    assert numbers(boxes.take(0)) == [0, 1]
    assert numbers(boxes.put(entry(2, "ann"), 0, "ann")) == [2]
    for number in range(2):
        assert boxes.failed(entry(number, f"dead-{number}"), 0) == []
    assert numbers(boxes.put(entry(3, "ann"), 0, "ann")) == [1]


def test_nothing_is_shown_of_what_a_letter_says() -> None:
    assert "s3cret" not in repr(OutboxEntry(1, "a", "job", "FAILED", "s3cret"))
