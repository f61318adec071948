"""Capacity of a host, free or in all, and which GPU models match a name that a job asks for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_controller.core.model.gang import Pool
from holdfast_controller.core.model.hosts.caution import caution
from holdfast_controller.core.model.hosts.host import Host, Inventory, Place, partition_of, whole_model
from holdfast_controller.core.model.hosts.machine_types import MachineType

_VENDOR = {"NVIDIA", "TESLA", "GEFORCE", "AMD"}
_OF_MACHINE = {"MEGA"}
"""Words of managed services' names that say which machine a GPU is in, not which GPU it is."""
_SIZE = re.compile(r"[0-9]+GB?")
_MIB = 1 << 20
NOTHING = Inventory(0, 0)


@dataclass(slots=True)
class HostCapacity:
    """A host's free capacity. ``take`` reduces it; what several plans share is copied before that.

    In slots: a plan goes through those of ten thousand hosts, and takes as long as their memory is large.
    """

    host: str
    cpus: int
    memory_mb: int
    slots: int
    gpus: list[tuple[str, str]]
    """(uuid, model), in index order."""
    no_containers: str = ""
    """Why no work runs in containers here."""
    no_accounts: str = ""
    """Why no work runs here as an account of its own."""
    gives_secrets: bool = False
    revocable_gpus: int = 0
    """GPUs that revocable jobs hold here."""
    caution: int = 0
    """Signs against the host: it is chosen after those that have fewer."""
    excess: int = 0
    """As ``Host.excess``: it is chosen after its equals that have less."""
    labels: dict[str, str] = field(default_factory=dict)
    is_partitioned: bool = False
    """Some of its GPUs are MIG instances."""
    inventory: Inventory = NOTHING
    """All that the host has."""

    _fullness: tuple[int, int, int, str] | None = field(default=None, init=False, repr=False, compare=False)
    _emptiness: tuple[int, int, int, int, str] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def fullness(self) -> tuple[int, int, int, str]:
        """Sort key by which a worker with GPUs takes the host first that has least left without revocable jobs."""
        if self._fullness is None:
            self._fullness = self.caution, len(self.gpus) + self.revocable_gpus, self.excess, self.host
        return self._fullness

    @property
    def emptiness(self) -> tuple[int, int, int, int, str]:
        """Sort key by which a worker without GPUs takes the emptiest host first."""
        if self._emptiness is None:
            self._emptiness = self.caution, -self.slots, -self.cpus, self.excess, self.host
        return self._emptiness

    def fits(self, pool: Pool) -> bool:
        """Whether one worker of ``pool`` has room here."""
        # First what most hosts lack in a busy cluster: a plan asks this of every host.
        return (
            len(self.gpus) >= pool.gpus
            and self.slots >= 1
            and self.cpus >= pool.cpus
            and self.memory_mb >= pool.memory_mb
            and (not pool.gpus or self.matching(pool) >= pool.gpus)
            and self.suits(pool)
        )

    def suits(self, pool: Pool) -> bool:
        """Whether workers of ``pool`` may have this host if it has room for them, whatever GPUs it has."""
        if pool.asks_for_sizes_alone:
            return True
        return (
            not (self.no_containers and pool.task.image)
            and not (self.no_accounts and pool.task.account)
            and (self.gives_secrets or not pool.task.secrets)
            and (not pool.is_choosy or self.is_admitted(pool))
        )

    def is_admitted(self, pool: Pool) -> bool:
        """Whether workers of ``pool`` may have this host, by its own selector and its machine types."""
        if not pool.admits(self.host, self.labels):
            return False
        return all(is_of(machine, self.labels, self.inventory) for machine in pool.machines)

    def matching(self, pool: Pool) -> int:
        """Free GPUs, or MIG instances, of the model and the profile that the pool asks for."""
        if not (pool.gpu_type or pool.gpu_partition or self.is_partitioned):
            return len(self.gpus)
        if model := self.inventory.only_model:
            return len(self.gpus) if gpu_matches(pool.gpu_type, pool.gpu_partition, model) else 0
        return sum(1 for _, model in self.gpus if gpu_matches(pool.gpu_type, pool.gpu_partition, model))

    def copy(self) -> HostCapacity:
        """The same room, to be used up by another plan."""
        # Not ``replace``, which takes three times as long.
        return HostCapacity(
            self.host,
            self.cpus,
            self.memory_mb,
            self.slots,
            self.gpus.copy(),
            self.no_containers,
            self.no_accounts,
            self.gives_secrets,
            self.revocable_gpus,
            self.caution,
            self.excess,
            self.labels,
            self.is_partitioned,
            self.inventory,
        )

    def of_another(self, host: Host) -> HostCapacity:
        """The same room on another host of its kind; GPUs keep their names."""
        inventory = host.inventory
        return HostCapacity(
            host.name,
            self.cpus,
            self.memory_mb,
            self.slots,
            self.gpus,
            inventory.no_containers,
            inventory.no_accounts,
            self.gives_secrets,
            self.revocable_gpus,
            caution(host),
            host.excess,
            host.labels,
            self.is_partitioned,
            inventory,
        )

    def beside_gpus(
        self, cpus: int, memory_mb: int, slots: int, gpus: Sequence[tuple[str, str]] = ()
    ) -> HostCapacity:
        """A part of the same room, without its GPUs but for ``gpus``."""
        return HostCapacity(
            self.host,
            cpus,
            memory_mb,
            slots,
            list(gpus),
            self.no_containers,
            self.no_accounts,
            self.gives_secrets,
            self.revocable_gpus,
            self.caution,
            self.excess,
            self.labels,
            bool(gpus) and self.is_partitioned,
            self.inventory,
        )

    def beside(self, taken: Sequence[tuple[Pool, Place]]) -> HostCapacity:
        """The part of the same room that workers of these pools leave, who have these places."""
        uuids = {uuid for _, place in taken for uuid in place.gpus}
        left = self.copy()
        left.gpus = [gpu for gpu in left.gpus if gpu[0] not in uuids]
        left.cpus -= sum(pool.cpus for pool, _ in taken)
        left.memory_mb -= sum(pool.memory_mb for pool, _ in taken)
        left.slots -= len(taken)
        return left

    def take(self, pool: Pool) -> Place:
        """Reserve one worker's share."""
        if pool.gpu_type or pool.gpu_partition or self.is_partitioned:
            chosen = [g for g in self.gpus if gpu_matches(pool.gpu_type, pool.gpu_partition, g[1])][: pool.gpus]
            self.gpus = [g for g in self.gpus if g not in chosen]
        else:
            chosen, self.gpus = self.gpus[: pool.gpus], self.gpus[pool.gpus :]
        self.cpus -= pool.cpus
        self.memory_mb -= pool.memory_mb
        self.slots -= 1
        self._fullness = self._emptiness = None
        return Place(self.host, tuple(uuid for uuid, _ in chosen))


