"""Builds the scripted NVML and writes its script. See ``nvml.c`` for the language."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
SCRIPT = "FAKE_NVML_SCRIPT"
"""The variable that names a driver's script."""
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = 3, 4, 9, 15, 18
UNKNOWN = 999
PCIE_RX_FIELD = 198
FIGURES = (
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetFieldValues",
    "nvmlGpmQueryDeviceSupport",
)
"""What tells what a device does."""
INVENTORY = ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName", "nvmlDeviceGetMigMode")
"""What tells what a device is."""
IDENTITY = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID")


def build(directory: Path) -> Path:
    """Compile ``libnvidia-ml.so.1`` into ``directory``; returns the directory, for ``LD_LIBRARY_PATH``."""
    source = Path(__file__).with_name("nvml.c")
    target = directory / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", target, source], check=True)
    return directory


@dataclass(frozen=True)
class Doing:
    """What a device does from now on."""

    watts: float
    util_pct: float
    memory_util_pct: float
    link_bytes_s: float = 0.0


ASLEEP = Doing(80, 0, 0)
TRAINING = Doing(600, 98, 45, 2e9)
SPINNING = Doing(150, 100, 1)
"""152 W was measured on a 700 W card that spun in a collective."""


class _Meters:
    """One device's counters, which never fall, whatever it does."""

    def __init__(self, doing: Doing) -> None:
        self.doing = doing
        self.since_s = time.monotonic()
        self.energy_mj = 1e9
        self.link_bytes = 1e9

    def turn(self, doing: Doing) -> None:
        passed_s = time.monotonic() - self.since_s
        self.energy_mj += self.doing.watts * 1e3 * passed_s
        self.link_bytes += self.doing.link_bytes_s * passed_s
        self.since_s += passed_s
        self.doing = doing

    def lines(self, device: int) -> list[str]:
        now, since = self.doing, f"{self.since_s:.6f}"
        return [
            f"energy {device} {self.energy_mj:.0f} {now.watts * 1e3:.0f} {since}",
            f"util {device} {now.util_pct:.0f} {now.memory_util_pct:.0f}",
            f"field {device} {PCIE_RX_FIELD} {self.link_bytes:.0f} {now.link_bytes_s:.0f} {since}",
        ]


class FakeNvml:
    """A driver whose script can be changed while programs use it."""

    def __init__(self, library_dir: Path, script: Path) -> None:
        self.library_dir = library_dir
        self.script = script
        self.lines: list[str] = []
        self._meters: dict[int, _Meters] = {}
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to load this driver."""
        return {"LD_LIBRARY_PATH": str(self.library_dir), SCRIPT: str(self.script)}

    def say(self, *lines: str) -> None:
        """Append statements."""
        self.lines.extend(lines)
        self._write()

    def replace(self, *lines: str) -> None:
        """A new script in place of the old one; what devices do goes on."""
        self.lines = list(lines)
        self._write()

    def gpus(self, count: int, *, total: int = 80 * GIB, used: int = 0) -> None:
        """Append ``count`` whole GPUs, ``GPU-0`` and on, each on a bus of its own, in bus order."""
        self.say(
            *(f"gpu GPU-{i} 00000000:{0x17 + i:02X}:00.0 {total} {used} NVIDIA H100 80GB" for i in range(count))
        )

    def do(self, devices: Iterable[int], doing: Doing) -> None:
        """These devices do that from now on; their counters run on."""
        for device in devices:
            if device in self._meters:
                self._meters[device].turn(doing)
            else:
                self._meters[device] = _Meters(doing)
        self._write()

    def lose(self, device: int, *functions: str) -> None:
        """The GPU falls off the bus: these functions say so, unless others are named all that tell figures."""
        self.say(*(f"fail {name} {device} {GPU_IS_LOST}" for name in functions or (*FIGURES, *INVENTORY)))

    def _write(self) -> None:
        # Renamed into place, since a program may be reading the old one.
        new = self.script.with_suffix(".new")
        meters = [line for device, each in self._meters.items() for line in each.lines(device)]
        new.write_text("".join(f"{line}\n" for line in (*self.lines, *meters)))
        new.rename(self.script)
