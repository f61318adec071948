"""Alerts of the status page, in words: the most urgent first, and of each kind no more than people read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from itertools import islice

from holdfast._base.dataclass import dataclass
from holdfast._base.health import Health
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.accounts.quota import Quotas
from holdfast_controller.core.model.clock import Now, Wall, time_of_day
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.health import ill, in_words
from holdfast_controller.core.model.hosts.host import FailedCheck, Host
from holdfast_controller.core.model.hosts.throttling import throttled_in_words
from holdfast_controller.core.scheduling.fair_share.turns import in_turn
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.views.certificate_ends import stage
from holdfast_controller.core.views.job_summary import summary_of, underuse_in_words, what_follows
from holdfast_controller.core.views.overview import HostState, Overview, host_state

LONG_WAIT_S = 600.0
"""A job that has waited for so long is worth a line."""
MOST_OF_A_KIND = 8


class Kind(enum.Enum):
    """Kinds of alerts in the order in which they are listed; the values are the API's names."""

    HOST_LOST = "HOST_LOST"
    HOST_SILENT = "HOST_SILENT"
    HOST_REFUSED = "HOST_REFUSED"
    HOST_THROTTLED = "HOST_THROTTLED"
    CHECK = "CHECK"
    ORPHANS = "STRANGE_WORK"
    UNRECONCILED = "UNRECONCILED"
    QUARANTINED = "WITHHELD"
    GPU_FAULT = "GPU_FAULT"
    HANG = "HANG"
    CERTIFICATE = "CERTIFICATE"
    NOTIFICATIONS = "NOTIFICATIONS"
    JOB_WAITS = "JOB_WAITS"
    UNDERUSED = "UNDERUSED"
    HOST_CORDONED = "HOST_CORDONED"
    VERSIONS = "VERSIONS"


@dataclass(frozen=True)
class Alert:
    """One line of the status page's list. ``since`` is wall clock; None where it is not known."""

    kind: Kind
    subject: str
    message: str
    since: Wall | None = None


@dataclass(frozen=True)
class ControllerStatus:
    """Facts about this controller that are not in the model: version, ends of certificates by name, notifications."""

    version: str
    certificate_ends: dict[str, float]
    notifications_waiting: int = 0
    receivers_failing: int = 0


def alerts(
    cluster: Cluster,
    found: Overview,
    sees: Callable[[str], bool],
    quotas: Quotas,
    controller: ControllerStatus,
    now: Now,
) -> tuple[list[Alert], int]:
    """(Alerts to list, how many more there are). Of jobs only those in projects that ``sees`` allows."""
    whole = [
        *_common_cause(cluster),
        *_hosts(cluster, found, now),
        *_hangs(cluster, found, sees, now),
        *_cluster(cluster, found, controller, now),
        *_waiting(cluster, sees, quotas, now),
        *_underused(found, sees, now),
    ]
    listed: list[Alert] = []
    for kind in Kind:
        listed += [each for each in whole if each.kind is kind][:MOST_OF_A_KIND]
    return listed, len(whole) - len(listed)


def _common_cause(cluster: Cluster) -> Iterator[Alert]:
    """Say that hardware looks ill on many hosts at once, ahead of what is wrong with each."""
    kept, spared = ill(cluster)
    if spared and len(kept) + len(spared) > 1:  # else the settings keep no host from work
        yield Alert(Kind.CHECK, "controller", in_words(len(kept) + len(spared), len(kept)))


def _hosts(cluster: Cluster, found: Overview, now: Now) -> Iterator[Alert]:
    for name in sorted(found.noted):
        host = cluster.hosts.get(name)
        if host is None:
            continue  # it was removed since
        subject, state = f"host/{name}", host_state(cluster, host)
        silent_s = found.silent_s.get(name)
        since = now.wall_in(-silent_s) if silent_s is not None else None
        match state:
            case HostState.LOST:
                left = (
                    f"; once it is switched off for certain, its jobs are moved by: holdfast host fence {name}"
                    if host.allocations
                    else ""
                )
                since = host.silent_since or since
                yield Alert(Kind.HOST_LOST, subject, f"{_silence(host)}, and its lease is over{left}", since)
            case HostState.SILENT:
                lost = f"; lost at {time_of_day(cluster.presence_of(name).lost_at)} unless it returns"
                yield Alert(Kind.HOST_SILENT, subject, f"{_silence(host)}{lost}", since)
            case HostState.REFUSED:
                yield Alert(Kind.HOST_REFUSED, subject, host.refused)
            case HostState.GOING_DOWN | HostState.DRAINED | HostState.DRAINING | HostState.CORDONED:
                yield Alert(Kind.HOST_CORDONED, subject, _kept_from_work(host, state), host.drain_since or None)
            case HostState.RESERVED | HostState.READY:
                pass
        shares = found.quarantined.get(name, 0)
        if shares:
            whose = "1 worker" if shares == 1 else f"{shares} workers"
            message = f"what {whose} held there is withheld until it is proven empty"
            yield Alert(Kind.QUARANTINED, subject, message)
        if host.orphans:
            yield _orphans(host, subject)
        if host.unreconciled and name not in cluster.reported_hosts:
            yield Alert(Kind.UNRECONCILED, subject, "has yet to say what it runs, after the restore from a backup")
        if not host.lost:
            told = (each for each in host.failed_checks.values() if each.health is not Health.INFORM)
            yield from (_failed_check(failed, subject) for failed in told)
        if throttled := throttled_in_words(host, now.wall):
            yield Alert(Kind.HOST_THROTTLED, subject, throttled, max(host.throttled.values()))
        if host.faulty:
            yield Alert(Kind.GPU_FAULT, subject, _gpu_fault(host))