def fitting(pool: Pool, capacities: Iterable[HostCapacity]) -> list[HostCapacity]:
    """The capacities that one worker of ``pool`` has room in; see ``HostCapacity.fits``."""
    gpus, cpus, memory_mb = pool.gpus, pool.cpus, pool.memory_mb
    alone = pool.asks_for_sizes_alone
    # Without a call for each: a plan asks this of every host.
    return [
        left
        for left in capacities
        if len(left.gpus) >= gpus
        and left.slots >= 1
        and left.cpus >= cpus
        and left.memory_mb >= memory_mb
        and ((alone and not left.is_partitioned) or left.fits(pool))
    ]


@functools.lru_cache(maxsize=4096)
def model_matches(wanted: str, model: str) -> bool:
    """Whether a GPU model answers to a name such as ``NVIDIA_H100_80GB``; an empty name takes any.

    A memory size counts where the model's name has one: "NVIDIA H200" is ``NVIDIA_H200_141GB``. Simulated GPUs stand
    in for every model.
    """
    has = _words(model)
    lacks = _words(wanted) - _VENDOR - _OF_MACHINE - has
    if "SIMULATED" in has or not lacks:
        return True
    return all(map(_SIZE.fullmatch, lacks)) and not any(map(_SIZE.fullmatch, has))


@functools.lru_cache(maxsize=4096)
def gpu_matches(wanted: str, partition: str, model: str) -> bool:
    """Whether a GPU answers to a model's name and a MIG profile. Without a profile only a whole GPU does.

    A name may have the profile in it, too: ``NVIDIA_H100_MIG_1g.10gb``; it is that one, not 1g.10gb+me or 1c.1g.10gb.
    """
    if "SIMULATED" in _words(model):
        return True
    own = partition_of(model)
    name, mig, profile = f" {' '.join(_listed(wanted))} ".partition(" MIG ")
    if not mig:
        return own == partition and model_matches(wanted, whole_model(model))
    is_alike = own == partition if partition else own != ""
    named = not profile.strip() or profile.split() == _listed(own)
    return is_alike and named and model_matches(name, whole_model(model))


def is_of(machine: MachineType, labels: Mapping[str, str], inventory: Inventory) -> bool:
    """Whether a host with these labels and this inventory is of a machine type. MIG instances aren't counted."""
    if inventory.cpus < machine.cpus or inventory.memory_bytes // _MIB < machine.memory_mb:
        return False
    if not all(each.holds(labels) for each in machine.match):
        return False
    least = machine.gpu_count or bool(machine.gpus)
    return not least or sum(gpu_matches(machine.gpus, "", gpu.model) for gpu in inventory.gpus) >= least


def types_of(host: Host, machines: Iterable[MachineType]) -> tuple[str, ...]:
    """Names of the machine types that a host is of."""
    return tuple(machine.name for machine in machines if is_of(machine, host.labels, host.inventory))


def _words(name: str) -> set[str]:
    return {*_listed(name)}


def _listed(name: str) -> list[str]:
    return re.findall(r"[A-Z0-9]+", name.upper())


def capacity_of(host: Host, without: frozenset[str] = frozenset(), *, empty: bool = False) -> HostCapacity:
    """The free capacity of a host; with ``empty``, that of the host without any work; or without certain shares."""
    inventory = host.inventory
    held = [a for key, a in host.allocations.items() if not (empty or key in without)]
    orphans = [] if empty else list(host.orphans.values())
    taken = {uuid for share in held for uuid in share.gpus}
    taken |= {uuid for orphan in orphans for uuid in orphan.gpus}
    gpus = sorted(
        (
            g
            for g in inventory.gpus
            if (empty or not (g.problem or g.uuid in host.condemned)) and g.uuid not in taken
        ),
        key=lambda g: g.index,
    )
    if inventory.gpu_problem and not empty:
        gpus = []
    return HostCapacity(
        host=host.name,
        cpus=inventory.cpus - sum(a.cpus for a in held),
        memory_mb=inventory.memory_bytes // _MIB - sum(a.memory_mb for a in held),
        slots=inventory.max_workers - len(held) - len(orphans),
        gpus=[(g.uuid, g.model) for g in gpus],
        no_containers=inventory.no_containers,
        no_accounts=inventory.no_accounts,
        gives_secrets=inventory.gives_secrets,
        revocable_gpus=sum(len(a.gpus) for a in held if a.revocable),
        caution=caution(host),
        excess=host.excess,
        labels=host.labels,
        is_partitioned=inventory.is_partitioned,
        inventory=inventory,
    )
