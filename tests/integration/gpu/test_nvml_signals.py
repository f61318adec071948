"""GPU signals end to end: agent's client, helper process, official binding, scripted driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from tests.support.fake_nvml import library as nvml
from tests.support.fake_nvml.library import FakeNvml

from holdfast_agent.core.gpu.signals import GpuSignals, Xid
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.gpu import reader

pytestmark = pytest.mark.require("cc")
LIMITS = reader.ReadLimits(answer_s=20, start_s=20, backoff_s=0)
FULL = (
    "energy 0 5000000",
    "util 0 97 40",
    "field 0 197 1000",
    "field 0 198 24",
    "field 0 138 2",
    "field 0 139 1",
    "gpm 0 1 99.5",
    "gpm 0 2 88.25",
    "gpm 0 10 30",
    "temperature 0 61",
    "clock 0 1980",
    "throttle 0 68",
)
LOST = "the GPU is lost: it has fallen off the bus or is otherwise inaccessible"
CALLS = [
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetFieldValues",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
]
SHOWN = [
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
]


@pytest.fixture
async def source(fake_nvml: FakeNvml) -> AsyncIterator[reader.NvmlSource]:
    made = reader.NvmlSource(LIMITS)
    yield made
    await made.aclose()


async def read(source: reader.NvmlSource) -> tuple[GpuSignals, ...]:
    signals = await source.signals()
    assert isinstance(signals, tuple), signals
    return signals


async def one(source: reader.NvmlSource, *, looks: int = 2) -> GpuSignals:
    """The first device's figures; two looks, since some lie between two."""
    for look in range(looks):
        if look:
            await anyio.sleep(0.12)
        gpu = (await read(source))[0]
    return gpu


