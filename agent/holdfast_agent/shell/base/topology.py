"""Reads where a host's cores, GPUs and network cards are, from the kernel's /sys: some hundred small files.

What is missing, or says something unexpected, is unknown. Nothing here raises for what a file says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from holdfast_agent.core.model.topology import UNKNOWN, Core, Device, Topology, cpus_in
from holdfast_agent.shell.base.kernel_files import names, text

SYSFS = Path("/sys")
MOST_NODES = 1024
LONG = 1 << 16
"""Bytes of a list of CPUs or distances."""
_NODE = re.compile(r"node([0-9]{1,4})")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2,3}:[0-9a-f]{2}\.[0-7]")
_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def read(
    root: Path = SYSFS, cpus: Collection[int] | None = None, bus_ids: Mapping[str, str] | None = None
) -> Topology:
    """The topology of the CPUs that work may use: the agent's own unless given. ``bus_ids`` of GPUs by their UUID."""
    allowed = frozenset(os.sched_getaffinity(0) if cpus is None else cpus)
    node_of: dict[int, int] = {}
    distances: dict[int, tuple[int, ...]] = {}
    nodes = root / "devices" / "system" / "node"
    for name in names(nodes):
        if (found := _NODE.fullmatch(name)) and int(found[1]) < MOST_NODES:
            number = int(found[1])
            node_of |= dict.fromkeys(cpus_in(text(nodes / name / "cpulist", LONG)), number)
            row = text(nodes / name / "distance", LONG).split()
            if row and all(each.isdecimal() and len(each) <= 5 for each in row):
                distances[number] = tuple(map(int, row))
    devices = root / "bus" / "pci" / "devices"
    return Topology(
        cores=tuple(_cores(root / "devices" / "system" / "cpu", allowed, node_of)),
        gpus={uuid: _gpu(uuid, devices, sysfs_name(bus_id)) for uuid, bus_id in (bus_ids or {}).items()},
        nics=tuple(_nics(root)),
        distances=distances,
    )


def sysfs_name(bus_id: str) -> str:
    """The name in sysfs of the device with a bus id of NVML's, such as 00000000:17:00.0."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def _cores(folder: Path, allowed: frozenset[int], node_of: Mapping[int, int]) -> Iterable[Core]:
    left = set(allowed)
    for cpu in sorted(allowed):
        if cpu in left:
            siblings = cpus_in(text(folder / f"cpu{cpu}" / "topology" / "thread_siblings_list", LONG))
            node = node_of.get(cpu, UNKNOWN)
            together = {each for each in siblings & left if node_of.get(each, UNKNOWN) == node} | {cpu}
            left -= together
            yield Core(tuple(sorted(together)), node)


def _nics(root: Path) -> Iterable[Device]:
    """Adapters of InfiniBand and RoCE, or else network interfaces, as far as they are PCI devices.

    Virtual functions are their users' affair.
    """
    for kind in ("infiniband", "net"):
        folder = root / "class" / kind
        physical = [name for name in names(folder) if not os.path.lexists(folder / name / "device" / "physfn")]
        found = [_device(name, folder / name / "device") for name in physical]
        if cards := [each for each in found if each.path]:
            return cards
    return []


def _gpu(uuid: str, devices: Path, name: str) -> Device:
    return _device(uuid, devices / name) if _PCI.fullmatch(name) else Device(uuid)


def _device(name: str, link: Path) -> Device:
    try:
        target = os.path.realpath(link, strict=True)
    except (OSError, ValueError):
        return Device(name)
    parts = target.split("/")
    first = next((at for at, part in enumerate(parts) if _BRIDGE.fullmatch(part)), len(parts))
    path = tuple(part for part in parts[first:] if _BRIDGE.fullmatch(part) or _PCI.fullmatch(part))
    node = text(Path(target) / "numa_node")
    known = node.isdecimal() and len(node) <= 4 and int(node) < MOST_NODES
    return Device(name, int(node) if known else UNKNOWN, path)
