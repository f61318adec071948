"""Backfill: jobs further back in the queue start without delaying those ahead that wait for free capacity.

It is unknown when running work ends: a timeout says when at the latest, and it may end at any moment before. So any
share of any host that a waiting job could ever use may be the one it starts on next, and a job behind it that takes
a part of it may delay it. Hence the rule: of a host that a waiting job could use

- no GPU, if that job wants GPUs there, and of cores, memory and worker slots only what workers beside all of the
  host's GPUs could never need;
- nothing at all, if that job would put a worker without GPUs there;
- of a host with GPUs of several kinds, such as MIG instances beside whole ones, no GPU that is of the kind it wants.

Other hosts, such as those of another GPU model or outside its host selector, are free to take. What is held only
shrinks until the waiting job starts, so what it could need on a host stays free as fast as without those behind it,
and the choice among hosts isn't changed either: it looks at the GPUs of hosts for workers with GPUs (see
``placement``), and at hosts that are closed to those behind for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of, gpu_matches
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.scheduling.placement import may_have

Kind = tuple[str, str]
"""Model and MIG profile of GPUs, as a pool asks for them."""


@dataclass(frozen=True)
class Reserved:
    """A host's reservation: it is ``closed``, or its GPUs and so much of the rest have to stay free."""

    closed: bool = False
    cpus: int = 0
    memory_mb: int = 0
    slots: int = 0
    some: tuple[tuple[Kind, Reserved], ...] = ()
    """Kinds of which the host has other GPUs too: those of the kind have to stay free, and so much of the rest."""

    @property
    def has_all_gpus(self) -> bool:
        """Whether it is of all GPUs of the host."""
        return self.closed or self.slots > 0

    def beside(self, other: Reserved) -> Reserved:
        """The reservation for both: who share the host's GPUs need no more beside them than who needs most."""
        some = dict(self.some)
        for kind, part in other.some:
            some[kind] = some[kind].beside(part) if kind in some else part
        return Reserved(
            self.closed or other.closed,
            max(self.cpus, other.cpus),
            max(self.memory_mb, other.memory_mb),
            max(self.slots, other.slots),
            tuple(some.items()),
        )

    def limit(self, left: HostCapacity) -> HostCapacity:
        """The part of a host's free capacity that is not reserved."""
        parts = [self, *(part for _, part in self.some)]
        room = (
            left.cpus - sum(part.cpus for part in parts),
            left.memory_mb - sum(part.memory_mb for part in parts),
            0 if self.closed else left.slots - sum(part.slots for part in parts),
        )
        if self.has_all_gpus:
            return left.beside_gpus(*room)
        kinds = [kind for kind, _ in self.some]
        gpus = [gpu for gpu in left.gpus if not any(gpu_matches(*kind, gpu[1]) for kind in kinds)]
        return left.beside_gpus(*room, gpus)


_NOTHING = Reserved()
Admitted = dict[object, tuple[list[Host] | None, dict[str, Host]]]
"""By what a gang asks of its hosts' names and labels: all hosts, and those of them that it may have."""


def _whole_of(host: Host) -> HostCapacity:
    return capacity_of(host, empty=True)


def admitted_hosts(gang: Gang, hosts: list[Host], known: Admitted) -> dict[str, Host]:
    """The part of ``hosts`` that a gang with a selector may have, by name; found once for each selector."""
    labelled = gang.near.levels[: gang.near.strict_depth] if gang.near is not None else ()
    asked = gang.selector, tuple(pool.selector for pool in gang.pools if pool.replicas), labelled
    of, found = known.get(asked, (None, {}))
    if of is not hosts:
        found = {host.name: host for host in may_have(gang, hosts)}
        known[asked] = hosts, found
    return found


