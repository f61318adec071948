"""Topology: on which hosts a gang is planned so that its workers are near each other, and who gets which place.

A domain is all hosts with the same labels from the outermost level of the topology to some other one. A gang is planned
within one domain of the level that it asks for: of those with room for all, the one with the least left, so that
larger ones stay whole. Where none has room, a gang that only prefers one takes a domain of the next level outwards, and
in that as few of the inner ones as are enough. Segments are dealt out to domains whole.

Room is counted in GPUs, or in workers for gangs without. The count is exact where all workers ask for the same; else it
is too high at most, so that a domain is tried in vain, and never passed over. The ranks are dealt out at the end: those
that follow each other are on hosts that are near each other, since rings and trees are built of neighbours.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from operator import itemgetter

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.gang import Gang, Member, Pool
from holdfast_controller.core.model.hosts.capacity import HostCapacity, fitting
from holdfast_controller.core.model.hosts.host import Host, Place
from holdfast_controller.core.model.hosts.locality import Domain, Locality


@dataclass(frozen=True, slots=True)
class Part:
    """Workers of a gang, and all the hosts among which these are planned."""

    members: tuple[Member, ...]
    capacities: list[HostCapacity]


@dataclass(slots=True)
class _Leaf:
    """The hosts of an innermost domain that have room for some worker, and the sum of that, in the gang's currency.

    ``left`` is the sum of what packing looks at.
    """

    domain: Domain
    room: int = 0
    left: int = 0
    capacities: list[HostCapacity] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """A domain at some depth, of which ``leaves`` are the innermost ones."""

    domain: Domain
    leaves: list[_Leaf]

    @property
    def room(self) -> int:
        return sum(leaf.room for leaf in self.leaves)

    @property
    def left(self) -> int:
        return sum(leaf.left for leaf in self.leaves)


def parts(
    gang: Gang,
    near: Locality,
    hosts: Sequence[Host],
    capacity_of: Callable[[Host], HostCapacity],
    kept: Mapping[int, Place],
) -> Iterator[list[Part]]:
    """Ways to deal a gang's missing workers out to hosts, the best first; no host is in two parts.

    Those whose places are ``kept`` say in which domains the others have to be.
    """
    missing = tuple(member for member in gang.members if member.index not in kept)
    stays = {place.host for place in kept.values()}
    depth, need = len(near.levels), _need(gang, missing)
    held = {host.name: near.domain_of(host.labels, depth) for host in hosts if host.name in stays} if stays else {}
    leaves = _leaves(gang, near, hosts, capacity_of, missing)
    for level in [near.depth] if near.required else range(near.depth, -1, -1):
        wanted = {domain[:level] for domain in held.values()}
        if len(wanted) > 1:
            continue
        for group in _groups(leaves, level):
            if group.room < need or (wanted and group.domain not in wanted):
                continue
            if near.segments is not None:
                bound = {index: held[place.host] for index, place in kept.items()}
                yield from _segmented(gang, near, missing, group.leaves, bound)
                continue
            narrow = _narrow(group.leaves, level, depth, need)
            yield [Part(missing, _capacities(narrow))]
            if len(narrow) < len(group.leaves):
                yield [Part(missing, _capacities(group.leaves))]


def _leaves(
    gang: Gang,
    near: Locality,
    hosts: Sequence[Host],
    capacity_of: Callable[[Host], HostCapacity],
    missing: Sequence[Member],
) -> list[_Leaf]:
    """The innermost domains. With ten thousand hosts this is most of what a plan takes, hence no call for each host."""
    pools = [gang.pools[number] for number in sorted({member.pool for member in missing})]
    by_gpus, depth, values_of = bool(gang.gpus), len(near.levels), itemgetter(*near.levels)
    together: defaultdict[object, list[HostCapacity]] = defaultdict(list)
    for left in _large_enough(pools, map(capacity_of, hosts)):
        labels = left.labels
        try:
            together[values_of(labels)].append(left)
        except KeyError:
            together[near.domain_of(labels, depth), ""].append(left)
    rooms_of, found = _rooms(pools, by_gpus=by_gpus), dict[Domain, _Leaf]()
    for capacities in together.values():
        domain = near.domain_of(capacities[0].labels, depth)
        leaf = found.setdefault(domain, _Leaf(domain))
        rooms = rooms_of(capacities)
        if 0 in rooms:
            capacities = [left for left, room in zip(capacities, rooms, strict=True) if room]
        room = sum(rooms)
        leaf.room += room
        leaf.left += sum([len(left.gpus) + left.revocable_gpus for left in capacities]) if by_gpus else room
        leaf.capacities += capacities
    return list(found.values())


def _large_enough(pools: Sequence[Pool], capacities: Iterable[HostCapacity]) -> list[HostCapacity]:
    """The hosts on which workers of some of the pools may fit."""
    if len(set(map(asks, pools))) == 1:
        return fitting(pools[0], capacities)
    fewest = min(pool.gpus for pool in pools)
    return [left for left in capacities if len(left.gpus) >= fewest]


def _rooms(pools: Sequence[Pool], *, by_gpus: bool) -> Callable[[Sequence[HostCapacity]], list[int]]:
    """The most GPUs, or more, that workers could hold on each of some hosts; the most workers, for a gang without."""
    # Pools that ask for different things, such as MIG instances of two profiles, may stand beside each other.
    unlike = list({asks(pool): pool for pool in pools}.values())

    def most_on(left: HostCapacity) -> int:
        room = sum(most_workers(pool, left) * (pool.gpus if by_gpus else 1) for pool in unlike)
        return min(room, len(left.gpus) if by_gpus else left.slots)

    if len(unlike) == 1 and by_gpus and (gpus := unlike[0].gpus):
        # A worker fits on each of these, and on most no other one beside it.
        return lambda lefts: [gpus if len(left.gpus) < 2 * gpus else most_on(left) for left in lefts]
    return lambda lefts: list(map(most_on, lefts))


def asks(pool: Pool) -> tuple[object, ...]:
    """Equal for pools whose workers can stand in for each other on any host."""
    task = pool.task
    sizes = (pool.gpus, pool.gpu_type, pool.gpu_partition, pool.cpus, pool.memory_mb)
    return (*sizes, bool(task.image), bool(task.account), bool(task.secrets), pool.selector, pool.machines)


def most_workers(pool: Pool, left: HostCapacity) -> int:
    """The most workers of a pool that fit beside each other on a host, with nothing else there."""
    if not left.fits(pool):
        return 0
    most = left.slots
    if pool.gpus:
        most = min(most, left.matching(pool) // pool.gpus)
    if pool.cpus:
        most = min(most, left.cpus // pool.cpus)
    if pool.memory_mb:
        most = min(most, left.memory_mb // pool.memory_mb)
    return most


def _need(gang: Gang, members: Iterable[Member]) -> int:
    return sum(gang.pools[member.pool].gpus if gang.gpus else 1 for member in members)


def _capacities(leaves: Iterable[_Leaf]) -> list[HostCapacity]:
    return [capacity for leaf in leaves for capacity in leaf.capacities]


def _groups(leaves: Iterable[_Leaf], depth: int) -> list[_Group]:
    """The domains at a depth, those with the least left first. A host without that label is in none."""
    found: dict[Domain, list[_Leaf]] = {}
    for leaf in leaves:
        if len(leaf.domain) >= depth:
            found.setdefault(leaf.domain[:depth], []).append(leaf)
    groups = [_Group(domain, inner) for domain, inner in found.items()]
    return sorted(groups, key=lambda group: (group.left, group.domain))


def _narrow(leaves: list[_Leaf], depth: int, deepest: int, need: int) -> list[_Leaf]:
    """The fewest inner domains that have the room needed: the largest, at last the one that is enough."""
    if depth >= deepest:
        return leaves
    # ``sorted`` keeps the order among domains with as much room.
    inner = _groups(leaves, depth + 1)
    by_room = sorted(inner, key=lambda group: -group.room)
    chosen: list[_Leaf] = []
    for at, largest in enumerate(by_room):
        if largest.room >= need:
            rest = set(map(id, by_room[at:]))
            enough = next(group for group in inner if id(group) in rest and group.room >= need)
            return chosen + _narrow(enough.leaves, depth + 1, deepest, need)
        chosen += largest.leaves
        need -= largest.room
    return leaves


def _segmented(
    gang: Gang, near: Locality, missing: Sequence[Member], leaves: list[_Leaf], held: Mapping[int, Domain]
) -> Iterator[list[Part]]:
    """The segments dealt out to the domains of their level; nothing where that fails."""
    assert near.segments is not None
    size, depth = near.segments.size, near.segment_depth
    segments: dict[int, list[Member]] = {}
    for member in missing:
        segments.setdefault(member.index // size, []).append(member)
    bound: dict[int, set[Domain]] = {}
    for index, domain in held.items():
        bound.setdefault(index // size, set()).add(domain[:depth])
    domains = {group.domain: group for group in _groups(leaves, depth)}
    left = _Left(domains.values())
    dealt: dict[Domain, list[Member]] = {}
    to_deal = _need(gang, missing)
    # Those first whose other workers stay where they are: they have no choice.
    for number in sorted(segments, key=lambda number: (number not in bound, number)):
        need = _need(gang, segments[number])
        where = left.domain_for(need, to_deal, bound.get(number))
        if where is None:
            return
        left.take(where, need)
        to_deal -= need
        dealt.setdefault(where, []).extend(segments[number])
    yield [Part(tuple(members), _capacities(domains[domain].leaves)) for domain, members in dealt.items()]


class _Left:
    """The room that domains have left, kept in order of it: with a thousand domains a gang may have many segments."""

    def __init__(self, groups: Iterable[_Group]) -> None:
        self._room = {group.domain: group.room for group in groups}
        self._order = sorted((room, domain) for domain, room in self._room.items())

    def domain_for(self, need: int, all_need: int, bound: set[Domain] | None) -> Domain | None:
        """The domain for a segment: the smallest that has room for all that are left to deal out, else the largest."""
        if bound is not None:
            only = next(iter(bound)) if len(bound) == 1 else None
            return only if only is not None and self._room.get(only, -1) >= need else None
        if not self._order or (most := self._order[-1][0]) < need:
            return None
        return self._order[bisect_left(self._order, (min(most, all_need),))][1]

    def take(self, domain: Domain, need: int) -> None:
        """Count a segment there."""
        room = self._room[domain]
        del self._order[bisect_left(self._order, (room, domain))]
        self._room[domain] = room - need
        insort(self._order, (room - need, domain))


def in_order(
    gang: Gang, near: Locality, places: Mapping[int, Place], hosts: Iterable[Host], kept: Mapping[int, Place]
) -> dict[int, Place]:
    """The same places, dealt out so that workers that follow each other are near each other.

    Workers exchange their places only with those that ask for the same, and within their segment's domain.
    """
    names = {place.host for place in places.values()}
    domains = {host.name: near.domain_of(host.labels, len(near.levels)) for host in hosts if host.name in names}
    groups: dict[object, list[int]] = {}
    for member in gang.members:
        if member.index in kept:
            continue
        pool, segment = gang.pools[member.pool], None
        if near.segments is not None:
            segment = domains[places[member.index].host][: near.segment_depth]
        groups.setdefault((asks(pool), segment), []).append(member.index)
    found = dict(places)
    for workers in groups.values():
        # A host without labels comes last.
        turns = sorted(
            (not domains[p.host], domains[p.host], p.host, p.gpus) for p in map(places.__getitem__, workers)
        )
        for index, (*_, host, gpus) in zip(workers, turns, strict=True):
            found[index] = Place(host, gpus)
    return found
