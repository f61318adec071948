"""Keeps the faults of GPUs over the agent's restarts, and reads which enumeration of a device the driver uses.

Faults are in ``gpu_faults.json``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast_agent.core.gpu.faults import FaultyGpu
from holdfast_agent.core.model.gpus import Gpu
from holdfast_agent.shell.base.boot_file import BootFile
from holdfast_agent.shell.base.topology import sysfs_name


class FaultFile:
    """``gpu_faults.json`` of one host; ``sysfs`` is where the kernel shows modules and devices."""

    def __init__(self, path: Path, sysfs: Path = Path("/sys")) -> None:
        self._kept = BootFile(path, "gpus", tuple[FaultyGpu, ...], ())
        self._sysfs = sysfs

    def read(self) -> dict[str, FaultyGpu]:
        """Faulty GPUs by UUID that earlier runs of the agent found since the last boot."""
        return {each.gpu.uuid: each for each in self._kept.load()}

    def write(self, faulty: Iterable[FaultyGpu]) -> None:
        """Keep them for the agent's next run."""
        self._kept.try_to_save(tuple(faulty))

    def enumerations(self, gpus: Iterable[Gpu]) -> dict[str, str]:
        """By UUID: other text once the driver's module was loaded again or the device was removed and found again.

        The inode numbers of sysfs: each directory there has its own for as long as it exists.
        """
        module = _inode(self._sysfs / "module" / "nvidia")
        found = {}
        for gpu in gpus:
            device = _inode(self._sysfs / "bus" / "pci" / "devices" / sysfs_name(gpu.bus_id)) if gpu.bus_id else ""
            found[gpu.uuid] = f"{module}/{device}" if module and device else ""
        return found


def _inode(path: Path) -> str:
    try:
        return str(path.stat().st_ino)
    except OSError:
        return ""
