"""Placement of a gang: all workers or none, over CPU cores, memory, worker slots and named GPUs.

Workers with GPUs are packed (the fullest host that still fits), so that whole hosts stay free for large
workers; workers without are spread (the emptiest host), since nothing is gained by sharing. Hosts with signs against
them (see ``caution``) come last, and of equal hosts that which fails least comes first. A plan is final: it names each
GPU. When there is none, the reason says what lacks, in words for the user.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.gang import Gang, HostSelector, Member, Pool
from holdfast_controller.core.model.hosts import own_spares
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of, fitting
from holdfast_controller.core.model.hosts.host import Host, Place, partition_of, place_key
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.scheduling import topology

if TYPE_CHECKING:
    from holdfast_controller.core.model.job import Job


@dataclass(frozen=True)
class Plan:
    """A host and GPUs for each worker, in gang order, and for the job's own spares behind them."""

    places: tuple[Place, ...]

    def of_workers(self, gang: Gang) -> tuple[Place, ...]:
        """The places of its workers."""
        return self.places[: len(gang.members)]

    def of_spares(self, gang: Gang) -> tuple[Place, ...]:
        """The places of its spares."""
        return self.places[len(gang.members) :]


@dataclass(frozen=True)
class Wait:
    """No placement fits at present; ``reason`` is in words for users. Of all workers some could be placed."""

    reason: str
    placed: int = 0
    workers: int = 0


def plan(gang: Gang, hosts: Iterable[Host]) -> Plan | Wait:
    """Place every worker of ``gang`` on schedulable ``hosts``, or say why that is impossible now."""
    return plan_on(gang, list(hosts), capacity_of)


NO_OTHERS: Mapping[str, int] = {}

CapacityOf = Callable[[Host, frozenset[str]], HostCapacity]
"""The free capacity of a host without certain shares. The caller changes only copies of it."""


def may_have(gang: Gang, hosts: Iterable[Host]) -> list[Host]:
    """The part of ``hosts`` that the gang's host selector admits."""
    hosts = _among(gang.selector, hosts)
    if gang.pool_selectors or (gang.near is not None and gang.near.strict_depth):
        return [host for host in hosts if gang.admits(host.name, host.labels)]
    return list(hosts)


def _among(selector: HostSelector, hosts: Iterable[Host]) -> Iterable[Host]:
    """The ``hosts`` that a selector admits, one condition after the other: ten times as fast as host by host."""
    if named := selector.hosts:
        hosts = [host for host in hosts if host.name in named]
    if avoided := selector.avoid:
        hosts = [host for host in hosts if host.name not in avoided]
    for key, value in selector.labels:
        hosts = [host for host in hosts if host.labels.get(key) == value]
    for key, value in selector.avoid_labels:
        hosts = [host for host in hosts if host.labels.get(key) != value]
    for condition in selector.match:
        hosts = [host for host in hosts if condition.holds(host.labels)]
    for other in selector.also:
        hosts = _among(other, hosts)
    return hosts


def plan_job(job: Job, hosts: Iterable[Host], capacity_of: CapacityOf = capacity_of) -> Plan | Wait:
    """Place a queued job on those of ``hosts`` that its selector admits, or say why that is impossible now.

    Reserved placements of its last attempt stay if the rest fits beside them on hosts that are not excluded, on the
    job's own spares first; else all workers are placed again; excluded hosts are taken only where no others fit. A
    job that was placed before needs no spares to go on.
    """
    admitted = may_have(job.gang, hosts)
    if not admitted and not job.gang.anywhere:
        return Wait(f"no host that it may have takes work at present ({job.gang.hosts_in_words()})")
    spares = own_spares.keys(job)
    own = spares.union(place_key(job.id, index) for index in job.reserved)
    if job.places:
        admitted = [host for host in admitted if not _is_quarantined(job, host)]
    excluded = job.excluded
    others = [host for host in admitted if host.name not in excluded] if excluded else admitted
    by_name = {host.name: host for host in others}
    kept = {index: job.places[index] for index in job.reserved}
    if job.spares and (there := own_spares.taken(job, by_name)):
        return Plan(there)
    anew = not job.places
    if kept and own_spares.may_stay(job, by_name):
        found = plan_on(job.gang, others, lambda host: capacity_of(host, spares), kept, spares=anew)
        if isinstance(found, Plan):
            return Plan(own_spares.left(job, found.places, by_name))
    if len(others) < len(admitted):
        found = plan_on(job.gang, others, lambda host: capacity_of(host, own), spares=anew)
        if isinstance(found, Plan):
            return Plan(own_spares.left(job, found.places, by_name))
    found = plan_on(job.gang, admitted, lambda host: capacity_of(host, own), spares=anew)
    return Plan(own_spares.left(job, found.places, by_name)) if isinstance(found, Plan) else found


