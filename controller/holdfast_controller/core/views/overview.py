"""The cluster at one moment: hosts, GPUs and jobs counted by state, and the queue. For metrics and the status page.

One look at every host, every share that is held and every job that waits: some 20 ms where ten thousand jobs run on a
thousand hosts (``bench/costs/metrics.py``). So it is computed on request only, and in pieces between which the reactor
may go on: each host is counted as it is at its turn.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host, Liveness
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.views.gpu_states import GpuState, gpu_states, is_quarantined, kept_hosts


class HostState(enum.StrEnum):
    """A host's state on the status page and in metrics: the first that applies, in this order."""

    REFUSED = "refused"
    LOST = "lost"
    SILENT = "silent"
    GOING_DOWN = "going_down"
    DRAINED = "drained"
    DRAINING = "draining"
    CORDONED = "cordoned"
    RESERVED = "reserved"
    """It takes work of some jobs alone: it is reserved now, or kept as a spare."""
    READY = "ready"


@dataclass
class Overview:
    """Hosts, GPUs and jobs counted by state; states with a count of 0 are included."""

    hosts: Counter[HostState] = field(default_factory=lambda: Counter(dict.fromkeys(HostState, 0)))
    gpus: Counter[GpuState] = field(default_factory=lambda: Counter(dict.fromkeys(GpuState, 0)))
    jobs: Counter[str] = field(default_factory=lambda: Counter({state.name: 0 for state in JobState}))
    jobs_of: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """The same by project, without states of which there are none."""
    versions: Counter[str] = field(default_factory=Counter)
    """Of agents."""
    connected: int = 0
    silent_s: dict[str, float] = field(default_factory=dict)
    """By host that is silent or lost; since the controller's start where it was not heard in that time."""
    quarantined: dict[str, int] = field(default_factory=dict)
    """By host: its quarantined shares."""
    noted: list[str] = field(default_factory=list)
    """Hosts of which there is more to say than that they are ready."""
    waiting: int = 0
    oldest_since: Wall | None = None
    """Wall clock."""
    smallest_gpus: int | None = None
    hangs: list[Job] = field(default_factory=list)
    """Jobs whose newest hang was notified and is still open."""
    hang_again: list[Job] = field(default_factory=list)
    """Other jobs that hung again after a restart for a hang, and were restarted again."""
    underused: list[Job] = field(default_factory=list)
    """Jobs that have not used their GPUs for as long as their policy says."""


@dataclass(frozen=True, slots=True)
class HostCount:
    """The part of one host in the count, as far as time alone does not change it."""

    state: HostState
    gpus: Mapping[GpuState, int]
    quarantined: int
    """Its quarantined shares."""
    is_noted: bool
    """Whether there is more to say of it than that it is ready."""


CountHost = Callable[[Cluster, Host, Collection[str]], HostCount]
"""Counts one host; the last argument is ``kept_hosts``."""

JOBS_AT_ONCE, HOSTS_AT_ONCE = 256, 16
"""So many between two pieces, which take a millisecond or less where a host has ten workers."""


def overview(cluster: Cluster, now: Now) -> Overview:
    """Count hosts, GPUs and jobs by state, at once."""
    pieces = counting(cluster, now)
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            found: Overview = done.value
            return found


def counting(cluster: Cluster, now: Now, count: CountHost | None = None) -> Generator[None, None, Overview]:
    """Count hosts, GPUs and jobs by state, a piece at each ``next``. The cluster may change between two pieces: who is
    there as it begins is counted, unless gone by its turn. ``count``: in place of ``count_host``, with its results.
    """
    found = Overview()
    for (project, state), number in cluster.jobs.by_state.items():
        if number:
            found.jobs[state.name] += number
            found.jobs_of[project][state.name] += number
    names, kept = list(cluster.hosts), kept_hosts(cluster, now)
    for first in range(0, len(names), HOSTS_AT_ONCE):
        for name in names[first : first + HOSTS_AT_ONCE]:
            if (host := cluster.hosts.get(name)) is not None:
                _add_host(found, cluster, host, (count or count_host)(cluster, host, kept), now)
        yield
    yield from _waiting(found, cluster)
    yield from _troubled(found, cluster)
    return found


def _waiting(found: Overview, cluster: Cluster) -> Generator[None, None, None]:
    queue = list(cluster.queue)
    found.waiting = len(queue)
    for number, job_id in enumerate(queue, 1):
        job = cluster.jobs.whole.get(job_id)
        if job is None:
            continue
        since = job.queued_since if job.queued_since is not None else job.created_at
        if found.oldest_since is None or since < found.oldest_since:
            found.oldest_since = since
        if found.smallest_gpus is None or job.gang.gpus < found.smallest_gpus:
            found.smallest_gpus = job.gang.gpus
        if number % JOBS_AT_ONCE == 0:
            yield


def _troubled(found: Overview, cluster: Cluster) -> Generator[None, None, None]:
    """Jobs that go on and need a look."""
    names, whole = list(cluster.jobs.conspicuous), cluster.jobs.whole
    for first in range(0, len(names), JOBS_AT_ONCE):
        for job in map(whole.get, names[first : first + JOBS_AT_ONCE]):
            if job is None or job.id not in cluster.runtime:
                continue
            if job.hangs and job.hangs[-1].open:
                found.hangs.append(job)
            elif job.budgets.hang_restarts > 1 and not job.terminal:
                found.hang_again.append(job)
            if job.underuse is not None:
                found.underused.append(job)
        yield


def host_state(cluster: Cluster, host: Host, kept: Collection[str] = ()) -> HostState:
    """The state of one host, as the status page names it. ``kept``: ``kept_hosts``."""
    if host.refused:
        return HostState.REFUSED
    if host.lost:
        return HostState.LOST
    if cluster.presence_of(host.name).liveness is not Liveness.READY:
        return HostState.SILENT
    if host.going_down:
        return HostState.GOING_DOWN
    if host.draining:
        return HostState.DRAINED if host.drained else HostState.DRAINING
    if not host.takes_work:
        return HostState.CORDONED
    return HostState.RESERVED if host.name in kept else HostState.READY


def count_host(cluster: Cluster, host: Host, kept: Collection[str]) -> HostCount:
    """The part of one host in the count. ``kept``: ``kept_hosts``."""
    state = host_state(cluster, host, kept)
    shares = sum(is_quarantined(cluster, host.name, key) for key in host.allocations)
    known, idle = gpu_states(cluster, host, kept)
    gpus = Counter(known.values())
    gpus[idle] += sum(gpu.uuid not in known for gpu in host.inventory.gpus)
    well = state in (HostState.READY, HostState.RESERVED)
    return HostCount(state, gpus, shares, not well or bool(shares or host.faulty) or _is_noted(host))


def _add_host(found: Overview, cluster: Cluster, host: Host, its: HostCount, now: Now) -> None:
    presence = cluster.presence_of(host.name)
    found.hosts[its.state] += 1
    found.connected += presence.session is not None
    if host.agent_version:
        found.versions[host.agent_version] += 1
    if its.state in (HostState.LOST, HostState.SILENT):
        found.silent_s[host.name] = max(now.mono - presence.last_seen, 0.0)
    if its.quarantined:
        found.quarantined[host.name] = its.quarantined
    if its.is_noted:
        found.noted.append(host.name)
    for state, number in its.gpus.items():
        found.gpus[state] += number


def _is_noted(host: Host) -> bool:
    return bool(host.orphans or host.unreconciled or host.failed_checks or host.throttled)
