"""An index of the hosts' free capacity, so that the host of a one-worker job is found without looking at all hosts.

The order is that of ``HostCapacity.fullness`` and ``emptiness``, which ``scheduling.placement`` uses for gangs too.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_controller.core.model.gang import Pool
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.host import Allocation, Host, job_of

Share = tuple[str, str, Allocation]
"""A job, the key of its share of a host, and that share."""


@dataclass
class FreeCapacity:
    """Free capacity by host, kept up to date by looking again only at hosts that have ``changed``."""

    _changed: set[str] = field(default_factory=set)
    _capacities: dict[str, HostCapacity] = field(default_factory=dict)
    _wholes: dict[str, HostCapacity] = field(default_factory=dict)
    """The same of the host when it is empty, as far as it was asked."""
    _shares: dict[str, tuple[Share, ...]] = field(default_factory=dict)
    _jobs: dict[str, frozenset[str]] = field(default_factory=dict)
    _emptiest: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    """(caution, minus slots, minus cores, excess, host)."""
    _fullest: list[tuple[int, int, int, str]] = field(default_factory=list)
    """(caution, GPUs, excess, host)."""

    def changed(self, host: str) -> None:
        """Note that a host's inventory or allocations changed, so that its capacity is computed again."""
        self._changed.add(host)

    def forget(self, host: str) -> None:
        """Remove a host that was removed from the cluster."""
        self._changed.discard(host)
        self._shares.pop(host, None)
        self._jobs.pop(host, None)
        self._wholes.pop(host, None)
        before = self._capacities.pop(host, None)
        if before is not None:
            self._take_out(before)

    def capacity_of(self, host: Host) -> HostCapacity:
        """The free capacity of a host; copy it before changing it."""
        found = self._capacities.get(host.name)
        if found is None or (self._changed and host.name in self._changed):
            self._look_at(host)
            return self._capacities[host.name]
        return found

    def whole_of(self, host: Host) -> HostCapacity:
        """The capacity of a host when it is empty; copy it before changing it."""
        found = self._wholes.get(host.name)
        if found is None or found.inventory is not host.inventory or found.labels is not host.labels:
            found = self._wholes[host.name] = capacity_of(host, empty=True)
        return found

    def shares(self, host: Host) -> tuple[Share, ...]:
        """The shares of a host that are held."""
        self.capacity_of(host)
        return self._shares[host.name]

    def jobs(self, host: Host) -> frozenset[str]:
        """The jobs that hold something on a host."""
        self.capacity_of(host)
        return self._jobs[host.name]

    def without(self, host: Host, shares: frozenset[str]) -> HostCapacity:
        """The capacity of a host that is free, or held by certain shares; copy it before changing it."""
        if shares and any(key in host.allocations for key in shares):
            return capacity_of(host, shares)
        return self.capacity_of(host)

    def first(self, pool: Pool, hosts: Mapping[str, Host], may_take: Callable[[Host], bool]) -> HostCapacity | None:
        """The host for a gang's only worker, of those that ``may_take`` work; None where it fits on none now."""
        for name in list(self._changed):
            self._look_at(hosts[name])
        turns = self._with_gpus(pool.gpus) if pool.gpus else self._with_slots()
        for name in turns:
            if self._capacities[name].fits(pool) and may_take(hosts[name]):
                return self._capacities[name]
        return None

    def _with_gpus(self, gpus: int) -> Iterator[str]:
        at = 0
        while at < len(self._fullest):
            caution = self._fullest[at][0]
            first = bisect.bisect_left(self._fullest, (caution, gpus, 0, ""))
            at = bisect.bisect_left(self._fullest, (caution + 1, 0, 0, ""))
            for *_, name in itertools.islice(self._fullest, first, at):
                yield name

    def _with_slots(self) -> Iterator[str]:
        at = 0
        while at < len(self._emptiest):
            caution, slots, *_, name = self._emptiest[at]
            if slots:
                yield name
                at += 1
            else:
                at = bisect.bisect_left(self._emptiest, (caution + 1,))

    def _look_at(self, host: Host) -> None:
        before = self._capacities.get(host.name)
        if before is not None:
            self._take_out(before)
        now = self._capacities[host.name] = capacity_of(host)
        self._shares[host.name] = tuple((job_of(key), key, held) for key, held in host.allocations.items())
        self._jobs[host.name] = frozenset(job for job, *_ in self._shares[host.name])
        bisect.insort(self._emptiest, now.emptiness)
        bisect.insort(self._fullest, now.fullness)
        self._changed.discard(host.name)

    def _take_out(self, before: HostCapacity) -> None:
        del self._emptiest[bisect.bisect_left(self._emptiest, before.emptiness)]
        del self._fullest[bisect.bisect_left(self._fullest, before.fullness)]
