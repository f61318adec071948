"""A folder that looks like the kernel's /sys, as far as cores, memory nodes and PCI devices go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def build(
    root: Path,
    nodes: Sequence[str] = (),
    *,
    siblings: Sequence[str] = (),
    gpus: Mapping[str, int] | None = None,
    nics: Mapping[str, tuple[str, int]] | None = None,
    kind: str = "infiniband",
) -> Path:
    """``nodes``: the CPU list of each. ``siblings``: CPU lists of cores with several hyper-threads.

    ``gpus``: PCI address and node; each is below a bridge of its own. ``nics``: by name, the address of the GPU next to
    which it is (or one that no GPU has) and its node.
    """
    for number, cpus in enumerate(nodes):
        folder = root / f"devices/system/node/node{number}"
        write(folder / "cpulist", cpus)
        write(folder / "distance", " ".join("10" if each == number else "21" for each in range(len(nodes))))
    for core in siblings:
        for cpu in core.split(","):
            write(root / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", core)
    for address, node in (gpus or {}).items():
        _device(root, address, address, node)
    for name, (near, node) in (nics or {}).items():
        address = f"{near[:-4]}{int(near[-4:-2], 16) + 1:02x}.0"
        folder = _device(root, address, near, node)
        link = root / "class" / kind / name / "device"
        link.parent.mkdir(parents=True)
        link.symlink_to(folder)
    return root


def _device(root: Path, address: str, bridge: str, node: int) -> Path:
    """A device below the bridge that is named for another one's bus; bridges of a node are below one host bridge."""
    bus = bridge.split(":")[1]
    folder = root / f"devices/pci0000:{max(node, 0):02x}/0000:{max(node, 0):02x}:{bus}.0" / address
    write(folder / "numa_node", node)
    link = root / "bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder
