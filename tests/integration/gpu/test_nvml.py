"""The NVML reading path end to end: agent's client, helper process, official binding, scripted driver."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.fake_nvml import library as nvml
from tests.support.fake_nvml.library import GIB, FakeNvml

from holdfast_agent.core.model.gpus import Blind, ChangeKind, GpuUsage, Reading, Unidentified, merge
from holdfast_agent.gpu import reader
from holdfast_agent.gpu.child import COMMAND
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts import host
from holdfast_controller.core.scheduling.placement import Plan, plan

pytestmark = pytest.mark.require("cc")
# A failure must not delay the next try of these tests.
LIMITS = reader.ReadLimits(answer_s=20, start_s=20, backoff_s=0)
LOST = "the GPU is lost: it has fallen off the bus or is otherwise inaccessible"


@pytest.fixture
async def source(fake_nvml: FakeNvml) -> AsyncIterator[reader.NvmlSource]:
    made = reader.NvmlSource(LIMITS)
    yield made
    await made.aclose()


# Prints the helper's pid while a call to it hangs.
AGENT = """
import anyio
from holdfast_agent.gpu import reader

async def main():
    source = reader.NvmlSource(reader.ReadLimits(answer_s=60))
    async with anyio.create_task_group() as group:
        group.start_soon(source.inventory)
        while source._child is None or not source._child._ready:
            await anyio.sleep(0.01)
        print(source.helper_pid, flush=True)

anyio.run(main)
"""


async def read(source: reader.NvmlSource) -> Reading:
    reading = await source.inventory()
    assert isinstance(reading, Reading), reading
    return reading


def exits(pid: int, within_s: float = 10) -> bool:
    """Whether the process ends in that time, or has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], within_s)[0])
    finally:
        os.close(pidfd)


