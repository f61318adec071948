"""Other hosts: which ones take work at present, and whether they could take what a job would move."""

from __future__ import annotations

from collections.abc import Collection

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts import own_spares
from holdfast_controller.core.model.hosts.capacity import capacity_of
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job


def takes_work(cluster: Cluster, host: Host) -> bool:
    """Whether a host may get new work now: connected, heard from, not cordoned and not shutting down."""
    there = cluster.presence.get(host.name)
    return there is not None and there.is_connected and host.takes_work


def schedulable_hosts(cluster: Cluster) -> list[Host]:
    """The hosts for which ``takes_work`` is true. Found again only once something has changed: all submissions ask."""
    if cluster.schedulable is None:
        found = cluster.schedulable = [host for host in cluster.hosts.values() if takes_work(cluster, host)]
        cluster.in_maintenance = [host for host in found if host.maintenance is not None]
        planned = [host for host in cluster.hosts.values() if host.maintenance is not None]
        cluster.coming_back = [host for host in planned if host.returns_at is not None]
    return cluster.schedulable


def could_move(cluster: Cluster, job: Job, away: Collection[str]) -> bool:
    """Whether other hosts have free what the workers on the hosts ``away`` need. Placing the job decides for good."""
    spares = own_spares.keys(job)
    stays = [place.host for place in job.places if place.host not in away]
    others = [
        capacity_of(host, spares)
        for host in cluster.hosts.values()
        if host.name not in away
        and takes_work(cluster, host)
        and job.gang.admits(host.name, host.labels)
        and _is_near(cluster, job, host, stays)
    ]
    moving = [job.gang.pool_of(member) for member in job.gang.members if job.places[member.index].host in away]
    for pool in sorted(moving, key=lambda pool: (pool.gpus, pool.cpus, pool.memory_mb), reverse=True):
        taken = next((capacity for capacity in others if capacity.fits(pool)), None)
        if taken is None:
            return False
        taken.take(pool)
    return bool(moving)


def _is_near(cluster: Cluster, job: Job, host: Host, stays: list[str]) -> bool:
    """Whether a host is where a job's workers have to be, which stay."""
    near = job.gang.near
    if near is None or not near.required:
        return True
    known = (cluster.hosts.get(name) for name in stays)
    domains = {near.domain_of(other.labels, near.depth) for other in known if other is not None}
    return not domains or domains == {near.domain_of(host.labels, near.depth)}
