"""How the cluster stands at one moment: hosts, GPUs and jobs by state, and the queue. For metrics and for people.

One look at every job, every host and every share that is held: 11 to 14 ms with a thousand hosts and ten thousand
jobs (``bench/metrics_cost.py``), in the reactor's way, so it is done when somebody asks and not more often.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.host import Host, Liveness
from holdfast_controller.core.model.job import Cluster, Job
from holdfast_controller.core.model.job_state import JobState


class HostStanding(enum.StrEnum):
    """The first that applies to a host, in this order."""

    REFUSED = "refused"
    LOST = "lost"
    SILENT = "silent"
    GOING_DOWN = "going_down"
    DRAINED = "drained"
    DRAINING = "draining"
    CORDONED = "cordoned"
    READY = "ready"


class GpuStanding(enum.StrEnum):
    """The first that applies to a GPU, in this order."""

    WITHHELD = "withheld"
    """Held by a worker that was taken as gone; its host has not proven that."""
    USED = "used"
    UNHEALTHY = "unhealthy"
    UNAVAILABLE = "unavailable"
    """Its host takes no work now."""
    FREE = "free"


@dataclass
class Overview:
    """Counts by state; every state is there."""

    hosts: Counter[HostStanding] = field(default_factory=lambda: Counter(dict.fromkeys(HostStanding, 0)))
    gpus: Counter[GpuStanding] = field(default_factory=lambda: Counter(dict.fromkeys(GpuStanding, 0)))
    jobs: Counter[str] = field(default_factory=lambda: Counter({state.name: 0 for state in JobState}))
    versions: Counter[str] = field(default_factory=Counter)
    """Of agents."""
    connected: int = 0
    silent_s: dict[str, float] = field(default_factory=dict)
    """By host that is silent or lost; since the controller's start where it was not heard in that time."""
    withheld: dict[str, int] = field(default_factory=dict)
    """By host: shares that are withheld there."""
    waiting: int = 0
    oldest_since: Wall | None = None
    """Wall clock."""
    smallest_gpus: int | None = None
    hangs: list[Job] = field(default_factory=list)
    """Jobs whose newest hang was told and goes on."""


def overview(cluster: Cluster, now: Now) -> Overview:
    """How the cluster stands."""
    found = Overview()
    found.jobs.update([job.state._name_ for job in cluster.jobs.values()])
    for host in cluster.hosts.values():
        _count_host(found, cluster, host, now)
    for job_id in cluster.queue:
        job = cluster.jobs[job_id]
        since = job.queued_since if job.queued_since is not None else job.created_at
        if found.oldest_since is None or since < found.oldest_since:
            found.oldest_since = since
        if found.smallest_gpus is None or job.gang.gpus < found.smallest_gpus:
            found.smallest_gpus = job.gang.gpus
    found.waiting = len(cluster.queue)
    live = (cluster.jobs[job_id] for job_id in cluster.runtime)
    found.hangs = [job for job in live if job.hangs and job.hangs[-1].open]
    return found


def standing_of(cluster: Cluster, host: Host) -> HostStanding:
    """Where one host stands."""
    if host.refused:
        return HostStanding.REFUSED
    if host.lost:
        return HostStanding.LOST
    if cluster.presence_of(host.name).liveness is not Liveness.READY:
        return HostStanding.SILENT
    if host.going_down:
        return HostStanding.GOING_DOWN
    if host.draining:
        return HostStanding.DRAINED if host.drained else HostStanding.DRAINING
    return HostStanding.CORDONED if host.cordoned else HostStanding.READY


def is_withheld(cluster: Cluster, host: str, key: str) -> bool:
    """Whether the share was taken from a worker that nobody has proven gone."""
    job_id, _, number = key.rpartition("/")
    job, index = cluster.jobs[job_id], int(number)
    return index >= len(job.places) or job.places[index].host != host or index in job.placement.fenced


def _count_host(found: Overview, cluster: Cluster, host: Host, now: Now) -> None:
    standing, presence = standing_of(cluster, host), cluster.presence_of(host.name)
    found.hosts[standing] += 1
    found.connected += presence.session is not None
    if host.agent_version:
        found.versions[host.agent_version] += 1
    if standing in (HostStanding.LOST, HostStanding.SILENT):
        found.silent_s[host.name] = max(now.mono - presence.last_seen, 0.0)
    used, withheld, shares = _held(cluster, host)
    if shares:
        found.withheld[host.name] = shares
    unhealthy = len(host.inventory.faulty.difference(used, withheld)) if host.inventory.faulty else 0
    idle = GpuStanding.FREE if standing is HostStanding.READY else GpuStanding.UNAVAILABLE
    gpus = found.gpus
    gpus[GpuStanding.USED] += len(used)
    gpus[GpuStanding.WITHHELD] += len(withheld)
    gpus[GpuStanding.UNHEALTHY] += unhealthy
    gpus[idle] += len(host.inventory.gpus) - len(used) - len(withheld) - unhealthy


def _held(cluster: Cluster, host: Host) -> tuple[list[str], list[str], int]:
    """(GPUs that are used, GPUs that are withheld, shares that are)."""
    used: list[str] = []
    withheld: list[str] = []
    shares = 0
    for key, share in host.allocations.items():
        if is_withheld(cluster, host.name, key):
            withheld += share.gpus
            shares += 1
        else:
            used += share.gpus
    return used, withheld, shares