async def test_devices_are_listed_in_bus_order_whatever_the_drivers_order(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.say(
        "gpu GPU-c 00000001:05:00.0 1073741824 0 NVIDIA A100-SXM4-80GB",
        "gpu GPU-b 00000000:C1:00.0 2147483648 0 NVIDIA H100 80GB HBM3",
        "gpu GPU-a 00000000:17:00.0 1073741824 0 NVIDIA A100-SXM4-80GB",
    )
    gpus = (await read(source)).gpus
    assert [(g.uuid, g.index, g.bus_id) for g in gpus] == [
        ("GPU-a", 0, "00000000:17:00.0"),
        ("GPU-b", 1, "00000000:C1:00.0"),
        ("GPU-c", 2, "00000001:05:00.0"),
    ]
    assert (gpus[1].model, gpus[1].memory_bytes) == ("NVIDIA H100 80GB HBM3", 2 * GIB)


async def test_usage_tells_memory_and_all_compute_processes(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(2, used=5 * GIB)
    fake_nvml.say("pid 0 301", "pid 0 12", "mps 0 77", "mps 0 12", *(f"pid 1 {1000 + i}" for i in range(40)))
    assert await source.usage() == (
        GpuUsage("GPU-0", 5 * GIB, (12, 77, 301)),
        GpuUsage("GPU-1", 5 * GIB, tuple(range(1000, 1040))),
    )


async def test_each_profile_of_a_divided_gpu_is_given_to_the_job_that_asks_for_it(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(
        "mig 1 MIG-a 10737418240 0 NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "mig 1 MIG-b 42949672960 0 NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "mig 1 MIG-c 10737418240 0 NVIDIA H100 80GB HBM3 MIG 1g.10gb+me",
    )
    gpus = tuple(host.Gpu(g.uuid, g.index, g.model, g.memory_bytes, g.problem) for g in (await read(source)).gpus)
    here = host.Host("a", "a", "boot", "1", host.Inventory(16, 64 * GIB, gpus))

    def given(profile: str, count: int = 1) -> tuple[str, ...]:
        found = plan(Gang((Pool(1, Task(("x",)), gpus=count, gpu_partition=profile),)), [here])
        return found.places[0].gpus if isinstance(found, Plan) else ()

    profiles = ("", "1g.10gb", "3g.40gb", "1g.10gb+me", "7g.80gb")
    assert [given(profile) for profile in profiles] == [("GPU-0",), ("MIG-a",), ("MIG-b",), ("MIG-c",), ()]
    assert given("", 2) == given("1g.10gb", 2) == ()


@pytest.mark.parametrize("code", [nvml.NOT_SUPPORTED, 13], ids=["not supported", "function not in this driver"])
async def test_absent_figures_are_no_errors(source: reader.NvmlSource, fake_nvml: FakeNvml, code: int) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(
        f"fail nvmlDeviceGetMemoryInfo 0 {code}",
        f"fail nvmlDeviceGetComputeRunningProcesses_v3 0 {code}",
        f"fail nvmlDeviceGetMPSComputeRunningProcesses_v3 0 {code}",
        f"fail nvmlDeviceGetMigMode 0 {code}",
    )
    gpu = (await read(source)).gpus[0]
    assert (gpu.uuid, gpu.memory_bytes, gpu.problem) == ("GPU-0", 0, "")
    assert await source.usage() == (GpuUsage("GPU-0", None, None),)


async def test_divided_gpu_is_listed_by_its_instances(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(
        "mig 1 MIG-a 42949672960 0 NVIDIA H100 MIG 3g.40gb",
        "mig 1 MIG-b 42949672960 1024 NVIDIA H100 MIG 3g.40gb",
        "pid 3 55",
    )
    reading = await read(source)
    assert [(g.uuid, g.index, g.parent, g.memory_bytes) for g in reading.gpus] == [
        ("GPU-0", 0, "", 80 * GIB),
        ("MIG-a", 1, "GPU-1", 40 * GIB),
        ("MIG-b", 1, "GPU-1", 40 * GIB),
    ]
    assert reading.physical == {"GPU-0", "GPU-1"}
    assert await source.usage() == (
        GpuUsage("GPU-0", 0, ()),
        GpuUsage("MIG-a", 0, ()),
        GpuUsage("MIG-b", 1024, (55,)),
    )


async def test_missing_library_is_a_host_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    source = reader.NvmlSource(LIMITS)
    try:
        reading = await source.inventory()
        if isinstance(reading, Reading) and reading.gpus:
            pytest.skip("this machine has an NVIDIA driver of its own")
        assert reading == Reading(note="no NVIDIA driver on this host")
        assert await source.usage() == ()
    finally:
        await source.aclose()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (nvml.DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (nvml.NO_PERMISSION, "no permission to use the GPU"),
        (nvml.VERSION_MISMATCH, "driver and library versions differ: reboot after the update"),
        (nvml.UNKNOWN, "unknown driver error"),
        (4711, "driver error 4711: scripted"),
    ],
)
@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
async def test_failure_of_the_whole_driver_is_blindness_until_it_is_over(
    source: reader.NvmlSource, fake_nvml: FakeNvml, function: str, code: int, words: str
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(f"fail {function} -1 {code}")
    assert await source.inventory() == Blind(words)
    assert await source.usage() == Blind(words)
    fake_nvml.replace()
    fake_nvml.gpus(1)
    assert [gpu.uuid for gpu in (await read(source)).gpus] == ["GPU-0"]


@pytest.mark.parametrize("function", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetName"])
async def test_gpu_lost_midway_keeps_its_entry(
    source: reader.NvmlSource, fake_nvml: FakeNvml, function: str
) -> None:
    fake_nvml.gpus(3)
    before, _ = merge((), await read(source))
    fake_nvml.say(f"fail {function} 1 {nvml.GPU_IS_LOST}")
    after, changes = merge(before, await read(source))
    assert [gpu.problem for gpu in after] == ["", LOST, ""]
    assert [(g.uuid, g.index, g.model, g.memory_bytes, g.bus_id) for g in after] == [
        (g.uuid, g.index, g.model, g.memory_bytes, g.bus_id) for g in before
    ]
    assert [(change.kind, change.gpu.uuid) for change in changes] == [(ChangeKind.FAILED, "GPU-1")]


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
async def test_gpu_that_no_longer_says_who_it_is_keeps_its_entry(
    source: reader.NvmlSource, fake_nvml: FakeNvml, function: str
) -> None:
    fake_nvml.gpus(3)
    before, _ = merge((), await read(source))
    fake_nvml.say(f"fail {function} 1 {nvml.GPU_IS_LOST}")
    reading = await read(source)
    assert reading.unidentified == (Unidentified(1, LOST),)
    after, _ = merge(before, reading)
    assert [(gpu.uuid, gpu.index, gpu.problem) for gpu in after] == [
        ("GPU-0", 0, ""),
        ("GPU-1", 1, LOST),
        ("GPU-2", 2, ""),
    ]


async def test_lost_divided_gpu_takes_its_instances_along(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say("mig 0 MIG-a 42949672960 0 NVIDIA H100 MIG 3g.40gb")
    before, _ = merge((), await read(source))
    fake_nvml.say(f"fail nvmlDeviceGetMigMode 0 {nvml.GPU_IS_LOST}")
    after, _ = merge(before, await read(source))
    assert [(gpu.uuid, gpu.problem) for gpu in after] == [("MIG-a", LOST)]


async def test_lost_gpu_has_no_usage_to_prove_anything_by(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say(
        f"fail nvmlDeviceGetMemoryInfo 0 {nvml.GPU_IS_LOST}",
        f"fail nvmlDeviceGetComputeRunningProcesses_v3 0 {nvml.GPU_IS_LOST}",
    )
    assert await source.usage() == (GpuUsage("GPU-0", None, None, LOST),)


async def test_forbidden_gpu_is_shown_with_the_reason(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(2)
    fake_nvml.say(f"fail nvmlDeviceGetHandleByIndex_v2 0 {nvml.NO_PERMISSION}")
    inventory, _ = merge((), await read(source))
    assert [(gpu.uuid, gpu.index, gpu.problem) for gpu in inventory] == [
        ("unidentified-0", 0, "no permission to use the GPU"),
        ("GPU-1", 1, ""),
    ]


async def test_what_the_driver_prints_does_not_mix_with_replies(
    source: reader.NvmlSource, fake_nvml: FakeNvml
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say("print nvmlDeviceGetName a warning of the driver")
    assert len((await read(source)).gpus) == 1


async def test_hanging_call_is_blindness_at_the_deadline_and_its_helper_is_killed(fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(1)
    source = reader.NvmlSource(reader.ReadLimits(answer_s=20, backoff_s=0))
    try:
        await read(source)
        hung = source.helper_pid
        source._limits = reader.ReadLimits(answer_s=0.3, backoff_s=0)
        fake_nvml.say("hang nvmlDeviceGetMemoryInfo 0")
        assert await source.usage() == Blind("the GPU driver did not answer within 0.3 s")
        assert hung is not None
        assert exits(hung)
        fake_nvml.replace()
        fake_nvml.gpus(1)
        source._limits = LIMITS
        assert len((await read(source)).gpus) == 1
        assert source.helper_pid != hung
    finally:
        await source.aclose()


async def test_driver_that_hangs_at_its_start_is_blindness_and_the_helper_is_replaced_in_the_end(
    fake_nvml: FakeNvml,
) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say("hang nvmlInitWithFlags -1")
    source = reader.NvmlSource(reader.ReadLimits(answer_s=0.2, start_s=0.3, backoff_s=60))
    try:
        assert await source.inventory() == Blind("the GPU driver is still starting")
        slow = source.helper_pid
        assert await source.inventory() == Blind("the GPU driver did not start within 0.3 s")
        assert slow is not None
        assert exits(slow)
        assert await source.inventory() == Blind("the GPU driver did not start within 0.3 s")
        assert source.helper_pid is None
    finally:
        await source.aclose()


async def test_helper_stays_small(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(8)
    for _ in range(20):
        await read(source)
        await source.usage()
    smaps = await anyio.Path(f"/proc/{source.helper_pid}/smaps_rollup").read_text()
    pss_kib = next(int(line.split()[1]) for line in smaps.splitlines() if line.startswith("Pss:"))
    assert pss_kib < 16 * 1024


async def test_helper_killed_by_others_is_replaced(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(1)
    await read(source)
    assert source.helper_pid is not None
    os.kill(source.helper_pid, signal.SIGKILL)
    answer = await source.inventory()
    assert isinstance(answer, Blind) and answer.reason.startswith("the GPU helper ended")
    assert len((await read(source)).gpus) == 1


async def test_closing_ends_the_helper(source: reader.NvmlSource, fake_nvml: FakeNvml) -> None:
    await read(source)
    pid = source.helper_pid
    assert pid is not None
    await source.aclose()
    assert exits(pid, within_s=0)


def test_same_under_uvloop(fake_nvml: FakeNvml) -> None:
    pytest.importorskip("uvloop")
    fake_nvml.gpus(2)

    source = reader.NvmlSource(LIMITS)  # made before there is a loop

    async def main() -> None:
        assert len((await read(source)).gpus) == 2
        usage = await source.usage()
        assert isinstance(usage, tuple) and len(usage) == 2
        await source.aclose()

    anyio.run(main, backend_options={"use_uvloop": True})


def test_helper_ends_when_the_agent_is_killed_even_in_a_hanging_call(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.gpus(1)
    fake_nvml.say("hang nvmlDeviceGetCount_v2 -1")
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    with subprocess.Popen([sys.executable, agent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        helper = int(process.stdout.readline())
        assert not exits(helper, within_s=0.1)
        process.kill()
    assert exits(helper)


def test_helper_ends_with_its_input(fake_nvml: FakeNvml) -> None:
    fake_nvml.gpus(1)
    requests = b'{"op": "inventory"}\nnonsense\n{"op": []}\n{"op": "fry"}\n[]\n{"op": "usage"}\n'
    done = subprocess.run(COMMAND, input=requests, capture_output=True, timeout=180, check=True)
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(reply) for reply in replies] == [
        ["ready"],
        ["ok"],
        ["error"],
        ["error"],
        ["error"],
        ["error"],
        ["ok"],
    ]
    assert replies[4] == {"error": "unknown op 'fry'; known: inventory, usage, signals, driver, health"}
