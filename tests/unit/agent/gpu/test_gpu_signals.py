"""Which GPU readings are whose, and how their counters add up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.hang.pipeline.samples import GpuSample
from holdfast_agent.core.gpu.signals import GpuSignals, HostGpus, RankGpus, Xid, gpus_of, used_by
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.gpu.reader import SimulatedSource

A, B = "GPU-a", "GPU-b"
BUSY = GpuSignals(A, energy_mj=1_000_000, util_pct=97, memory_util_pct=40, pcie_bytes=100, nvlink_bytes=200)


def host(*readings: GpuSignals, at_s: float = 100.0) -> HostGpus:
    made = HostGpus()
    made.take((readings), at_s)
    return made


def test_counters_are_added_up_as_growth() -> None:
    known = host(BUSY)
    gpus = RankGpus(0.0)
    assert gpus.sample([A], known, 101.0) == (
        GpuSample(100.0, 0.0, 97, 40, 0.0, pcie_bytes=0.0, nvlink_bytes=0.0),
        False,
    )
    known.take(((replace(BUSY, energy_mj=1_700_000, pcie_bytes=150, nvlink_bytes=250),)), 105.0)
    first = gpus.sample([A], known, 105.5)
    assert first == (GpuSample(105.0, 700.0, 97, 40, 100.0, pcie_bytes=50.0, nvlink_bytes=50.0), False)
    assert gpus.sample([A], known, 107.0) == first


def test_counter_that_starts_over_and_device_that_joins_make_no_jump() -> None:
    known = host(BUSY)
    gpus = RankGpus(0.0)
    gpus.sample([A], known, 100.0)
    known.take(((replace(BUSY, energy_mj=5),)), 105.0)
    sample, _ = gpus.sample([A], known, 105.0)
    assert sample is not None and sample.energy_j == 0.0
    known.take(((replace(BUSY, energy_mj=2_005), replace(BUSY, uuid=B, energy_mj=9_000_000))), 110.0)
    sample, _ = gpus.sample([A, B], known, 110.0)
    assert sample is not None and sample.energy_j == 2.0


def test_figures_of_several_gpus_are_one_and_unknown_where_a_sum_lacks_a_part() -> None:
    one = GpuSignals(A, 1, sm_pct=10, memory_used_bytes=5, temperature_c=50, sm_clock_mhz=1900, throttle=4)
    two = GpuSignals(B, 1, sm_pct=90, memory_used_bytes=7, temperature_c=70, sm_clock_mhz=1200, throttle=8)
    sample, _ = RankGpus(0.0).sample([A, B], host(one, two), 100.0)
    assert sample is not None
    assert (sample.sm_pct, sample.memory_used_bytes, sample.temperature_c) == (90, 12, 70)
    assert (sample.sm_clock_mhz, sample.throttle) == (1200, 12)
    silent = GpuSignals(B, 1)
    sample, _ = RankGpus(0.0).sample([A, B], host(one, silent), 100.0)
    assert sample is not None
    assert (sample.memory_used_bytes, sample.temperature_c, sample.throttle) == (None, 50, 4)


def test_power_stands_in_for_energy() -> None:
    known = host(GpuSignals(A, power_mw=200_000))
    gpus = RankGpus(0.0)
    gpus.sample([A], known, 100.0)
    known.take(((GpuSignals(A, power_mw=300_000),)), 105.0)
    sample, _ = gpus.sample([A], known, 105.0)
    assert sample == GpuSample(105.0, energy_j=1500.0)


def test_device_without_any_figure_is_absent_not_idle_and_not_blind() -> None:
    assert RankGpus(0.0).sample([A], host(GpuSignals(A)), 100.0) == (None, False)
    assert RankGpus(0.0).sample([], host(BUSY), 100.0) == (None, False)


def test_refused_unknown_and_stale_readings_are_blindness() -> None:
    assert RankGpus(0.0).sample([A], host(GpuSignals(A, problem="no permission")), 100.0) == (None, True)
    assert RankGpus(0.0).sample([A, B], host(GpuSignals(B)), 100.0) == (None, True)
    known = host(BUSY)
    known.take(Blind("the GPU driver did not answer within 5 s"), 105.0)
    gpus = RankGpus(0.0)
    sample, blind = gpus.sample([A], known, 110.0)
    assert sample is not None and not blind
    assert gpus.sample([A], known, 116.0) == (None, True)
    never = HostGpus()
    never.take(Blind("no"), 100.0)
    assert RankGpus(0.0).sample([A], never, 100.0) == (None, True)


def test_lost_and_vanished_devices_are_lost() -> None:
    known = host(BUSY)
    gpus = RankGpus(0.0)
    gpus.sample([A], known, 100.0)
    known.take(((GpuSignals(A, lost=True, problem="lost"),)), 105.0)
    sample, blind = gpus.sample([A], known, 105.0)
    assert sample is not None and sample.lost and not blind
    known.take(((replace(BUSY, uuid=B),)), 110.0)
    sample, blind = gpus.sample([A], known, 110.0)
    assert sample is not None and sample.lost and not blind


def test_fatal_xid_sticks_to_its_generation_and_harmless_ones_are_nothing() -> None:
    known = host(BUSY)
    known.hear((Xid(A, 45), Xid(A, 79), Xid(B, 31)), 105.0)
    known.take(((BUSY,)), 105.0)
    known.take(((BUSY,)), 110.0)
    sample, _ = RankGpus(since_s=90.0).sample([A], known, 110.0)
    assert sample is not None and sample.fatal_xid == 79
    sample, _ = RankGpus(since_s=106.0).sample([A], known, 110.0)
    assert sample is not None and sample.fatal_xid is None


@pytest.mark.parametrize(
    ("gpus", "index", "ranks", "contexts", "own"),
    [
        ((A, B), 1, 2, {}, (B,)),
        ((A, B), 0, 1, {}, (A, B)),
        ((A, B), 0, 1, {B: frozenset({7})}, (B,)),
        ((A, B), 1, 2, {A: frozenset({7}), B: frozenset({7})}, (B,)),
        ((A, B), 1, 2, {A: frozenset({7})}, (A,)),
        ((A,), 1, 2, {}, (A,)),
        ((), 0, 1, {}, ()),
    ],
)
def test_gpus_of_a_rank(
    gpus: tuple[str, ...], index: int, ranks: int, contexts: dict[str, frozenset[int]], own: tuple[str, ...]
) -> None:
    assert gpus_of(gpus, index, ranks, frozenset({7, 8}), contexts) == own


def test_a_rank_uses_the_gpus_on_which_its_processes_hold_a_context() -> None:
    contexts = {B: frozenset({7, 9}), A: frozenset({8}), "C": frozenset({5})}
    assert used_by(frozenset({7, 8}), contexts) == (A, B)
    assert used_by(frozenset({6}), contexts) == ()


async def test_simulated_gpus_do_what_their_script_says(tmp_path: Path) -> None:
    now = 10.0
    script = tmp_path / "gpus.json"
    source = SimulatedSource("h", 2, script, monotonic=lambda: now)
    silent = (GpuSignals("GPU-sim-h-0"), GpuSignals("GPU-sim-h-1"))
    assert await source.signals() == silent
    assert await SimulatedSource("h", 2).signals() == silent
    busy = {"util_pct": 100, "memory_util_pct": 1, "power_w": 150, "link_bytes_s": 10}
    script.write_text(json.dumps({"*": busy, "GPU-sim-h-1": {"lost": True, "xid": 79}}))
    await source.signals()
    now = 20.0
    said = await source.signals()
    assert said == (
        (
            GpuSignals("GPU-sim-h-0", energy_mj=1_500_000, util_pct=100, memory_util_pct=1, pcie_bytes=100),
            GpuSignals("GPU-sim-h-1", lost=True),
        )
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "no object"), ("{", "gpus.json"), ('{"*": {"watts": 1}}', "unknown watts"), ('{"blind": "x"}', "x")],
)
async def test_script_that_is_none_is_blindness(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "gpus.json").write_text(text)
    said = await SimulatedSource("h", 1, tmp_path / "gpus.json").signals()
    assert isinstance(said, Blind)
    assert words in said.reason


async def test_scripted_xid_is_reported_once(tmp_path: Path) -> None:
    script = tmp_path / "gpus.json"
    script.write_text('{"*": {"xid": 79}}')
    source = SimulatedSource("h", 1, script)
    heard: list[Xid] = []
    source.on_xids = heard.extend
    await source.inventory()  # also while no worker runs
    await source.signals()
    assert heard == [Xid("GPU-sim-h-0", 79)]


def test_a_counter_that_is_not_told_for_a_moment_makes_no_jump() -> None:
    lifetime = 200_000_000_000_000
    known, gpus = HostGpus(), RankGpus(0.0)
    told = []
    for step, nvlink in enumerate((lifetime, lifetime + 100, None, lifetime + 300)):
        reading = replace(BUSY, pcie_bytes=1000 + 10 * step, nvlink_bytes=nvlink)
        known.take(((reading,)), 100.0 + 5 * step)
        sample, _ = gpus.sample([A], known, 100.0 + 5 * step)
        assert sample is not None
        told.append((sample.link_bytes, sample.pcie_bytes, sample.nvlink_bytes))
    assert told == [(0, 0, 0), (110, 10, 100), (120, 20, 100), (330, 30, 300)]
