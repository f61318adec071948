"""Reads the health of buses, memory, ports and disks where the kernel shows it: a few hundred small files.

Each reader gives what it finds; a file that is missing or says something unexpected is no reading.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast_agent.core.health.engine import Reading, counted
from holdfast_agent.shell.base.kernel_files import names, text

_ERRORS = {
    "pcie.fatal": ("aer_dev_fatal", "TOTAL_ERR_FATAL", "fatal error{} on its bus"),
    "pcie.nonfatal": ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", "nonfatal error{} on its bus"),
    "pcie.correctable": ("aer_dev_correctable", "TOTAL_ERR_COR", "corrected error{} on its bus"),
}
_PORT_ERRORS = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
_ACTIVE = "4:"


def look(root: Path) -> list[Reading]:
    """Everything that ``root``, the kernel's /sys, says."""
    return [*_buses(root), *_memory(root), *_ports(root), *_disks(root)]


def _buses(root: Path) -> Iterator[Reading]:
    """All devices but virtual functions, whose link is that of their adapter: there may be thousands."""
    for device in _folders(root / "bus" / "pci" / "devices"):
        if (device / "physfn").exists():
            continue
        epoch = _epoch(device)
        for rule, (name, key, what) in _ERRORS.items():
            count = _labelled(device / name, key)
            if count is not None:
                yield counted(rule, device.name, count, what, epoch)


def _memory(root: Path) -> Iterator[Reading]:
    for controller in _folders(root / "devices" / "system" / "edac" / "mc", "mc"):
        for rule, name, what in (
            ("memory.uncorrected", "ue_count", "memory error{} beyond correction"),
            ("memory.corrected", "ce_count", "corrected memory error{}"),
        ):
            count = _number(controller / name)
            if count is not None:
                yield counted(rule, controller.name, count, what, _epoch(controller))


def _ports(root: Path) -> Iterator[Reading]:
    """InfiniBand and RoCE. Virtual functions are their users' affair."""
    for adapter in _folders(root / "class" / "infiniband"):
        if (adapter / "device" / "physfn").exists():
            continue
        epoch = _epoch(adapter)
        width = _number(adapter / "device" / "current_link_width")
        if width is not None:
            yield Reading("pcie.narrowed", adapter.name, width, f"its PCIe link is x{width:g}", epoch)
        for port in _folders(adapter / "ports"):
            name = f"{adapter.name}:{port.name}"
            state = text(port / "state")
            active = state.startswith(_ACTIVE)
            if state:
                yield Reading("ib.port", name, float(active), f"the port is {_word(state)}", epoch)
            rate = text(port / "rate").split(" ")[0]
            if active and rate.replace(".", "", 1).isdecimal():
                yield Reading("ib.rate", name, float(rate), f"the port runs at {rate} Gbit/s", epoch)
            downs = _number(port / "counters" / "link_downed")
            if downs is not None:
                yield counted("ib.flaps", name, downs, "time{} the link went down", epoch)
            told = [count for each in _PORT_ERRORS if (count := _number(port / "counters" / each)) is not None]
            if len(told) == len(_PORT_ERRORS):  # one that can't be read now and comes again has not grown
                yield counted("ib.errors", name, sum(told), "error{} of the link", epoch)


def _disks(root: Path) -> Iterator[Reading]:
    for volume in _folders(root / "fs" / "ext4"):
        count = _number(volume / "errors_count")
        if count is not None:
            yield counted("disk.errors", volume.name, count, "error{} of the file system", _epoch(volume))
    for drive in _folders(root / "class" / "nvme"):
        state = text(drive / "state")
        if state:
            yield Reading("disk.dead", drive.name, float(state == "dead"), f"the drive is {state}")


def _folders(folder: Path, prefix: str = "") -> list[Path]:
    return [folder / name for name in names(folder, prefix)]


def _epoch(folder: Path) -> str:
    """Other text once the kernel has made this device again: each directory of sysfs has an inode of its own."""
    try:
        return str(os.stat(folder).st_ino)
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    found = text(path)
    return float(found) if found.isdecimal() and len(found) <= 20 else None


def _labelled(path: Path, key: str) -> float | None:
    """The number of the line that begins with ``key``."""
    for line in text(path).splitlines():
        label, _, number = line.rpartition(" ")
        if label == key:
            with suppress(ValueError):
                return float(number)
    return None


def _word(state: str) -> str:
    """``1: DOWN`` as a word."""
    return state.partition(":")[2].strip().lower() or state
