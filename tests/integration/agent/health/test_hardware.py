"""Health from real files, a real log device's reads and the real binding of NVML with a scripted driver."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nvml.library import FakeNvml

from holdfast.v1 import host_pb2
from holdfast_agent.core.health.kernel_log import GpuError
from holdfast_agent.core.health.rules import RULES
from holdfast_agent.gpu import reader
from holdfast_agent.shell.gpus.fault_file import FaultFile
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.health import sysfs, watch
from holdfast_agent.shell.health.kmsg import KernelLog
from holdfast_agent.shell.health.watch import HealthWatch
from holdfast_agent.shim import processes

LIMITS = reader.ReadLimits(answer_s=20, start_s=20, backoff_s=0)
NIC = "devices/pci0000:00/0000:5e:00.0"
XID_79 = b"3,%d,1,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus."
XID_95 = b"3,%d,1,-;NVRM: Xid (PCI:0000:17:00): 95, uncontained"
LOADED = b"4,%d,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15"
NOISE = b"6,%d,1,-;eth0: link is up"
SXID = b"3,%d,1,-;nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28006, Fatal, Link 46"


def put(root: Path, **files: str) -> None:
    """Write files below ``root``; two underscores stand for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def tree(root: Path) -> Path:
    """A kernel's /sys of a host with one adapter of one port, a memory controller, a file system and a drive."""
    put(
        root / NIC,
        aer_dev_fatal="Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0",
        aer_dev_nonfatal="Undefined 0\nTOTAL_ERR_NONFATAL 0",
        aer_dev_correctable="RxErr 7\nTOTAL_ERR_COR 7",
        current_link_width="16",
    )
    put(
        root / NIC / "infiniband/mlx5_0/ports/1",
        state="4: ACTIVE",
        rate="400 Gb/sec (4X NDR)",
        counters__link_downed="0",
        counters__local_link_integrity_errors="0",
        counters__excessive_buffer_overrun_errors="0",
    )
    put(root / "devices/system/edac/mc/mc0", ue_count="0", ce_count="12")
    put(root / "fs/ext4/nvme0n1p1", errors_count="0")
    put(root / "class/nvme/nvme0", state="live")
    for link, target in (
        ("bus/pci/devices/0000:5e:00.0", NIC),
        ("class/infiniband/mlx5_0", f"{NIC}/infiniband/mlx5_0"),
        (f"{NIC}/infiniband/mlx5_0/device", NIC),
    ):
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(root / target)
    return root


class Log:
    """A kernel's log: each read gives one record."""

    def __init__(self) -> None:
        self._write, self._read = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._read.setblocking(False)
        self.said = 0

    def say(self, *records: bytes) -> None:
        for record in records:
            self.said += 1
            self._write.send(record % self.said if b"%d" in record else record)

    def open(self) -> int:
        return os.dup(self._read.fileno())

    def close(self) -> None:
        self._write.close()
        self._read.close()


@pytest.fixture
def log() -> Any:
    made = Log()
    yield made
    made.close()


