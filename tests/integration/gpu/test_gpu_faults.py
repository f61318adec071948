"""Faults of GPUs as the agent keeps them: heard by NVML, kept over restarts, cleared by evidence."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.support.fake_nvml.library import GPU_IS_LOST, FakeNvml

from holdfast.v1 import host_pb2
from holdfast_agent.gpu import reader
from holdfast_agent.shell.gpus.fault_file import FaultFile
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shim import processes

pytestmark = pytest.mark.require("cc")
LIMITS = reader.ReadLimits(answer_s=20, start_s=20, backoff_s=0)
RESET, REBOOT = host_pb2.GPU_REPAIR_RESET, host_pb2.GPU_REPAIR_REBOOT


@dataclass
class Host:
    """An agent's watch over GPUs, and the kernel's view of driver and devices."""

    folder: Path
    source: reader.NvmlSource
    watch: GpuWatch
    told: list[str]

    @classmethod
    def start(cls, folder: Path) -> Host:
        source, told = reader.NvmlSource(LIMITS), list[str]()
        kept = FaultFile(folder / "gpu_faults.json", folder / "sys")
        watch = GpuWatch(source, host_pb2.Inventory(), kept, lambda _: None, lambda: told.append("fault"))
        source.on_xids = watch.hear
        return cls(folder, source, watch, told)

    async def restart(self) -> Host:
        await self.source.aclose()
        return Host.start(self.folder)

    def faults(self) -> list[list[tuple[str, int]]]:
        return [[(fault.cause, fault.repair) for fault in gpu.faults] for gpu in self.watch.inventory().gpus]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self.watch.read()
                await anyio.sleep(0.05)

    def enumerate(self, number: int) -> None:
        """The kernel loads the driver for the ``number``th time, and shows the devices."""
        system = self.folder / "sys"
        if system.exists():
            system.rename(self.folder / f"sys-before-{number}")  # kept, so that no inode is used again
        (system / "module" / "nvidia").mkdir(parents=True)
        for bus in range(0x17, 0x19):
            (system / "bus" / "pci" / "devices" / f"0000:{bus:02x}:00.0").mkdir(parents=True)


@pytest.fixture
async def host(fake_nvml: FakeNvml, tmp_path: Path) -> AsyncIterator[Host]:
    fake_nvml.gpus(2)
    made = Host.start(tmp_path)
    made.enumerate(1)
    assert await made.watch.read()
    yield made
    await made.source.aclose()


async def test_xid_on_an_idle_gpu_is_kept_over_a_restart_of_the_agent(host: Host, fake_nvml: FakeNvml) -> None:
    assert host.faults() == [[], []]
    fake_nvml.say("xid 1 95")
    await host.until(lambda: host.told)
    assert host.faults() == [[], [("Xid 95 (uncontained memory error)", RESET)]]
    fake_nvml.replace()  # a driver tells of an error once
    fake_nvml.gpus(2)
    again = await host.restart()
    try:
        await again.watch.read()
        assert again.faults() == [[], [("Xid 95 (uncontained memory error)", RESET)]]
        assert [gpu.problem for gpu in again.watch.known] == ["", "Xid 95 (uncontained memory error)"]
    finally:
        await again.source.aclose()


async def test_gpu_that_was_lost_before_the_agent_started_is_still_listed(host: Host, fake_nvml: FakeNvml) -> None:
    fake_nvml.lose(1)
    await host.until(lambda: host.told)
    fake_nvml.replace("gpu GPU-0 00000000:17:00.0 85899345920 0 NVIDIA H100 80GB")
    again = await host.restart()
    try:
        await again.watch.read()
        assert [(gpu.uuid, gpu.index, gpu.problem) for gpu in again.watch.inventory().gpus] == [
            ("GPU-0", 0, ""),
            ("GPU-1", 1, "vanished"),
        ]
        assert again.faults()[1][0] == ("lost (it has fallen off the bus)", REBOOT)
    finally:
        await again.source.aclose()


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("remap 1 1 0", "row remapping pending"),
        ("remap 1 0 1", "row remapping failed"),
        ("ecc 1 2", "memory error beyond correction"),
        ("field 1 230 1", "the driver asks for a reset"),
        (f"fail nvmlDeviceGetMemoryInfo 1 {GPU_IS_LOST}", "lost (it has fallen off the bus)"),
        ("fail nvmlDeviceGetName 1 16", "the driver asks for a reset"),
    ],
)
async def test_what_nvml_states_makes_the_gpu_faulty(
    host: Host, fake_nvml: FakeNvml, line: str, cause: str
) -> None:
    fake_nvml.say("remap 0 0 0", "ecc 0 0", "field 0 230 0", line)
    await host.watch.read()
    assert [[cause for cause, _ in faults] for faults in host.faults()] == [[], [cause]]


async def test_driver_loaded_anew_clears_the_fault_and_says_so(host: Host, fake_nvml: FakeNvml) -> None:
    fake_nvml.say("xid 1 95")
    await host.until(lambda: host.told)
    again = await host.restart()
    try:
        again.enumerate(2)
        fake_nvml.replace()
        fake_nvml.gpus(2)
        await again.watch.read()
        assert again.faults() == [[], []]
        assert [gpu.repaired_by for gpu in again.watch.inventory().gpus] == [
            "",
            "the driver has enumerated it again",
        ]
        assert again.told
    finally:
        await again.source.aclose()


async def test_boot_clears_the_fault(host: Host, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.say("xid 1 79")
    await host.until(lambda: host.told)
    fake_nvml.replace()
    fake_nvml.gpus(2)
    monkeypatch.setattr(processes, "boot_id", lambda: "another")
    again = await host.restart()
    try:
        await again.watch.read()
        assert again.faults() == [[], []]
    finally:
        await again.source.aclose()


async def test_fault_that_the_controller_could_not_know_of_is_a_problem_of_the_next_start(
    host: Host, fake_nvml: FakeNvml
) -> None:
    host.watch.inventory()
    fake_nvml.say("xid 1 95")
    await host.until(lambda: host.told)
    assert host.watch.problems() == {"GPU-1": "Xid 95 (uncontained memory error)"}
    host.watch.inventory()  # told: whether it is used all the same is the controller's decision
    assert host.watch.problems() == {}
