"""Why a gang could not be placed on all its hosts if they were empty, and what would fit instead.

Nothing here is said of what is free: the hosts may be full when it is asked. With ten thousand hosts only one of each
kind is looked at closely, and workers that all ask for the same are counted rather than placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.scheduling.placement import (
    Plan,
    Wait,
    able_hosts,
    may_have,
    missing_ability,
    other_profiles,
    plan_on,
)
from holdfast_controller.core.scheduling.topology import asks, most_workers

LESS = "ask for less, or add hosts"
MOST_KINDS = 10_000
"""Kinds of gangs that are remembered to fit, or not to; past that the check is made again."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether all hosts of a gang together, empty, could hold it; if not, why, and the fix.

    Neither is said while no host is known of those that it, or one of its pools, may have.
    """

    fits: bool
    reason: str = ""
    fix: str = ""


def fit_when_empty(gang: Gang, hosts: list[Host]) -> Fit:
    """Whether all its hosts together, empty, could hold the gang."""
    admitted = may_have(gang, hosts)
    capacities, fix = _empty(admitted), LESS
    pools = [pool for pool in gang.pools if pool.replicas]
    if not admitted or not all(any(capacity.is_admitted(pool) for capacity in capacities) for pool in pools):
        return Fit(fits=False)
    workers, slots = sum(pool.replicas for pool in gang.pools), sum(capacity.slots for capacity in capacities)
    if workers > slots:
        # Before its workers are placed one by one, which takes long for a hundred thousand.
        lack = f"it has {workers:,} workers, and they take {slots:,}"
    elif of_pool := _of_one_pool(gang, capacities):
        lack = of_pool
    else:
        found = _found(gang, admitted, capacities)
        if isinstance(found, Plan):
            return Fit(fits=True)
        lack = _lack(gang, capacities, found)
        if split := _split(gang, admitted, capacities):
            fix = f"ask for as many GPUs in smaller workers ({split}), or add hosts"
    its = "" if len(admitted) == len(hosts) else " that it may have"
    all_hosts = f"all {len(admitted)} hosts{its} together" if len(admitted) > 1 else f"the only host{its}"
    reason = f"{all_hosts} could not hold the job even when empty: {lack}"
    return Fit(fits=False, reason=reason, fix=fix)


def waits_for_others(cluster: Cluster, gang: Gang) -> bool:
    """Whether a gang waits for hosts that haven't joined: those that have could not hold it even when empty.

    A host that is away, or whose GPUs can't be read at present, counts as one that has all it may have.
    """
    if gang.kind in cluster.can_fit:
        return False
    if gang.kind in cluster.cannot_fit:
        return True
    hosts = list(cluster.hosts.values())
    unread = any(host.inventory.gpu_problem and gang.admits(host.name, host.labels) for host in hosts)
    fits = not hosts or unread or fit_when_empty(gang, hosts).fits
    known = cluster.can_fit if fits else cluster.cannot_fit
    if len(known) >= MOST_KINDS:
        known.clear()
    known.add(gang.kind)
    return not fits


def outgrown(gang: Gang, hosts: Iterable[Host]) -> str:
    """Why no host, even when empty, could hold some worker of a gang that was submitted; empty where each could be.

    A host that takes no work, or is lost, may come back; one that has come back with less may have been the last.
    """
    admitted = may_have(gang, hosts)
    if not gang.is_choosy:
        admitted = list({host.inventory.kind: host for host in admitted}.values())
    capacities = [capacity_of(host, empty=True) for host in admitted]
    for pool in gang.pools:
        able = able_hosts(pool, capacities) if pool.replicas else []
        if able and (problem := _too_large(pool, able)):
            return f"{'a worker of it' if len(gang.members) > 1 else 'it'} asks for {problem}"
    return ""


def _empty(hosts: list[Host]) -> list[HostCapacity]:
    """The room of each of the hosts when it is empty. GPUs have the names of those of another host of its kind."""
    first: dict[str, HostCapacity] = {}
    found = []
    for host in hosts:
        like = first.get(host.inventory.kind)
        if like is None:
            like = first[host.inventory.kind] = capacity_of(host, empty=True)
        found.append(like.of_another(host))
    return found


def _found(gang: Gang, hosts: list[Host], capacities: list[HostCapacity]) -> Plan | Wait:
    """A plan on empty hosts, without its places where the workers need only be counted; or why there is none."""
    pools = [pool for pool in gang.pools if pool.replicas]
    if gang.near is None and not gang.spares and not gang.is_choosy and len(set(map(asks, pools))) == 1:
        pool, wanted = pools[0], sum(each.replicas for each in pools)
        kinds = Counter(capacity.inventory.kind for capacity in capacities)
        like = {capacity.inventory.kind: capacity for capacity in reversed(capacities)}
        room = sum(most_workers(pool, like[kind]) * number for kind, number in kinds.items())
        if room >= wanted:
            return Plan(())
        if room:
            return Wait("", room, wanted)
    by_name = {capacity.host: capacity for capacity in capacities}
    return plan_on(gang, hosts, lambda host: by_name[host.name])


def _of_one_pool(gang: Gang, capacities: list[HostCapacity]) -> str:
    """Why the hosts that one pool may have are too few for its workers alone; empty where no pool's are."""
    for number, pool in enumerate(gang.pools):
        if not pool.is_choosy or not pool.replicas:
            continue
        able = able_hosts(pool, capacities)
        if not able or _too_large(pool, able):
            continue
        which = f"workerpool{number} may have ({pool.hosts_in_words()})"
        one = len(able) == 1
        its = f"the only host that {which}" if one else f"the {len(able):,} hosts that {which}"
        if (slots := sum(capacity.slots for capacity in able)) < pool.replicas:
            return f"it has {pool.replicas:,} workers, and {its} take{'s' if one else ''} {slots:,}"
        there, wanted = sum(capacity.matching(pool) for capacity in able), pool.replicas * pool.gpus
        if there < wanted:
            return f"{its} {'has' if one else 'have'} {pool.gpu_words(there)} in all, and this asks for {wanted}"
    return ""