class Clock:
    """Seconds since the boot, as the watch sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(watch, "_now", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def host(folder: Path, source: reader.GpuSource, log: Log) -> tuple[HealthWatch, GpuWatch]:
    gpus = GpuWatch(source, host_pb2.Inventory(), FaultFile(folder / "faults.json", folder / "sys"), lambda _: None)
    return HealthWatch(source, gpus, folder / "health.json", folder / "sys", KernelLog(log.open)), gpus


async def looks(health: HealthWatch, clock: Clock, times: int = 1) -> dict[str, str]:
    """What stands after so many minutes."""
    for _ in range(times):
        clock.now += 60
        found = await health.look()
    return {each.check: each.saw for each in found}


@pytest.fixture
async def quiet(tmp_path: Path, log: Log) -> AsyncIterator[HealthWatch]:
    tree(tmp_path / "sys")
    made, _ = host(tmp_path, reader.SimulatedSource("h", 0), log)
    yield made
    made.close()


async def test_every_figure_of_the_kernel_is_read_and_has_a_rule(tmp_path: Path) -> None:
    found = {(each.rule, each.subject): each.value for each in sysfs.look(tree(tmp_path))}
    assert found == {
        ("pcie.fatal", "0000:5e:00.0"): 0,
        ("pcie.nonfatal", "0000:5e:00.0"): 0,
        ("pcie.correctable", "0000:5e:00.0"): 7,
        ("pcie.narrowed", "mlx5_0"): 16,
        ("memory.uncorrected", "mc0"): 0,
        ("memory.corrected", "mc0"): 12,
        ("ib.port", "mlx5_0:1"): 1,
        ("ib.rate", "mlx5_0:1"): 400,
        ("ib.flaps", "mlx5_0:1"): 0,
        ("ib.errors", "mlx5_0:1"): 0,
        ("disk.errors", "nvme0n1p1"): 0,
        ("disk.dead", "nvme0"): 0,
    }
    assert {rule for rule, _ in found} <= set(RULES)


async def test_this_machine_can_be_read_whatever_it_has() -> None:
    assert {each.rule for each in sysfs.look(Path("/sys"))} <= set(RULES)


async def test_files_that_are_missing_or_odd_are_no_readings(tmp_path: Path) -> None:
    root = tree(tmp_path)
    put(root / NIC, aer_dev_fatal="TOTAL_ERR_FATAL many", aer_dev_nonfatal="", current_link_width="-1")
    put(root / "devices/system/edac/mc/mc0", ue_count="9" * 400, ce_count="\N{LATIN SMALL LETTER A WITH ACUTE}")
    put(root / NIC / "infiniband/mlx5_0/ports/1", rate="fast", state="")
    found = {each.rule for each in sysfs.look(root)}
    assert found == {"pcie.correctable", "ib.flaps", "ib.errors", "disk.errors", "disk.dead"}
    assert sysfs.look(tmp_path / "nothing") == []


async def test_virtual_functions_are_their_users_affair(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / NIC / "physfn").mkdir()
    assert not [each for each in sysfs.look(root) if each.rule.startswith(("ib.", "pcie."))]


async def test_a_port_that_goes_down_is_found_and_that_it_is_up_again(
    quiet: HealthWatch, clock: Clock, tmp_path: Path
) -> None:
    port = tmp_path / "sys" / NIC / "infiniband/mlx5_0/ports/1"
    assert await looks(quiet, clock, 3) == {}
    put(port, state="1: DOWN", rate="2.5 Gb/sec (1X SDR)")
    assert await looks(quiet, clock) == {}
    assert await looks(quiet, clock) == {"ib.port/mlx5_0:1": "the port is down"}
    put(port, state="4: ACTIVE", rate="400 Gb/sec (4X NDR)")
    assert await looks(quiet, clock, 5)
    assert await looks(quiet, clock, 7) == {}


async def test_a_port_that_was_never_up_is_not_missed(quiet: HealthWatch, clock: Clock, tmp_path: Path) -> None:
    put(tmp_path / "sys" / NIC / "infiniband/mlx5_0/ports/1", state="1: DOWN")
    assert await looks(quiet, clock, 30) == {}


async def test_errors_of_buses_memory_and_disks_are_found(quiet: HealthWatch, clock: Clock, tmp_path: Path) -> None:
    root = tmp_path / "sys"
    await looks(quiet, clock, 2)
    put(root / NIC, aer_dev_fatal="TOTAL_ERR_FATAL 1", current_link_width="8")
    put(root / "devices/system/edac/mc/mc0", ue_count="1")
    put(root / "fs/ext4/nvme0n1p1", errors_count="2")
    put(root / "class/nvme/nvme0", state="dead")
    assert await looks(quiet, clock, 4) == {
        "pcie.fatal/0000:5e:00.0": "1 fatal error on its bus within 24 h",
        "pcie.narrowed/mlx5_0": "its PCIe link is x8; it was 16 before",
        "memory.uncorrected/mc0": "1 memory error beyond correction within 24 h",
        "disk.errors/nvme0n1p1": "2 errors of the file system within 24 h",
        "disk.dead/nvme0": "the drive is dead",
    }


async def test_findings_outlast_the_agent_within_one_boot(
    quiet: HealthWatch, clock: Clock, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await looks(quiet, clock, 2)
    put(tmp_path / "sys" / "devices/system/edac/mc/mc0", ue_count="1")
    before = await looks(quiet, clock)
    again, _ = host(tmp_path, reader.SimulatedSource("h", 0), log)
    assert before and await looks(again, clock, 3) == before
    again.close()
    monkeypatch.setattr(processes, "boot_id", lambda: "another")
    booted, _ = host(tmp_path, reader.SimulatedSource("h", 0), log)
    assert await looks(booted, clock, 3) == {}
    booted.close()
    (tmp_path / "health.json").write_text("not JSON")
    broken, _ = host(tmp_path, reader.SimulatedSource("h", 0), log)
    assert await looks(broken, clock) == {}
    broken.close()


async def test_a_finding_stands_as_long_after_a_restart_as_its_newest_error_says(
    tmp_path: Path, log: Log, clock: Clock
) -> None:
    errors = tree(tmp_path / "sys") / "fs/ext4/nvme0n1p1"
    source = reader.SimulatedSource("h", 0)
    health, _ = host(tmp_path, source, log)
    for count in (0, 1, 2):
        put(errors, errors_count=str(count))
        assert len(await looks(health, clock)) == min(count, 1)
        clock.now += 20 * 3600 if count else 0
    health.close()
    health, _ = host(tmp_path, source, log)
    assert list(await looks(health, clock)) == ["disk.errors/nvme0n1p1"], "20 h after the newest"
    clock.now += 5 * 3600
    assert await looks(health, clock) == {}
    health.close()


async def test_a_switchs_fatal_error_is_found_and_one_from_before_the_agent_is_not(
    quiet: HealthWatch, clock: Clock, log: Log
) -> None:
    log.say(SXID)
    assert await looks(quiet, clock, 2) == {}
    log.say(SXID)
    assert await looks(quiet, clock) == {
        "nvswitch.fatal/0000:c1:00.0": "1 fatal error (SXid) of the switch within 24 h"
    }
    log.say(SXID.replace(b"c1:", b"c2:"))
    assert len(await looks(quiet, clock)) == 2, "the first error of a switch is one too"


async def test_a_log_that_may_not_be_read_costs_nothing_else(tmp_path: Path, clock: Clock) -> None:
    def refuse() -> int:
        raise PermissionError

    source = reader.SimulatedSource("h", 0)
    gpus = GpuWatch(source, host_pb2.Inventory(), FaultFile(tmp_path / "faults.json"), lambda _: None)
    health = HealthWatch(source, gpus, tmp_path / "health.json", tree(tmp_path / "sys"), KernelLog(refuse))
    put(tmp_path / "sys/class/nvme/nvme0", state="dead")
    assert await looks(health, clock, 2) == {"disk.dead/nvme0": "the drive is dead"}
    health.close()


async def test_a_flood_in_the_log_is_read_in_portions(log: Log) -> None:
    kernel_log = KernelLog(log.open)
    log.say(*[XID_79] * 100)
    assert len(kernel_log.news()) == 64
    assert kernel_log.caught_up
    log.say(b"6,%d,1,-;eth0: link is up", XID_95)
    assert kernel_log.news() == [GpuError("0000:17:00", 95)]
    kernel_log.close()


@pytest.fixture
async def driven(fake_nvml: FakeNvml, tmp_path: Path, log: Log) -> AsyncIterator[tuple[HealthWatch, GpuWatch]]:
    fake_nvml.gpus(2)
    tree(tmp_path / "sys")
    source = reader.NvmlSource(LIMITS)
    made = host(tmp_path, source, log)
    assert await made[1].read()
    yield made
    made[0].close()
    await source.aclose()


async def test_what_the_log_says_while_a_device_does_not_answer_is_not_lost(
    quiet: HealthWatch, clock: Clock, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await looks(quiet, clock) == {}
    stuck = threading.Event()
    monkeypatch.setattr(watch, "WITHIN_S", 0.2)

    def look(_: object) -> list[object]:
        stuck.wait(20)
        return []

    monkeypatch.setattr(sysfs, "look", look)
    log.say(SXID)
    try:
        assert list(await looks(quiet, clock)) == ["nvswitch.fatal/0000:c1:00.0"]
    finally:
        stuck.set()


@pytest.mark.require("cc")
async def test_every_figure_of_the_driver_is_read(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, fake_nvml: FakeNvml
) -> None:
    health, _ = driven
    fake_nvml.say(
        "util 0 97 40", "pcie 0 8 16 4 5", "links 0 17 18", "links 1 18 18", "corrected 0 20000000", "rows 0 600",
        "sram 0 1", "fabric 0 2", "temperature 0 91", "limit 0 90", "field 0 82 97", "field 0 270 0", "field 0 59 1",
    )  # fmt: skip
    await looks(health, clock)
    fake_nvml.say("field 1 82 60")
    assert await looks(health, clock, 6) == {
        "gpu.pcie_width/GPU-0": "GPU 0: its link is x8 of x16",
        "gpu.pcie_speed/GPU-0": "GPU 0: its link runs at PCIe 4 of 5",
        "gpu.nvlink/GPU-0": "GPU 0: 17 of 18 NVLinks are up",
        "gpu.corrected/GPU-0": "GPU 0: 20000000 corrected memory errors",
        "gpu.remapped_rows/GPU-0": "GPU 0: 600 memory rows replaced after errors",
        "gpu.sram/GPU-0": "GPU 0: too many uncorrectable errors of its SRAM",
        "gpu.fabric/GPU-0": "GPU 0: it has not joined its NVLink fabric",
        "gpu.hot/GPU-0": "GPU 0: it is 1 °C above the temperature at which it is slowed down",
        "gpu.memory_hot/GPU-0": "GPU 0: its memory is at 97 °C",
    }


@pytest.mark.require("cc")
async def test_a_gpu_that_its_hardware_slows_down_and_a_link_that_is_trained_again(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, fake_nvml: FakeNvml
) -> None:
    health, _ = driven
    fake_nvml.say("field 0 270 5000000000", "field 0 215 4")
    await looks(health, clock)
    fake_nvml.replace()
    fake_nvml.gpus(2)
    fake_nvml.say("field 0 270 95000000000", "field 0 215 5")
    assert await looks(health, clock) == {
        "gpu.slowed/GPU-0": "90 s in which GPU 0 was slowed down by its hardware within 10 min",
        "gpu.nvlink_errors/GPU-0": "1 time an NVLink of GPU 0 was trained again within 1 h",
    }


@pytest.mark.require("cc")
async def test_a_counter_that_cannot_be_read_for_a_while_has_not_grown(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    health, _ = driven
    counters = tmp_path / "sys" / NIC / "infiniband/mlx5_0/ports/1/counters"
    put(counters, excessive_buffer_overrun_errors="90")
    fake_nvml.say("field 0 59 40", "field 0 215 7", "field 0 270 60000000000", "field 0 271 90000000000")
    await looks(health, clock)
    put(counters, excessive_buffer_overrun_errors="")
    fake_nvml.say("lost 0 215", "lost 0 271")
    assert await looks(health, clock) == {}
    put(counters, excessive_buffer_overrun_errors="90")
    fake_nvml.replace()
    fake_nvml.gpus(2)
    fake_nvml.say("field 0 59 40", "field 0 215 7", "field 0 270 60000000000", "field 0 271 90000000000")
    assert await looks(health, clock, 2) == {}


@pytest.mark.require("cc")
async def test_a_driver_that_tells_nothing_or_fails_is_no_finding(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, fake_nvml: FakeNvml
) -> None:
    health, _ = driven
    fake_nvml.say("pcie 0 8 16 5 5", "util 0 99 1", "sram 0 1")
    before = await looks(health, clock, 4)
    assert len(before) == 2
    fake_nvml.say("fail nvmlDeviceGetCount_v2 -1 999")
    assert await looks(health, clock, 3) == before
