"""When a controller looks for cycles of references: short looks at what is new, and seldom one at all."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast_controller.shell.main import cycles


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Loop:
    """One whose timers ring when the test says so."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.call: Any = None
        self.cancelled = 0

    def call_later(self, wait_s: float, call: Any) -> Any:
        self.waits.append(wait_s)
        self.call = call
        return self

    def cancel(self) -> None:
        self.cancelled += 1


async def test_all_objects_are_looked_at_by_the_clock_and_the_longer_it_takes_the_seldomer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, now, took = Loop(), 0.0, iter([0.001, 0.75])

    def look() -> None:
        nonlocal now
        now += next(took)

    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    looks = cycles.Cycles(look, lambda: now)
    looks.begin()
    loop.call()
    loop.call()
    assert loop.waits == [cycles.LEAST_S, cycles.LEAST_S, pytest.approx(0.75 * cycles.SHARE)]
    looks.begin()
    assert loop.cancelled == 1, "it looks once, also where it begins anew"


class Node:
    other: Node


def test_an_old_cycle_waits_for_a_look_at_all_however_much_is_new() -> None:
    cycles.look_at_what_is_new()
    one, two = Node(), Node()
    one.other, two.other = two, one
    gone = weakref.ref(one)
    gc.collect(1)
    del one, two
    kept = [[number] for number in range(300_000)]
    assert gone() is not None
    del kept
    gc.collect()
    assert gone() is None