def _lack(gang: Gang, capacities: list[HostCapacity], found: Wait) -> str:
    pools = [pool for pool in gang.pools if pool.replicas]
    for pool in pools:
        if ability := missing_ability(pool, capacities):
            return f"it needs {ability}"
        able = able_hosts(pool, capacities)
        if able and (problem := _too_large(pool, able)):
            return f"{'it' if len(pools) == pool.replicas == 1 else 'a worker of it'} asks for {problem}"
    models = {(pool.gpu_type, pool.gpu_partition) for pool in pools if pool.gpus}
    if len(models) == 1 and not gang.is_choosy:
        wanted = next(pool for pool in pools if pool.gpus)
        there = sum(capacity.matching(wanted) for capacity in capacities)
        if there < gang.gpus:
            return f"the hosts have {wanted.gpu_words(there)} in all, and this asks for {gang.gpus}"
    if found.placed:
        return f"they have room for only {found.placed} of its {found.workers} workers"
    return f"it {found.reason}"


def _too_large(pool: Pool, able: list[HostCapacity]) -> str:
    """The part of one worker that is larger than any host has; empty where there is none."""
    gpus = max(host.matching(pool) for host in able)
    cpus, memory_mb = max(host.cpus for host in able), max(host.memory_mb for host in able)
    host = "host" if not pool.is_choosy else f"host that it may have ({pool.hosts_in_words()})"
    if pool.gpus > gpus:
        most = f"a {host} has {gpus} at most" if gpus else f"no {host} has any{other_profiles(pool, able)}"
        return f"{pool.gpu_words(pool.gpus)}, and {most}"
    if pool.cpus > cpus:
        return f"{pool.cpus} cores, and a {host} has {cpus} at most"
    if pool.memory_mb > memory_mb:
        return f"{pool.memory_mb} MiB, and a {host} has {memory_mb} at most"
    return ""


def _split(gang: Gang, hosts: list[Host], capacities: list[HostCapacity]) -> str:
    """The options with which a gang has as many GPUs in smaller workers that fit; empty where there are none.

    The largest such workers: the fewest have to talk to each other over the network.
    """
    pools = [pool for pool in gang.pools if pool.replicas]
    asks = {(p.gpus, p.gpu_type, p.gpu_partition, p.cpus, p.memory_mb, p.selector, p.machines) for p in pools}
    if len(asks) != 1 or pools[0].gpu_partition:
        return ""
    most = max(capacity.matching(pools[0]) for capacity in capacities)
    slots = sum(capacity.slots for capacity in capacities)
    for gpus in range(min(most, pools[0].gpus - 1), 0, -1):
        workers, left = divmod(gang.gpus, gpus)
        if left or workers > slots:
            continue
        smaller = replace(gang, pools=(replace(pools[0], replicas=workers, gpus=gpus),))
        if isinstance(_found(smaller, hosts, capacities), Plan):
            return f"--replicas {workers} --gpus {gpus}"
    return ""
