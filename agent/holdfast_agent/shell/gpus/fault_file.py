"""Keeps the faults of GPUs over the agent's restarts, and reads which enumeration of a device the driver uses.

``gpu_faults.json`` is ``{"boot_id", "gpus": [FaultyGpu …]}``: of another boot it says nothing, so it need not survive
power loss, only the agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from holdfast._base.codec import Format, from_plain, to_plain
from holdfast._daemon import log
from holdfast_agent.core.gpu.faults import FaultyGpu
from holdfast_agent.core.model.gpus import Gpu
from holdfast_agent.shell.base.topology import sysfs_name
from holdfast_agent.shell.shims import shim_files

_KEPT = Format(skip_unknown=True)


class FaultFile:
    """``gpu_faults.json`` of one host; ``sysfs`` is where the kernel shows modules and devices."""

    def __init__(self, path: Path, sysfs: Path = Path("/sys")) -> None:
        self._path = path
        self._sysfs = sysfs

    def read(self) -> dict[str, FaultyGpu]:
        """Faulty GPUs by UUID that earlier runs of the agent found since the last boot."""
        try:
            said = json.loads(self._path.read_text())
            if said["boot_id"] == shim_files.boot_id():
                found = from_plain(tuple[FaultyGpu, ...], said["gpus"], _KEPT)
                return {each.gpu.uuid: each for each in found}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("file.corrupt", path=str(self._path), error=repr(error))
        return {}

    def write(self, faulty: Iterable[FaultyGpu]) -> None:
        """Keep them for the agent's next run; a disk that refuses costs the agent's memory of them, not the agent."""
        fresh = self._path.with_suffix(".new")
        kept = {"boot_id": shim_files.boot_id(), "gpus": [to_plain(each, _KEPT) for each in faulty]}
        try:
            fresh.write_text(json.dumps(kept) + "\n")
            fresh.replace(self._path)
        except OSError as error:
            log.warning("file.unwritten", path=str(self._path), error=str(error))

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