def on_own_spares(job: Job, hosts: Iterable[Host]) -> Plan | None:
    """The placement of a job whose own spares are enough for its workers that lack a place; None where they aren't."""
    admitted = (host for host in may_have(job.gang, hosts) if not _is_quarantined(job, host))
    there = own_spares.taken(job, {host.name: host for host in admitted if host.name not in job.excluded})
    return Plan(there) if there else None


def _is_quarantined(job: Job, host: Host) -> bool:
    """Whether a worker of the job that has left the host may still run there; it may be reserved elsewhere by now."""
    reserved = {place_key(job.id, index) for index in job.reserved if job.places[index].host == host.name}
    reserved |= own_spares.keys(job)
    return any(key.startswith(f"{job.id}/") and key not in reserved for key in host.allocations)


def plan_on(
    gang: Gang,
    hosts: list[Host],
    capacity_of: Callable[[Host], HostCapacity],
    kept: Mapping[int, Place] | None = None,
    *,
    spares: bool = True,
) -> Plan | Wait:
    """Place a gang on hosts, beside placements that are kept, and as near to each other as it asks for.

    Its own spares too, unless it can go on without.
    """
    near, kept = gang.near, kept or {}
    if near is None or not hosts:
        return plan_in(gang, [capacity_of(host) for host in hosts], kept, spares=spares)
    for parts in topology.parts(gang, near, hosts, capacity_of, kept):
        places = _place_parts(gang, parts, kept)
        if places is not None:
            beside = _spares_near(gang, near, places, hosts, capacity_of) if spares and gang.spares else ()
            if beside is None:
                continue
            places = topology.in_order(gang, near, places, hosts, kept)
            return Plan((*(places[member.index] for member in gang.members), *beside))
    anywhere = plan_in(gang, [capacity_of(host) for host in hosts], kept, spares=spares)
    if isinstance(anywhere, Wait):
        return anywhere
    return Wait(f"needs room {gang.nearness}, and only hosts further apart have it")


def _place_parts(gang: Gang, parts: list[topology.Part], kept: Mapping[int, Place]) -> dict[int, Place] | None:
    places, used = dict(kept), _used(kept)
    for part in parts:
        found = _place(gang, part.members, part.capacities, used, len(places))
        if isinstance(found, Wait):
            return None
        places.update(found)
    return places


def _spares_near(
    gang: Gang,
    near: Locality,
    places: Mapping[int, Place],
    hosts: list[Host],
    capacity_of: Callable[[Host], HostCapacity],
) -> tuple[Place, ...] | None:
    """A gang's own spares, as near to its workers as these have to be to each other; None where there is no room."""
    used = {place.host for place in places.values()}
    domains = {near.domain_of(host.labels, near.depth) for host in hosts if host.name in used}
    inside = [host for host in hosts if near.domain_of(host.labels, near.depth) in domains]
    found = spares_on(gang, map(capacity_of, inside), used)
    return found if found is not None or near.required else spares_on(gang, map(capacity_of, hosts), used)


def spares_on(
    gang: Gang, capacities: Iterable[HostCapacity], used: Collection[str], wanted: int | None = None
) -> tuple[Place, ...] | None:
    """Places of so many spares, or of all, on hosts that no worker of the gang uses; None where there is no room."""
    pool, found = gang.spare_pool, list[Place]()
    for left in _in_turn(pool, (left for left in capacities if left.host not in used)):
        left = left.copy()
        while len(found) < (gang.spares if wanted is None else wanted):
            if not left.fits(pool):
                break
            found.append(left.take(pool))
        else:
            return tuple(found)
    return None


def plan_in(
    gang: Gang, capacities: list[HostCapacity], kept: Mapping[int, Place] | None = None, *, spares: bool = True
) -> Plan | Wait:
    """Place a gang like ``plan``, within ``capacities``, beside placements that are kept, however far apart."""
    if not capacities:
        return Wait("no host takes work at present")
    places = kept or {}
    missing = [member for member in gang.members if member.index not in places]
    found = _place(gang, missing, capacities, _used(places), len(places))
    if isinstance(found, Wait):
        return found
    found.update(places)
    workers = tuple(found[member.index] for member in gang.members)
    if not spares or not gang.spares:
        return Plan(workers)
    beside = spares_on(gang, capacities, {place.host for place in workers})
    return _spares_first(gang, capacities, places) if beside is None else Plan((*workers, *beside))


