"""Reads this host's inventory, apart from its GPUs, once at the agent's start."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path

import psutil

from holdfast.errors import AddressUnavailable
from holdfast.v1 import host_pb2
from holdfast_agent.shell.base import traits

_CGROUPS = Path("/sys/fs/cgroup")
# Reserved for documentation, so no site's own network; asking for the route to it sends nothing.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def message(cpus: int, most_workers: int, no_containers: str) -> host_pb2.Inventory:
    """The inventory for the controller, without GPUs. ``no_containers`` says why none run here."""
    root = os.geteuid() == 0
    return host_pb2.Inventory(
        cpu_count=cpus,
        memory_bytes=memory_bytes(),
        max_workers=most_workers,
        accounts=root,
        accounts_problem="" if root else "its agent is not root",
        containers=not no_containers,
        containers_problem=no_containers,
        gives_secrets=True,
        traits=traits.found(),
    )


def cpu_count(cgroups: Path = _CGROUPS) -> int:
    """Cores that work may use: those that the agent may run on, and no more than a container's quota.

    Only the limit of the topmost visible cgroup counts. A host has none there, a container has its own; a limit
    further down, such as the agent's own unit's, is not the workers'.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = _words(cgroups / "cpu.max")  # "max 100000", or microseconds of each period
    if not quota:
        quota = _words(cgroups / "cpu/cpu.cfs_quota_us") + _words(cgroups / "cpu/cpu.cfs_period_us")
    if len(quota) != 2 or quota[0] in ("max", "-1"):
        return allowed
    return max(1, min(allowed, math.floor(int(quota[0]) / int(quota[1]))))


def memory_bytes(cgroups: Path = _CGROUPS) -> int:
    """Memory of the host, and no more than a container's limit (see ``cpu_count``)."""
    total = int(psutil.virtual_memory().total)
    limit = _words(cgroups / "memory.max") or _words(cgroups / "memory/memory.limit_in_bytes")
    return min(total, int(limit[0])) if limit and limit[0] != "max" else total


def host_address(interface: str = "") -> str:
    """The address that workers on other hosts can use: the interface's, or else that of the default route.

    IPv4 before IPv6, never link-local. Loopback where the host has no route at all. Raises ``ConfigError`` for an
    interface that doesn't exist or has no address.
    """
    if not interface:
        return next(filter(None, (_source_address(*target) for target in _ELSEWHERE)), "127.0.0.1")
    addresses = psutil.net_if_addrs()
    if interface not in addresses:
        known = ", ".join(sorted(addresses))
        raise AddressUnavailable(f"This host has no network interface {interface!r}.", fix=f"Known: {known}.")
    for family in (socket.AF_INET, socket.AF_INET6):
        for found in addresses[interface]:
            if found.family == family and not found.address.lower().startswith("fe80:"):
                return found.address
    raise AddressUnavailable(f"The network interface {interface!r} has no usable address.")


def _source_address(family: socket.AddressFamily, target: str) -> str:
    """The address of ours that the kernel would send from, or empty where there is no route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        return []
