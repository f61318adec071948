"""Since when GPUs are idle: each reading counts, and what isn't known is never idle."""

from __future__ import annotations

from dataclasses import replace

from holdfast.hang.pipeline.features import GpuUse
from holdfast_agent.core.gpu.idle import IdleGpus
from holdfast_agent.core.gpu.signals import GpuSignals, HostGpus
from holdfast_agent.core.model.gpus import Blind

A, B = "GPU-a", "GPU-b"
IDLE, USED, UNKNOWN = GpuSignals(A, util_pct=4.9), GpuSignals(A, util_pct=5.0), GpuUse()
READ_S = 5.0


class Card:
    """One GPU that is read each five seconds from 100 s on, and looked at after each reading."""

    def __init__(self) -> None:
        self.idle, self.host, self.at_s = IdleGpus(5), HostGpus(), 100.0

    def reads(self, reading: GpuSignals | Blind | None, for_s: float) -> GpuUse:
        """The last look after so long of the same reading; None: no reading at all."""
        for _ in range(round(for_s / READ_S)):
            if reading is not None:
                self.host.take(reading if isinstance(reading, Blind) else ((reading,)), self.at_s)
            (found,) = self.idle.look([A], self.host, self.at_s)
            self.at_s += READ_S
        return found


def test_gpu_is_idle_since_its_first_reading_below_the_bound_once_that_has_lasted_a_minute() -> None:
    card = Card()
    assert card.reads(IDLE, 60) == GpuUse(known=True)
    assert card.reads(IDLE, 5) == GpuUse(known=True, idle_since_s=100.0)
    assert card.reads(IDLE, 7200) == GpuUse(known=True, idle_since_s=100.0)


def test_one_reading_at_the_bound_ends_it_and_the_time_begins_again() -> None:
    card = Card()
    card.reads(IDLE, 7200)
    assert card.reads(USED, 5) == GpuUse(known=True)
    assert card.reads(IDLE, 60) == GpuUse(known=True)
    assert card.reads(IDLE, 5) == GpuUse(known=True, idle_since_s=7305.0)


def test_driver_that_cannot_be_read_is_never_idle() -> None:
    for gone in (Blind("the driver hangs"), None, (())):
        card = Card()
        card.reads(IDLE, 600)
        if isinstance(gone, tuple):
            card.host.take(gone, card.at_s)
            assert card.idle.look([A], card.host, card.at_s) == (UNKNOWN,)
            continue
        assert card.reads(gone, 7200) == UNKNOWN
        assert card.reads(IDLE, 60) == GpuUse(known=True)


def test_one_missed_reading_is_no_gap_and_more_of_them_are() -> None:
    card = Card()
    card.reads(IDLE, 600)
    assert card.reads(None, 10).idle_since_s == 100.0
    assert card.reads(IDLE, 5).idle_since_s == 100.0
    assert card.reads(None, 25) == UNKNOWN
    assert card.reads(IDLE, 5) == GpuUse(known=True)


def test_readings_that_nobody_looked_at_end_it_as_missed_ones_do() -> None:
    card = Card()
    card.reads(IDLE, 600)
    for at_s in range(700, 1300, 5):  # the worker's samples fail meanwhile
        card.host.take(((USED,)), float(at_s))
    card.at_s = 1300.0
    assert card.reads(IDLE, 60) == GpuUse(known=True)
    assert card.reads(IDLE, 5).idle_since_s == 1300.0


def test_gpu_that_is_lost_reset_or_says_nothing_of_its_use_is_unknown() -> None:
    for reading in (replace(IDLE, lost=True), GpuSignals(A, problem="reset"), GpuSignals(A, energy_mj=5)):
        card = Card()
        card.reads(IDLE, 600)
        assert card.reads(reading, 5) == UNKNOWN
        assert card.reads(IDLE, 60) == GpuUse(known=True)


def test_each_gpu_has_its_own_time_in_the_order_of_the_launch() -> None:
    idle, host = IdleGpus(5), HostGpus()
    host.take(((IDLE, GpuSignals(B, util_pct=90))), 100.0)
    assert idle.look([B, A, "GPU-c"], host, 100.0) == (GpuUse(known=True), GpuUse(known=True), UNKNOWN)
    for at_s in (110.0, 120.0, 130.0, 140.0, 150.0, 160.0):
        host.take(((IDLE, GpuSignals(B, util_pct=90))), at_s)
        idle.look([A], host, at_s)
    assert idle.look([B, A, "GPU-c"], host, 160.0) == (GpuUse(known=True), GpuUse(True, 100.0), UNKNOWN)


def test_new_agent_has_seen_nothing() -> None:
    card = Card()
    card.reads(IDLE, 7200)
    card.idle = IdleGpus(5)
    assert card.reads(IDLE, 60) == GpuUse(known=True)
