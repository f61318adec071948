"""What each host has left, kept up as shares come and go: so that one worker's host is found without asking all.

The order is that of ``placement``: a worker with GPUs takes the fullest host that still holds it, any other one the
emptiest. Most jobs are one worker; for a gang the rooms are at hand, and placing it is ``placement``'s matter.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_controller.core.model.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.gang import Pool
from holdfast_controller.core.model.host import Host


@dataclass
class FreeCapacity:
    """Free capacity by host, kept up to date by looking again only at hosts that have ``changed``."""

    _changed: set[str] = field(default_factory=set)
    _capacities: dict[str, HostCapacity] = field(default_factory=dict)
    _emptiest: list[tuple[int, int, str]] = field(default_factory=list)
    """(minus slots, minus cores, host)."""
    _fullest: list[tuple[int, str]] = field(default_factory=list)
    """(GPUs, host)."""

    def changed(self, host: str) -> None:
        """What it has, or what is held there, isn't what it was."""
        self._changed.add(host)

    def forget(self, host: str) -> None:
        """There is no such host any more."""
        self._changed.discard(host)
        before = self._capacities.pop(host, None)
        if before is not None:
            self._take_out(before)

    def capacity_of(self, host: Host) -> HostCapacity:
        """What a host has left; to be copied by whoever uses it up."""
        if host.name in self._changed or host.name not in self._capacities:
            self._look_at(host)
        return self._capacities[host.name]

    def first(self, pool: Pool, hosts: Mapping[str, Host], may_take: Callable[[Host], bool]) -> HostCapacity | None:
        """Where the only worker of a gang goes, among the hosts that ``may_take`` work; None: nowhere now."""
        for name in list(self._changed):
            self._look_at(hosts[name])
        turns = self._with_gpus(pool.gpus) if pool.gpus else self._with_slots()
        for name in turns:
            if self._capacities[name].fits(pool) and may_take(hosts[name]):
                return self._capacities[name]
        return None

    def _with_gpus(self, gpus: int) -> Iterator[str]:
        for at in range(bisect.bisect_left(self._fullest, (gpus, "")), len(self._fullest)):
            yield self._fullest[at][1]

    def _with_slots(self) -> Iterator[str]:
        for slots, _, name in self._emptiest:
            if not slots:
                return
            yield name

    def _look_at(self, host: Host) -> None:
        before = self._capacities.get(host.name)
        if before is not None:
            self._take_out(before)
        now = self._capacities[host.name] = capacity_of(host)
        bisect.insort(self._emptiest, _emptiness(now))
        bisect.insort(self._fullest, _fullness(now))
        self._changed.discard(host.name)

    def _take_out(self, before: HostCapacity) -> None:
        del self._emptiest[bisect.bisect_left(self._emptiest, _emptiness(before))]
        del self._fullest[bisect.bisect_left(self._fullest, _fullness(before))]


def _emptiness(left: HostCapacity) -> tuple[int, int, str]:
    return -left.slots, -left.cpus, left.host


def _fullness(left: HostCapacity) -> tuple[int, str]:
    return len(left.gpus), left.host