async def test_every_figure_is_read_and_follows_the_driver(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(*FULL)
    assert await one(source) == GpuSignals(
        "GPU-0",
        energy_mj=5_000_000,
        util_pct=97,
        memory_util_pct=40,
        pcie_bytes=1024,
        nvlink_bytes=3 * 1024,
        sm_pct=88.25,
        memory_used_bytes=0,
        temperature_c=61,
        sm_clock_mhz=1980,
        throttle=0x4 | 0x40,
    )
    fake_nvml.replace()
    fake_nvml.gpus(2)
    fake_nvml.say("energy 0 5000700", "util 0 0 0")
    gpu = await one(source, looks=1)
    assert (gpu.energy_mj, gpu.util_pct, gpu.memory_util_pct) == (5_000_700, 0, 0)


async def test_power_is_read_where_energy_is_not(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say("power 0 152000", "util 0 100 1")
    gpu = await one(source)
    assert (gpu.energy_mj, gpu.power_mw, gpu.problem) == (None, 152_000, "")


@pytest.mark.parametrize("code", [nvml.NOT_SUPPORTED, 13], ids=["not supported", "function not in this driver"])
async def test_driver_without_any_figure_has_none_and_no_problem(
    source: reader.NvmlSource, fake_nvml: FakeNvml, code: str
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(*FULL, *(f"fail {call} -1 {code}" for call in (*CALLS, *SHOWN, "nvmlDeviceGetPowerUsage")))
    fake_nvml.say(f"fail nvmlEventSetCreate -1 {code}", f"fail nvmlDeviceRegisterEvents -1 {code}")
    assert await one(source) == GpuSignals("GPU-0")


@pytest.mark.parametrize("call", CALLS)
async def test_one_figure_that_is_not_supported_leaves_the_others(
    source: reader.NvmlSource, fake_nvml: FakeNvml, call: str
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(*FULL, f"fail {call} 0 {nvml.NOT_SUPPORTED}")
    gpu = await one(source)
    assert gpu.has_figures
    assert gpu.problem == ""
    missing = [gpu.energy_mj, gpu.util_pct, gpu.pcie_bytes, gpu.sm_pct].count(None)
    # Utilisation has a stand-in.
    assert missing == (0 if "Utilization" in call else 1)


@pytest.mark.parametrize("call", SHOWN)
@pytest.mark.parametrize("code", [nvml.NOT_SUPPORTED, 4, 999], ids=["not supported", "no permission", "unknown"])
async def test_a_figure_that_is_only_shown_may_be_refused(
    source: reader.NvmlSource, fake_nvml: FakeNvml, call: str, code: str | int
) -> None:
    fake_nvml.gpus(1, used=7 << 30)
    fake_nvml.say(*FULL, f"fail {call} 0 {code}")
    gpu = await one(source)
    shown = [gpu.memory_used_bytes, gpu.temperature_c, gpu.sm_clock_mhz, gpu.throttle]
    assert (gpu.problem, gpu.lost, shown.count(None)) == ("", False, 1)
    assert gpu.util_pct == 97


@pytest.mark.parametrize("call", CALLS)
async def test_refused_call_is_that_devices_problem(
    source: reader.NvmlSource, fake_nvml: FakeNvml, call: str
) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(*FULL, "energy 1 7", f"fail {call} 0 {nvml.NO_PERMISSION}")
    await read(source)
    await anyio.sleep(0.12)
    first, second = await read(source)
    assert (first.problem, first.lost) == ("no permission to use the GPU", False)
    assert (second.energy_mj, second.problem) == (7, "")


@pytest.mark.parametrize("call", CALLS)
async def test_hanging_call_is_blindness_at_the_deadline_and_the_next_reading_is_good(
    fake_nvml: FakeNvml, call: str
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(*FULL)
    source = reader.NvmlSource(reader.ReadLimits(answer_s=20, backoff_s=0))
    try:
        await source.inventory()
        fake_nvml.say(f"hang {call} 0")
        source._limits = reader.ReadLimits(answer_s=0.5, backoff_s=0)
        answers = []
        for _ in range(2):
            answers.append(await source.signals())
            await anyio.sleep(0.12)
        assert Blind("the GPU driver did not answer within 0.5 s") in answers
        fake_nvml.replace()
        fake_nvml.gpus(1)
        fake_nvml.say(*FULL)
        source._limits = LIMITS
        assert (await one(source)).energy_mj == 5_000_000
    finally:
        await source.aclose()


async def test_gpu_lost_midway_says_so_while_the_driver_still_lists_it(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(*FULL, "energy 1 7")
    await read(source)
    fake_nvml.say(*(f"fail {call} 0 {nvml.GPU_IS_LOST}" for call in CALLS))
    lost, well = await read(source)
    assert (lost.lost, lost.problem, lost.has_figures) == (True, LOST, False)
    assert (well.lost, well.energy_mj) == (False, 7)


async def test_gpu_that_can_no_longer_be_identified_is_missing_from_the_reading(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(*FULL, "energy 1 7")
    await read(source)
    fake_nvml.say(*(f"fail {call} 0 {nvml.GPU_IS_LOST}" for call in (*CALLS, "nvmlDeviceGetUUID")))
    await read(source)
    assert [gpu.uuid for gpu in (await read(source))] == ["GPU-1"]


async def test_mig_instances_have_the_shares_of_their_own_and_no_energy(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(
        "mig 0 MIG-a 42949672960 0 NVIDIA H100 MIG 3g.40gb",
        "mig 0 MIG-b 42949672960 0 NVIDIA H100 MIG 3g.40gb",
        "energy 0 5000",
        "gpm 1 1 90",
        "gpm 1 2 50",
        "gpm 2 1 3",
    )
    await read(source)
    await anyio.sleep(0.12)
    assert (await read(source)) == (
        GpuSignals("MIG-a", util_pct=90, sm_pct=50, memory_used_bytes=0),
        GpuSignals("MIG-b", util_pct=3, memory_used_bytes=0),
    )


async def test_missing_library_has_no_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    source = reader.NvmlSource(LIMITS)
    try:
        signals = await read(source)
        if signals:
            pytest.skip("this machine has an NVIDIA driver of its own")
        assert signals == ()
    finally:
        await source.aclose()


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
async def test_failure_of_the_whole_driver_is_blindness(
    source: reader.NvmlSource, fake_nvml: FakeNvml, function: str
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(f"fail {function} -1 {nvml.NO_PERMISSION}")
    assert await source.signals() == Blind("no permission to use the GPU")


async def hears(source: reader.NvmlSource, ask: Callable[[], Awaitable[object]], count: int) -> list[Xid]:
    """What is heard by asking again and again until so many errors have come, and by one question more."""
    heard: list[Xid] = []
    source.on_xids = heard.extend
    with anyio.fail_after(60):
        while len(heard) < count:
            await ask()
            await anyio.sleep(0.05)
    await ask()
    return heard


@pytest.mark.parametrize("op", ["inventory", "usage", "signals"])
async def test_xid_is_reported_once_with_its_device_whatever_is_asked(
    source: reader.NvmlSource, fake_nvml: FakeNvml, op: str
) -> None:
    fake_nvml.gpus(2)
    await source.inventory()  # no worker runs: activity isn't read
    fake_nvml.say("xid 1 79")
    assert await hears(source, getattr(source, op), 1) == [Xid("GPU-1", 79)]


async def test_xid_of_a_divided_gpu_is_that_of_all_its_instances(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say("mig 0 MIG-a 42949672960 0 NVIDIA H100 MIG 3g.40gb", "mig 0 MIG-b 42949672960 0 NVIDIA H100 MIG")
    await source.inventory()
    fake_nvml.say("xid 0 95")
    assert await hears(source, source.inventory, 2) == [Xid("MIG-a", 95), Xid("MIG-b", 95)]


@pytest.mark.parametrize("call", ["hang nvmlEventSetWait_v2 -1", f"fail nvmlEventSetWait_v2 -1 {nvml.GPU_IS_LOST}"])
async def test_events_that_hang_or_fail_take_nothing_else_along(
    source: reader.NvmlSource, fake_nvml: FakeNvml, call: str
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(*FULL, call)
    assert (await one(source)).energy_mj == 5_000_000
    pid = source.helper_pid
    assert await read(source)
    assert source.helper_pid == pid