def _spares_first(gang: Gang, capacities: list[HostCapacity], kept: Mapping[int, Place]) -> Plan | Wait:
    """Place a gang whose workers leave no host to its own spares when they choose first: on fewer hosts."""
    pool, stays = gang.spare_pool, _used(kept)
    last_first = _in_turn(pool, (left for left in capacities if left.host not in stays))[::-1]
    for count in range(1, min(gang.spares, len(last_first)) + 1):
        beside = spares_on(gang, last_first[:count], stays)
        if beside is None:
            continue
        taken = {place.host for place in beside}
        found = plan_in(gang, [left for left in capacities if left.host not in taken], kept, spares=False)
        if isinstance(found, Plan):
            return Plan((*found.places, *beside))
    what = "a host more for its own spare" if gang.spares == 1 else f"other hosts for its {gang.spares} own spares"
    return Wait(f"needs {what}, beside those of its workers")


def _used(places: Mapping[int, Place]) -> Counter[str]:
    """The gang's workers on each host."""
    return Counter(place.host for place in places.values())


def _place(
    gang: Gang, missing: Iterable[Member], capacities: list[HostCapacity], used: Counter[str], placed: int
) -> dict[int, Place] | Wait:
    """Places for the missing workers, beside so many that have one. The choosiest and largest choose first.

    Where pools may have different hosts and that order doesn't fit, others are tried, in which each pool leaves the
    hosts to the others that these may have as well. ``used`` has the gang's workers on each host, and counts these too.
    """
    pools: dict[int, list[Member]] = {}
    for member in missing:
        pools.setdefault(member.pool, []).append(member)
    order = sorted(pools, key=lambda number: (*_need(gang.pools[number]), number))
    if not gang.is_choosy or len(order) == 1:
        return _place_pools(gang, [(number, pools[number]) for number in order], capacities, used, placed)
    able = {number: {left.host for left in fitting(gang.pools[number], capacities)} for number in order}
    order.sort(key=lambda number: len(able[number]))
    first: Wait | None = None
    for turn, numbers in enumerate(itertools.permutations(order)):
        wanted = Counter(name for number in order for name in able[number]) if turn else Counter[str]()
        now = used.copy()
        found = _place_pools(gang, [(n, pools[n]) for n in numbers], capacities, now, placed, wanted)
        if not isinstance(found, Wait):
            used.update(now - used)
            return found
        first = first or found
        if found.placed - placed < len(pools[numbers[0]]):
            break  # That pool doesn't fit even alone.
    assert first is not None
    return first


def _place_pools(
    gang: Gang,
    pools: list[tuple[int, list[Member]]],
    capacities: list[HostCapacity],
    used: Counter[str],
    placed: int,
    wanted: Mapping[str, int] = NO_OTHERS,
) -> dict[int, Place] | Wait:
    """Places for the workers of pools, one pool after another. Hosts that more pools have ``wanted`` come last."""
    places: dict[int, Place] = {}
    changed: dict[str, HostCapacity] = {}
    for number, members in pools:
        pool = gang.pools[number]
        if changed:
            capacities = [changed.get(left.host, left) for left in capacities]
        # Only a worker's own host changes its turn; a host that is too small for one is so for the next.
        turns = heapq.nsmallest(len(members), _turns(pool, fitting(pool, capacities), used, wanted))
        for member in members:
            if not turns:
                placed += len(places)
                capacities = [changed.get(left.host, left) for left in capacities]
                return Wait(_lack(gang, number, capacities, placed), placed, len(gang.members))
            left = turns[0][-1]
            if left.host not in changed:
                left = changed[left.host] = left.copy()
            places[member.index] = left.take(pool)
            used[left.host] += 1
            if left.fits(pool):
                heapq.heapreplace(turns, *_turns(pool, [left], used, wanted))
            else:
                heapq.heappop(turns)
    return places


def _need(pool: Pool) -> tuple[bool, int, int, int]:
    """Sort key of pools: first those that name a GPU model, then the largest."""
    return not (pool.gpus and (pool.gpu_type or pool.gpu_partition)), -pool.gpus, -pool.cpus, -pool.memory_mb


def _turns(
    pool: Pool, fitting: Iterable[HostCapacity], used: Counter[str], wanted: Mapping[str, int] = NO_OTHERS
) -> list[tuple[Any, ...]]:
    """Sort keys of the hosts that a worker fits on, the first of which is taken, each with its host at the end.

    A gang without GPUs is spread.
    """
    if not pool.gpus:
        return [
            (wanted.get(left.host, 0), left.caution, used[left.host], *left.emptiness[1:], left) for left in fitting
        ]
    if not wanted:
        return [(0, *left.fullness, left) for left in fitting]
    return [(wanted.get(left.host, 0), *left.fullness, left) for left in fitting]


