"""A job's own spares: shares of hosts that it holds beside its workers, and on which nothing of it runs.

When workers have to leave their hosts, those take the spares' places at once, and the others keep theirs. A spare is
as large as the largest worker, so it does for each of them. Its share has an index behind those of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.hosts.host import Host, Place, place_key
from holdfast_controller.core.model.job import Job


def keys(job: Job) -> frozenset[str]:
    """Keys of the shares that a job's own spares hold."""
    if not job.spares:
        return frozenset()
    first = len(job.gang.members)
    return frozenset(place_key(job.id, index) for index in range(first, first + len(job.spares)))


def is_own_spare(cluster: Cluster, key: str) -> bool:
    """Whether the share of that key is a spare of its job: nothing runs there."""
    job_id, _, index = key.rpartition("/")
    return cluster.jobs[job_id].is_spare(int(index))


def never_used(gang: Gang) -> str:
    """Why no worker would ever be moved to a spare when its host is lost; empty where it may be."""
    if not gang.spares or gang.replace_when_lost:
        return ""
    if not gang.replace_if_isolated:
        return "are of no use here: by the cluster's disconnectPolicy a worker on a lost host is never replaced"
    if len(gang.members) == 1:
        return "are of no use to a single worker: no other one can tell that its host is lost"
    return ""


def is_usable(gang: Gang, spare: Place, hosts: Mapping[str, Host]) -> bool:
    """Whether any worker could start there now, by the hosts that take work and the labels that these have."""
    host = hosts.get(spare.host)
    if host is None or not host.faulty.isdisjoint(spare.gpus) or not _is_there(spare, host):
        return False
    return gang.admits(host.name, host.labels) and gang.spare_pool.admits(host.name, host.labels)


def may_stay(job: Job, hosts: Mapping[str, Host]) -> bool:
    """Whether all its workers that have a place may keep it, by the hosts that take work."""
    for index in job.reserved:
        host = hosts.get(job.places[index].host)
        if host is None or not _is_there(job.places[index], host):
            return False
        if not job.gang.pool_of(job.gang.members[index]).admits(host.name, host.labels):
            return False
    return True


def _is_there(place: Place, host: Host) -> bool:
    """Whether its host still has what the place is of, and isn't another machine of the same name by now."""
    has, held = host.inventory, host.allocations.values()
    if not has.uuids.issuperset(place.gpus) or sum(share.cpus for share in held) > has.cpus:
        return False
    return sum(share.memory_mb for share in held) <= has.memory_bytes >> 20


def taken(job: Job, hosts: Mapping[str, Host]) -> tuple[Place, ...]:
    """Places of a waiting job and its spares once those take the place of workers that lack one; empty if too few."""
    if not may_stay(job, hosts):
        return ()
    spares = [spare for spare in job.spares if is_usable(job.gang, spare, hosts)]
    staying = [job.places[index].host for index in job.reserved] or [spare.host for spare in spares[:1]]
    near = near_to(job.gang, (hosts[name] for name in staying))
    spares = [spare for spare in spares if near(hosts[spare.host])]
    missing = [member for member in job.gang.members if member.index not in job.reserved]
    if not missing or len(missing) > len(spares):
        return ()
    places = dict(enumerate(job.places))
    for member in missing:
        spare, gpus = spares.pop(0), job.gang.pool_of(member).gpus
        places[member.index] = Place(spare.host, spare.gpus[:gpus])
    used = {place.host for place in places.values()}
    return (*places.values(), *(spare for spare in spares if spare.host not in used))


def left(job: Job, places: tuple[Place, ...], hosts: Mapping[str, Host]) -> tuple[Place, ...]:
    """The planned places of a job's workers, with those of its spares that are left beside them."""
    if not job.spares:
        return places
    used = {place.host for place in places}
    near = near_to(job.gang, (hosts[name] for name in used if name in hosts))
    spares = (each for each in job.spares if each.host not in used and is_usable(job.gang, each, hosts))
    return (*places, *(each for each in spares if near(hosts[each.host])))


def near_to(gang: Gang, hosts: Iterable[Host]) -> Callable[[Host], bool]:
    """Whether a host is where all workers of a gang have to be, of which some are on ``hosts``."""
    near = gang.near
    if near is None or not near.required:
        return lambda _: True
    domains = {near.domain_of(host.labels, near.depth) for host in hosts}
    return lambda host: near.domain_of(host.labels, near.depth) in domains
