"""The state of each GPU: held by work, out of service, or idle, and then whether a job may have it now.

What is free is what the scheduler would give a job now, of whichever project: so nothing of a host that isn't heard,
takes no work, or has yet to say what it runs, and nothing that unknown work holds. What is idle on hosts that are kept
for some jobs alone is a state of its own. Every count of GPUs, on the page, in tables and in metrics, is of these.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts, takes_work
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.scheduling.host_reservations import chosen_hosts


class GpuState(enum.StrEnum):
    """A GPU's state on the status page and in metrics: the first that applies, in this order."""

    QUARANTINED = "withheld"
    """Held by a worker that was taken as gone and is not proven to be, or by one that the log doesn't know."""
    USED = "used"
    UNHEALTHY = "unhealthy"
    UNAVAILABLE = "unavailable"
    """Its host takes no work now, or isn't heard."""
    RESERVED = "reserved"
    """Idle on a host that is reserved for a project now, or kept as a spare."""
    FREE = "free"


def is_quarantined(cluster: Cluster, host: str, key: str) -> bool:
    """Whether the share is kept from use because its former worker is not proven gone."""
    job_id, _, number = key.rpartition("/")
    job, index = cluster.jobs[job_id], int(number)
    if job.is_spare(index):
        return False
    return index >= len(job.places) or job.places[index].host != host or index in job.placement.fenced


def is_unreconciled(cluster: Cluster, host: Host) -> bool:
    """Whether it has yet to say what it runs, since the log was restored from a backup."""
    return host.unreconciled and host.name not in cluster.reported_hosts


def kept_hosts(cluster: Cluster, now: Now) -> Collection[str]:
    """The hosts that are for some jobs alone now: those of reservations that have begun, and spares."""
    if not cluster.reservations.by_name:
        return cluster.spares.keys()
    known = cluster.reservations.by_name
    begun = {name: hosts for name, hosts in _chosen(cluster, now).items() if known[name].start <= now.wall}
    return cluster.spares.keys() | {host.name for hosts in begun.values() for host in hosts}


def _chosen(cluster: Cluster, now: Now) -> dict[str, list[Host]]:
    return chosen_hosts(cluster, schedulable_hosts(cluster), now)


def gpu_states(cluster: Cluster, host: Host, kept: Collection[str]) -> tuple[dict[str, GpuState], GpuState]:
    """(state by UUID of the GPUs that are held or not well, state of all others). ``kept``: ``kept_hosts``."""
    found = dict.fromkeys(host.faulty, GpuState.UNHEALTHY)
    for orphan in host.orphans.values():
        found |= dict.fromkeys(orphan.gpus, GpuState.QUARANTINED)
    for key, share in host.allocations.items():
        gone = share.gpus and is_quarantined(cluster, host.name, key)
        found |= dict.fromkeys(share.gpus, GpuState.QUARANTINED if gone else GpuState.USED)
    if host.lost or host.refused or not takes_work(cluster, host) or is_unreconciled(cluster, host):
        return found, GpuState.UNAVAILABLE
    return found, GpuState.RESERVED if host.name in kept else GpuState.FREE