def _in_turn(pool: Pool, capacities: Iterable[HostCapacity]) -> list[HostCapacity]:
    """The hosts that a worker fits on, in the order in which they are taken for a first one."""
    return [turn[-1] for turn in sorted(_turns(pool, fitting(pool, capacities), Counter()))]


def _lack(gang: Gang, number: int, capacities: list[HostCapacity], placed: int) -> str:
    """The resources that the first unplaced worker, of that pool, lacks on the best host, in words."""
    pool, total = gang.pools[number], len(gang.members)
    if ability := missing_ability(pool, capacities):
        return f"needs {ability}"
    able = able_hosts(pool, capacities) or capacities
    lacking = _too_small(pool, able)
    if not lacking and not any(host.slots >= 1 for host in able):
        lacking = ["a free worker slot"]
    what = " and ".join(lacking) or "a host with room for all it asks for at once"
    if pool.is_choosy:
        what += f", of the hosts of workerpool{number} ({pool.hosts_in_words()})"
    have = f"; {placed} of {total} workers would fit now" if placed else ""
    return f"needs {what}{have}"


def missing_ability(pool: Pool, capacities: list[HostCapacity]) -> str:
    """An ability that the pool needs and all hosts lack, in words; else empty."""
    # A pass asks this for each job that doesn't fit, of all hosts: most pools may have any, and need no ability.
    admitted = [host for host in capacities if host.is_admitted(pool)] if pool.is_choosy else capacities
    if pool.is_choosy and not admitted:
        return f"a host that its pool may have ({pool.hosts_in_words()})"
    return next((what for hosts, what in _without_ability(pool, admitted) if len(hosts) == len(admitted)), "")


def able_hosts(pool: Pool, capacities: list[HostCapacity]) -> list[HostCapacity]:
    """The hosts that the pool may have, and that lack no ability which it needs."""
    unable = {host.host for hosts, _ in _without_ability(pool, capacities) for host in hosts}
    if not unable and not pool.is_choosy:
        return capacities
    return [host for host in capacities if host.host not in unable and host.is_admitted(pool)]


def _without_ability(pool: Pool, capacities: list[HostCapacity]) -> Iterator[tuple[list[HostCapacity], str]]:
    """For each ability that the pool needs and some hosts lack: those hosts, and what is needed instead."""
    if pool.task.image and (hosts := [host for host in capacities if host.no_containers]):
        yield hosts, f"a host that runs containers ({hosts[0].host}: {hosts[0].no_containers})"
    if pool.task.account and (hosts := [host for host in capacities if host.no_accounts]):
        why = f"{hosts[0].host}: {hosts[0].no_accounts}"
        yield hosts, f"a host that starts workers as {pool.task.account} ({why})"
    if pool.task.secrets and (hosts := [host for host in capacities if not host.gives_secrets]):
        yield hosts, f"a host whose agent gives secrets; upgrade that of {hosts[0].host}"


def _too_small(pool: Pool, capacities: list[HostCapacity]) -> list[str]:
    """The resources that no single host has enough of."""
    lacking = []
    fullest = max(capacities, key=lambda host: host.matching(pool))
    if pool.gpus and (best := fullest.matching(pool)) < pool.gpus:
        where = f", {fullest.host}" if best else other_profiles(pool, capacities)
        lacking.append(f"{pool.gpu_words(pool.gpus)} on one host ({best} free on the best{where})")
    if pool.cpus and (cpus := max(host.cpus for host in capacities)) < pool.cpus:
        lacking.append(f"{pool.cpus} cores on one host ({max(cpus, 0)} free on the best)")
    if pool.memory_mb and (memory := max(host.memory_mb for host in capacities)) < pool.memory_mb:
        lacking.append(f"{pool.memory_mb} MiB on one host ({max(memory, 0)} free on the best)")
    return lacking


def other_profiles(pool: Pool, hosts: list[HostCapacity]) -> str:
    """The MIG profiles that hosts have instead, with the field that asks for one; empty where they have none."""
    profiles = {partition_of(model) for capacity in hosts if capacity.is_partitioned for _, model in capacity.gpus}
    profiles -= {"", pool.gpu_partition}
    return f"; there are MIG instances for gpuPartitionSize {', '.join(sorted(profiles))}" if profiles else ""
