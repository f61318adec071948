"""A leap of the controller's clock is no time: ledgers and hosts' records go on as if it had been right all along."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.controller.ledger.goodput_stories import STORIES
from tests.unit.controller.ledger.goodput_story import EPOCH_S, Story

from holdfast._base.xids import Repair
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.goodput.host_record import open_time
from holdfast_controller.core.goodput.leap import leap_of_watch
from holdfast_controller.core.goodput.progress import recorded
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Category, HostFact, Interval, ProgressWatch, Reached
from holdfast_controller.core.model.hosts.host import GpuFault, Inventory

DAY_S = 86_400.0
LEAPS = {"forward": (DAY_S, DAY_S), "back": (-DAY_S, -DAY_S), "forth and back": (3650 * DAY_S, -3650 * DAY_S)}
OF_ONE_CLOCK = {"days_are_cut_at_midnight", "upgrade_begins_the_ledger"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [name for name in STORIES if name not in OF_ONE_CLOCK])
def test_story_adds_up_though_the_clock_leaps_after_any_event(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, take = random.Random(f"{name} {seed}"), Story.take

    def leaping(self: Story, at_s: float, kind: Callable[..., Any], **fields: Any) -> None:
        take(self, at_s, kind, **fields)
        if dice.random() < 0.4 and self.generation:
            by_s = dice.choice((-7 * DAY_S, -11.5, 3600.25, 30 * DAY_S))
            self.start_s += by_s
            take(self, at_s, ev.ClockLeapt, by_s=by_s)

    monkeypatch.setattr(Story, "take", leaping)
    STORIES[name]()


@pytest.mark.parametrize("leaps", [(0.0, 0.0), *LEAPS.values()], ids=["none", *LEAPS])
def test_a_leap_of_the_clock_is_no_time_of_a_host(leaps: tuple[float, float]) -> None:
    cluster, by_s = Cluster(), 0.0

    def take(at_s: float, kind: Callable[..., Any], **fields: Any) -> None:
        fold(cluster, kind(at=Wall(EPOCH_S + at_s + by_s), **fields))

    def leap(at_s: float, more_s: float) -> None:
        nonlocal by_s
        by_s += more_s
        take(at_s, ev.ClockLeapt, by_s=more_s)

    inventory = Inventory(64, 1 << 39, ())
    take(0, ev.HostJoined, host="h", address="", boot_id="b", agent_version="1", inventory=inventory)
    leap(1_000, leaps[0])
    take(2_000, ev.HostLost, host="h", silent_s=40.0)
    leap(2_500, leaps[1])
    take(3_000, ev.HostReturned, host="h")
    fault = GpuFault("XID_95", Repair.RESET, Wall(EPOCH_S + 4_000 + by_s))
    take(4_000, ev.GpuCondemned, host="h", gpu="G", index=0, fault=fault)
    leap(4_500, -leaps[1])
    take(5_000, ev.GpuCleared, host="h", gpu="G", causes=("XID_95",), index=0, by="", why="")
    ms: Counter[HostFact] = Counter()
    host = cluster.hosts["h"]
    for booking in (*cluster.bookings.hosts, *open_time(host, round((EPOCH_S + 6_000 + by_s) * 1000))):
        assert booking.since == EPOCH_S * 1000
        ms[booking.what] += booking.end - booking.start
    assert ms == {
        HostFact.UP: 1_960_000 + 3_000_000,
        HostFact.LOST: 0,
        HostFact.GPU: 0,
        HostFact.REPAIR: 1_040_000 + 1_000_000,
    }


def test_progress_that_was_gathered_leaps_along() -> None:
    watch = ProgressWatch(1, since=5, newest=90, began=10, moved=80, works_since=8, doing_since=70)
    watch.first, watch.last, watch.stretch_from = Reached(10, 1.0), Reached(80, 8.0), Reached(60, 6.0)
    watch.saved, watch.writing = [Reached(50, 5.0)], {0: Reached(70, 7.0)}
    watch.apart, watch.pace = [Interval(20, 30, Category.SAVE)], [Reached(10, 1.0)]
    before = recorded(watch, 5, 90)
    assert before is not None
    leap_of_watch(watch, 1_000)
    after = recorded(watch, 1_005, 1_090)
    assert after is not None
    assert (after.began, after.moved, after.first, after.last) == (
        1010,
        1080,
        Reached(1010, 1.0),
        Reached(1080, 8.0),
    )
    assert (after.saved, after.apart) == ((Reached(1050, 5.0),), (Interval(1020, 1030, Category.SAVE),))
    assert (watch.since, watch.newest, watch.works_since, watch.doing_since) == (1005, 1090, 1008, 1070)
    assert (watch.stretch_from, watch.writing) == (Reached(1060, 6.0), {0: Reached(1070, 7.0)})
    assert (watch.pace, watch.stepless) == ([Reached(1010, 1.0)], 0)