def _silence(host: Host) -> str:
    """Why nothing is heard from a host, as far as that is known."""
    if host.going_down:
        return f"it shut down at {time_of_day(host.going_down_since)}, and has not come back"
    if host.agent_stopped_at:
        return f"its agent was stopped at {time_of_day(host.agent_stopped_at)}"
    return "nothing is heard from it"


def _orphans(host: Host, subject: str) -> Alert:
    jobs = list(dict.fromkeys(orphan.job for orphan in host.orphans.values()))
    more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    stop = f"let it end, or: holdfast host stop-orphans {host.name} {jobs[0]}"
    message = f"runs work that the controller doesn't know: {jobs[0]}{more}; {stop}"
    return Alert(Kind.ORPHANS, subject, message, min(orphan.since for orphan in host.orphans.values()))


def _failed_check(failed: FailedCheck, subject: str) -> Alert:
    kept = "; it gets no new work until that is over" if failed.holds else ""
    fix = f"; try: {failed.fix[0]}" if failed.fix else ""
    return Alert(Kind.CHECK, subject, f"{failed.check}: {failed.saw}{kept}{fix}", failed.since)


def _kept_from_work(host: Host, state: HostState) -> str:
    word, unfit = state.value.replace("_", " "), host.unfit
    reason = host.cordon_reason or (f"{unfit.check}: {unfit.saw}" if unfit is not None else "")
    return f"{word}: {reason}" if reason else word


def _gpu_fault(host: Host) -> str:
    if host.inventory.gpu_problem:
        return host.inventory.gpu_problem
    bad = host.gpu_troubles()
    more = f" and {len(bad) - 2} more" if len(bad) > 2 else ""
    return "; ".join(bad[:2]) + more


def _hangs(cluster: Cluster, found: Overview, sees: Callable[[str], bool], now: Now) -> Iterator[Alert]:
    """Jobs that hang, or hung again after a restart, in the words of their own pages."""
    running = QueueView(cluster, [], {})
    for job in (*found.hangs, *found.hang_again):
        if sees(job.gang.project):
            since = job.hangs[-1].since if job.hangs else None
            yield Alert(Kind.HANG, f"job/{job.id}", summary_of(cluster, job, running, now).headline, since)


def _waiting(cluster: Cluster, sees: Callable[[str], bool], quotas: Quotas, now: Now) -> Iterator[Alert]:
    """The first jobs in the queue's order that have waited long; others may have waited longer."""
    jobs = (cluster.jobs[job_id] for job_id in in_turn(cluster))
    long = (
        job
        for job in jobs
        if job.queued_since is not None and now.wall - job.queued_since >= LONG_WAIT_S and sees(job.gang.project)
    )
    queue_view = QueueView(cluster, schedulable_hosts(cluster), quotas)
    for job in islice(long, MOST_OF_A_KIND):
        reason = wait_reason(cluster, job, queue_view.schedulable_hosts, queue_view)
        yield Alert(Kind.JOB_WAITS, f"job/{job.id}", f"waits: {reason}", job.queued_since)


def _underused(found: Overview, sees: Callable[[str], bool], now: Now) -> Iterator[Alert]:
    """Jobs that don't use their GPUs, and what becomes of them by themselves."""
    for job in found.underused:
        unused, policy = job.underuse, job.gang.underuse
        if unused is not None and policy is not None and sees(job.gang.project):
            words, follows = underuse_in_words(unused, policy, now), what_follows(unused, policy)
            yield Alert(Kind.UNDERUSED, f"job/{job.id}", f"{words}; {follows}" if follows else words, unused.since)


def _cluster(cluster: Cluster, found: Overview, controller: ControllerStatus, now: Now) -> Iterator[Alert]:
    for name, ends in controller.certificate_ends.items():
        left_s = ends - now.wall
        if left_s <= 0:
            yield Alert(Kind.CERTIFICATE, "controller", f"the {name} certificate has ended", Wall(ends))
        elif stage(name, left_s):
            yield Alert(Kind.CERTIFICATE, "controller", f"the {name} certificate ends in {span(left_s)}")
    yield from (_failed_check(failed, "controller") for failed in cluster.failed_checks.values())
    if controller.receivers_failing:
        receivers = (
            "1 receiver" if controller.receivers_failing == 1 else f"{controller.receivers_failing} receivers"
        )
        message = f"{receivers} can't be reached; {controller.notifications_waiting} notifications wait"
        yield Alert(Kind.NOTIFICATIONS, "controller", message)
    others = {version: count for version, count in found.versions.items() if version != controller.version}
    if others:
        shown = ", ".join(f"{count} of {version}" for version, count in sorted(others.items()))
        message = f"agents of another version than the controller's {controller.version}: {shown}"
        yield Alert(Kind.VERSIONS, "controller", message)