@dataclass
class Reservations:
    """Reservations of all hosts for the waiting jobs that one pass over the queue has met so far.

    Kept for each kind of hosts, since most jobs may have any host; for single hosts where a job has a selector. Hosts
    that not all jobs may have stand ``apart``: those with equal words are open to the same jobs.
    """

    by_kind: dict[str, Reserved] = field(default_factory=dict)
    by_host: dict[str, Reserved] = field(default_factory=dict)

    apart: Mapping[str, str] = field(default_factory=dict)
    """By host that is not for all jobs: its kind among such."""
    whole_of: Callable[[Host], HostCapacity] = _whole_of
    """A host's room when it is empty. A pass asks for it once for each host that each job with a selector may have."""
    admitted: Admitted = field(default_factory=dict)
    """All of a pass share it."""
    _kinds: dict[str, Host] = field(default_factory=dict)
    """A host of each kind."""
    _listed: tuple[Collection[Host], list[str]] | None = None
    """The hosts that were asked for last, and their kinds."""
    _whole_hosts: set[str] = field(default_factory=set)
    """The hosts in ``by_host`` of which all GPUs are reserved."""

    def reserve(self, gang: Gang, hosts: list[Host], closed: Collection[str] = ()) -> bool:
        """Reserve whatever a waiting gang, and any number of others like it, could use of ``hosts``.

        ``hosts`` are all there are, the same each time; of those that stand apart it may not have the ``closed`` ones.
        True if less is left to others now.
        """
        changed = False
        for known, place, wider in self._wider(gang, hosts, closed):
            known[place] = wider
            changed = True
            if known is self.by_host and wider.has_all_gpus:
                self._whole_hosts.add(place)
        return changed

    def would_change(self, gang: Gang, hosts: list[Host], closed: Collection[str] = ()) -> bool:
        """Whether ``reserve`` would leave less to others."""
        return next(self._wider(gang, hosts, closed), None) is not None

    def _wider(
        self, gang: Gang, hosts: list[Host], closed: Collection[str]
    ) -> Iterator[tuple[dict[str, Reserved], str, Reserved]]:
        """The reservations that have to be wider for a gang: where each is kept, of what, and what it has to be."""
        anywhere = gang.anywhere
        if anywhere and not self._kinds:
            self._kinds.update({self._kind(host): host for host in hosts})
        places = self._kinds if anywhere else admitted_hosts(gang, hosts, self.admitted)
        known = self.by_kind if anywhere else self.by_host
        then: dict[tuple[int, str], Reserved] = {}
        """By what was kept before, and the kind of the host: what is kept then, as one object."""
        for place, host in places.items():
            if host.name in closed:
                continue
            before = known.get(place, _NOTHING)
            key = id(before), host.name if gang.is_choosy else host.inventory.kind
            if (after := then.get(key)) is None:
                whole, after = self.whole_of(host), before
                for pool in gang.pools:
                    if whole.fits(pool):
                        after = _widen(after, pool, whole)
                then[key] = after
            if after is not before:
                yield known, place, after

    def keeps_enough_everywhere(self, gang: Gang) -> bool:
        """Whether a gang needs no more of any host than is kept of all alike: for it nothing more has to be kept."""
        if not self.by_kind or gang.is_choosy:
            return False
        kept = [(self.by_kind.get(kind, _NOTHING), self.whole_of(host)) for kind, host in self._kinds.items()]
        return all(_widen(of, pool, whole) is of for of, whole in kept for pool in gang.pools if whole.fits(pool))

    def with_gpus(self, hosts: Collection[Host]) -> list[Host]:
        """The ``hosts`` of which not all GPUs are reserved."""
        by_kind = {kind for kind, of in self.by_kind.items() if of.has_all_gpus}
        return self._not_of(by_kind, self._whole_hosts, hosts)

    def _not_of(self, kinds: Collection[str], names: Collection[str], hosts: Collection[Host]) -> list[Host]:
        if self._listed is None or self._listed[0] is not hosts:
            self._listed = hosts, list(map(self._kind, hosts))
        pairs = zip(hosts, self._listed[1], strict=True)
        return [host for host, kind in pairs if kind not in kinds and host.name not in names]

    @property
    def leaves_gpus(self) -> bool:
        """Whether any host may have GPUs that are not reserved."""
        return not self._kinds or self.leaves_gpus_on(self._kinds)

    def without_held(self, hosts: list[Host]) -> list[Host]:
        """The hosts of which nothing is reserved: of others the GPUs are."""
        return self._not_of(self.by_kind, self.by_host, hosts)

    def leaves_gpus_on(self, kinds: Iterable[str]) -> bool:
        """Whether any host of these kinds may have GPUs that are not reserved."""
        return not all(self.by_kind.get(kind, _NOTHING).has_all_gpus for kind in kinds)

    def _kind(self, host: Host) -> str:
        return self.apart.get(host.name, host.inventory.kind)

    def limit(self, left: HostCapacity, host: Host) -> HostCapacity:
        """The part of a host's free capacity ``left`` that a job further back may have."""
        if not self.by_kind and not self.by_host:
            return left
        of_kind, of_host = self.by_kind.get(self._kind(host)), self.by_host.get(host.name)
        if of_kind is not None and of_host is not None:
            return of_kind.beside(of_host).limit(left)
        reserved = of_host if of_kind is None else of_kind
        return left if reserved is None else reserved.limit(left)


def _widen(reserved: Reserved, pool: Pool, whole: HostCapacity) -> Reserved:
    """Add a pool's needs to a host's reservation; the same one where it has them already.

    Workers with GPUs share the host's GPUs, so the pool that wants most beside each GPU bounds any mixture.
    """
    if not pool.gpus:
        return reserved if reserved.closed else replace(reserved, closed=True)
    gpus, kind = whole.matching(pool), (pool.gpu_type, pool.gpu_partition)
    if gpus < len(whole.gpus):
        some = dict(reserved.some)
        before = some.get(kind, _NOTHING)
        some[kind] = _more(before, pool, gpus)
        return reserved if some[kind] is before else replace(reserved, some=tuple(some.items()))
    return _more(reserved, pool, gpus)


def _more(reserved: Reserved, pool: Pool, gpus: int) -> Reserved:
    cpus, memory_mb = -(-gpus * pool.cpus // pool.gpus), -(-gpus * pool.memory_mb // pool.gpus)
    if cpus <= reserved.cpus and memory_mb <= reserved.memory_mb and gpus <= reserved.slots:
        return reserved
    return replace(
        reserved,
        cpus=max(reserved.cpus, cpus),
        memory_mb=max(reserved.memory_mb, memory_mb),
        slots=max(reserved.slots, gpus),
    )
