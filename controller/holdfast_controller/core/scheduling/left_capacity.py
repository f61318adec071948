"""The capacity that a pass has left, and whether a gang can be placed in it at all: asked for each shape that waits.

A plan goes through all hosts, so a pass makes few in vain. One isn't made where no host that a pool may have has as
many GPUs, cores or as much memory left as one worker needs. Hence jobs that wait for a host, a GPU model or a part of
the hosts that is full keep no pass from looking at those behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import HostCapacity
from holdfast_controller.core.model.hosts.host import Host

CapacityOf = Callable[[Host], HostCapacity]


@dataclass(frozen=True, slots=True)
class _Most:
    """The most of each resource on any one host that a pool may have, when so much had been taken from what is left."""

    since: int
    gpus: int = -1
    cpus: int = -1
    memory_mb: int = -1

    def holds(self, pool: Pool) -> bool:
        return pool.gpus <= self.gpus and pool.cpus <= self.cpus and pool.memory_mb <= self.memory_mb


class LeftCapacity:
    """Capacity that only shrinks: ``shrunk`` says that it has, or the answers are of a moment ago and too high.

    It holds no function that holds a pass: what refers to itself is freed late, and all that pass knew with it.
    """

    def __init__(self) -> None:
        self._taken = 0
        self.looked = 0
        """How many hosts have been looked at."""
        self._most: dict[tuple[str, frozenset[str]], _Most] = {}
        """By choice of hosts (see ``Gang.choices``), and those closed to it."""
        self._capacities: dict[str, HostCapacity] = {}
        """By host: what it had left when it was last asked for."""

    def shrunk(self) -> None:
        """Note that less is left of some hosts."""
        self._taken += 1

    def may_hold(
        self,
        gang: Gang,
        hosts_of: Callable[[Gang], Iterable[Host]],
        capacity_of: CapacityOf,
        closed: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether each pool's workers might fit on some host that isn't ``closed``. False is certain, True is not.

        ``hosts_of`` is the hosts that it may have, or those of them that may have something left.
        """
        for choice, pool in gang.choices:
            known = self._most.get((choice, closed))
            if known is None or (known.since != self._taken and known.holds(pool)):
                hosts = (host for host in hosts_of(gang) if host.name not in closed)
                known = self._most[choice, closed] = self._look_at(pool, hosts, capacity_of)
            if not known.holds(pool):
                return False
        return True

    def _look_at(self, pool: Pool, hosts: Iterable[Host], capacity_of: CapacityOf) -> _Most:
        left = {host.name: capacity_of(host) for host in hosts}
        self.looked += len(left)
        self._capacities |= left
        able = [each for each in left.values() if each.slots > 0 and each.suits(pool)]
        return _Most(
            self._taken,
            max((each.matching(pool) for each in able), default=-1),
            max((each.cpus for each in able), default=-1),
            max((each.memory_mb for each in able), default=-1),
        )

    def fitting(self, gang: Gang, hosts: Iterable[Host]) -> list[Host]:
        """The ``hosts``, of those that the gang may have, on which a worker of it fits. Asked after ``may_hold``."""
        pools = [pool for _, pool in gang.choices]
        known = ((host, self._capacities.get(host.name)) for host in hosts)
        return [host for host, left in known if left is not None and any(map(left.fits, pools))]
