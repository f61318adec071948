"""What needs somebody's attention, in words: the most urgent first, and of each kind no more than people read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.host import Host
from holdfast_controller.core.model.job import Cluster
from holdfast_controller.core.model.quota import Quotas
from holdfast_controller.core.scheduling.pending_reason import Standing, wait_reason
from holdfast_controller.core.scheduling.schedule import schedulable_hosts
from holdfast_controller.core.views.overview import HostStanding, Overview, standing_of

LONG_WAIT_S = 600.0
"""A job that has waited for so long is worth a line."""
CERTIFICATE_S = 3 * 86_400.0
"""One that ends so soon should have been renewed: even a user's is after 20 of its 30 days."""
MOST_OF_A_KIND = 8


class Kind(enum.Enum):
    """As the contract names them, in the order in which they are told."""

    HOST_LOST = "HOST_LOST"
    HOST_SILENT = "HOST_SILENT"
    HOST_REFUSED = "HOST_REFUSED"
    WITHHELD = "WITHHELD"
    GPU_FAULT = "GPU_FAULT"
    HANG = "HANG"
    CERTIFICATE = "CERTIFICATE"
    NOTIFICATIONS = "NOTIFICATIONS"
    JOB_WAITS = "JOB_WAITS"
    HOST_CORDONED = "HOST_CORDONED"
    VERSIONS = "VERSIONS"


@dataclass(frozen=True)
class Attention:
    """One thing. ``since`` is wall clock; None where nobody knows."""

    kind: Kind
    subject: str
    message: str
    since: Wall | None = None


@dataclass(frozen=True)
class Beside:
    """What is not in the model: this controller's certificates by name, its version, and its notifications."""

    version: str
    certificate_ends: dict[str, float]
    notifications_waiting: int = 0
    receivers_failing: int = 0


def attention(
    cluster: Cluster, found: Overview, sees: Callable[[str], bool], quotas: Quotas, beside: Beside, now: Now
) -> tuple[list[Attention], int]:
    """(what to tell, how many more there are). ``sees`` says of which projects' jobs; hosts are everybody's."""
    whole = [
        *_hosts(cluster, found, now),
        *_hangs(found, sees),
        *_cluster(cluster, found, beside, now),
        *_waiting(cluster, sees, quotas, now),
    ]
    told: list[Attention] = []
    for kind in Kind:
        told += [each for each in whole if each.kind is kind][:MOST_OF_A_KIND]
    return told, len(whole) - len(told)


def _hosts(cluster: Cluster, found: Overview, now: Now) -> Iterator[Attention]:
    for name in sorted(cluster.hosts):
        host = cluster.hosts[name]
        subject, standing = f"host/{name}", standing_of(cluster, host)
        silent_s = found.silent_s.get(name)
        since = now.wall_in(-silent_s) if silent_s is not None else None
        match standing:
            case HostStanding.LOST:
                work = "; its work waits for word" if host.allocations else ""
                yield Attention(
                    Kind.HOST_LOST, subject, f"nothing is heard from it, and its lease is over{work}", since
                )
            case HostStanding.SILENT:
                yield Attention(Kind.HOST_SILENT, subject, "nothing is heard from it", since)
            case HostStanding.REFUSED:
                yield Attention(Kind.HOST_REFUSED, subject, host.refused)
            case HostStanding.GOING_DOWN | HostStanding.DRAINED | HostStanding.DRAINING | HostStanding.CORDONED:
                yield Attention(
                    Kind.HOST_CORDONED, subject, _kept_from_work(host, standing), host.drain_since or None
                )
            case HostStanding.READY:
                pass
        shares = found.withheld.get(name, 0)
        if shares:
            whose = "1 worker" if shares == 1 else f"{shares} workers"
            message = f"what {whose} held there is withheld until it is proven empty"
            yield Attention(Kind.WITHHELD, subject, message)
        if host.inventory.faulty:
            yield Attention(Kind.GPU_FAULT, subject, _gpu_fault(host))


def _kept_from_work(host: Host, standing: HostStanding) -> str:
    word = standing.value.replace("_", " ")
    return f"{word}: {host.cordon_reason}" if host.cordon_reason else word


def _gpu_fault(host: Host) -> str:
    if host.inventory.gpu_problem:
        return host.inventory.gpu_problem
    bad = [f"GPU {gpu.index}: {gpu.problem}" for gpu in host.inventory.gpus if gpu.problem]
    more = f" and {len(bad) - 2} more" if len(bad) > 2 else ""
    return "; ".join(bad[:2]) + more


def _hangs(found: Overview, sees: Callable[[str], bool]) -> Iterator[Attention]:
    for job in found.hangs:
        if sees(job.gang.project):
            hang = job.hangs[-1]
            yield Attention(Kind.HANG, f"job/{job.id}", f"hangs: {hang.sentence}", hang.since)


def _waiting(cluster: Cluster, sees: Callable[[str], bool], quotas: Quotas, now: Now) -> Iterator[Attention]:
    """The first that are served, which need not be those that have waited longest."""
    jobs = (cluster.jobs[job_id] for job_id in cluster.queue)
    long = (
        job
        for job in jobs
        if job.queued_since is not None and now.wall - job.queued_since >= LONG_WAIT_S and sees(job.gang.project)
    )
    standing = Standing(cluster, schedulable_hosts(cluster), quotas)
    for job in islice(long, MOST_OF_A_KIND):
        reason = wait_reason(cluster, job, standing.schedulable_hosts, standing)
        yield Attention(Kind.JOB_WAITS, f"job/{job.id}", f"waits: {reason}", job.queued_since)


def _cluster(cluster: Cluster, found: Overview, beside: Beside, now: Now) -> Iterator[Attention]:
    for name, ends in beside.certificate_ends.items():
        left_s = ends - now.wall
        if left_s <= 0:
            yield Attention(Kind.CERTIFICATE, "controller", f"the {name} certificate has ended", Wall(ends))
        elif left_s < CERTIFICATE_S:
            yield Attention(Kind.CERTIFICATE, "controller", f"the {name} certificate ends in {left_s / 3600:.0f} h")
    if beside.receivers_failing:
        receivers = "1 receiver" if beside.receivers_failing == 1 else f"{beside.receivers_failing} receivers"
        message = f"{receivers} can't be reached; {beside.notifications_waiting} notifications wait"
        yield Attention(Kind.NOTIFICATIONS, "controller", message)
    others = {version: count for version, count in found.versions.items() if version != beside.version}
    if others:
        shown = ", ".join(f"{count} of {version}" for version, count in sorted(others.items()))
        message = f"agents of another version than the controller's {beside.version}: {shown}"
        yield Attention(Kind.VERSIONS, "controller", message)
