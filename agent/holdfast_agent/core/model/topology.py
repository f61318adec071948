"""A host's cores, memory nodes, GPUs and network cards, and how near they are to each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass

MOST_CPUS = 8192
"""The kernel's own bound; a list that names a higher number is no list."""
UNKNOWN = -1
"""The node of what the kernel says no node of."""
_SPAN = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_PARTS = re.compile(r"[0-9]+|[^0-9]+")
OTHER_BRIDGE, OTHER_NODE = 100, 200
"""Added to the steps between devices below different host bridges: more than any path within one has."""


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core that work may use."""

    cpus: tuple[int, ...]
    """Its hyper-threads, as far as work may use them, in ascending order."""
    node: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Device:
    """A PCI device. ``path`` holds what it is below, from the host bridge down to itself; empty where unknown."""

    name: str
    node: int = UNKNOWN
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that a binding is chosen by. Empty where the kernel shows nothing."""

    cores: tuple[Core, ...] = ()
    """In the order of their first CPU."""
    gpus: Mapping[str, Device] = field(default_factory=dict)
    """By UUID; MIG instances are where their GPU is."""
    nics: tuple[Device, ...] = ()
    distances: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By node: the kernel's distance from it to each node, in the order of their numbers."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes of whose cores work may use any."""
        return tuple(sorted({core.node for core in self.cores if core.node != UNKNOWN}))

    def distance(self, home: Iterable[int], node: int) -> int:
        """The least distance of a node from any of ``home``."""
        known = (self.distances.get(each, ()) for each in home)
        return min((row[node] for row in known if 0 <= node < len(row)), default=OTHER_NODE)

    def nearest_nics(self, gpus: Iterable[Device]) -> tuple[str, ...]:
        """Names of all network cards, those with the fewest steps to any of the GPUs first."""
        near = list(gpus)

        def order(nic: Device) -> tuple[int, list[tuple[int, str]]]:
            return min((_steps(nic, gpu) for gpu in near), default=0), _natural(nic.name)

        return tuple(nic.name for nic in sorted(self.nics, key=order))


def cpus_in(text: str) -> frozenset[int]:
    """The numbers of a list as the kernel writes them, such as 0-15,64-79; none for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        span = _SPAN.fullmatch(part)
        if span is None:
            return frozenset()
        first, last = int(span[1]), int(span[2] or span[1])
        if not first <= last < MOST_CPUS:
            return frozenset()
        found.update(range(first, last + 1))
    return frozenset(found)


def _steps(one: Device, other: Device) -> int:
    shared = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a != b:
            break
        shared += 1
    steps = len(one.path) + len(other.path) - 2 * shared
    if shared:
        return steps
    same = one.node == other.node != UNKNOWN
    return steps + (OTHER_BRIDGE if same else OTHER_NODE)


def _natural(name: str) -> list[tuple[int, str]]:
    """An order in which mlx5_2 comes before mlx5_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _PARTS.findall(name)]
