"""Fold of events of a restore: keeps unreconciled hosts and jobs, and orphans."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events import restore as ev
from holdfast_controller.core.fold.allocation import hold, let_go
from holdfast_controller.core.fold.attempt import leave_queue, release_reserved, release_spares
from holdfast_controller.core.goodput.fold import take_restore
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Allocation, Orphan, place_key
from holdfast_controller.core.model.job import Job, Unreconciled
from holdfast_controller.core.model.job_state import JobState, checked
from holdfast_controller.core.model.phase import Placed
from holdfast_controller.core.model.placement import Attempt, GangLaunch, Placement, Rendezvous
from holdfast_controller.core.model.runtime import Runtime

_ON_THE_WAY = {
    JobState.PAUSED: JobState.QUEUED,
    JobState.QUEUED: JobState.PENDING,
    JobState.PENDING: JobState.RUNNING,
}


def fold_cluster_reconciliation(cluster: Cluster, event: ev.ClusterReconciliation) -> None:
    """Apply ``event``; the sequence was counted already."""
    match event:
        case ev.ClusterRestored():
            cluster.gaps.append((cluster.sequence - 1, event.sequence))
            cluster.sequence = event.sequence
            for host in cluster.hosts.values():
                host.unreconciled = True
                cluster.host_changed(host.name)
            for job in cluster.jobs.whole.values():
                if job.outcome is None and not job.terminal:
                    job.unreconciled, job.cursor = Unreconciled.OPEN, cluster.sequence
                    release_spares(cluster, job, event.at)
                    take_restore(job, event)
            tokens = cluster.people.tokens
            cluster.people.tokens = {digest: token for digest, token in tokens.items() if token.used_by}
        case ev.ReconciliationEnded():
            for host in cluster.hosts.values():
                host.unreconciled = False
                cluster.host_changed(host.name)
        case _:
            assert_never(event)


def fold_job_reconciliation(cluster: Cluster, job: Job, event: ev.JobReconciliation) -> None:
    """Apply ``event`` to ``job``."""
    match event:
        case ev.JobFound():
            job.unreconciled = None
            _found(cluster, job, event)
        case ev.JobUnsure():
            job.unreconciled = Unreconciled.CLEARING
            _skip(job, event.generation + 1)
            job.generation = event.generation
            before = job.launch
            job.launch = GangLaunch(event.generation, not_before=before.not_before, started=before.started)
            job.launch.primary_done_at = before.primary_done_at
        case ev.JobCleared():
            job.unreconciled = None
        case _:
            assert_never(event)


def _skip(job: Job, following: int) -> None:
    """Note that generations between the newest known one and ``following`` may have been launched."""
    if following > job.generation + 1:
        job.skipped.append((job.generation + 1, following - 1))
    job.unsure_below = following


def _found(cluster: Cluster, job: Job, event: ev.JobFound) -> None:
    """Take the job as running where its hosts reported it; the rendezvous is unknown, and its ranks have theirs."""
    newest = max(event.generations)
    if newest > job.generation:
        _skip(job, min(event.generations))
    # By members: a state that was read from a snapshot may have its hosts in another order.
    for member in job.gang.members:
        for host in cluster.hosts.values():
            let_go(cluster, host, place_key(job.id, member.index), event.at)
            if host.orphans.pop(f"{job.id}/{member.name}", None) is not None:
                cluster.free_capacity.changed(host.name)
                cluster.host_changed(host.name)
    release_reserved(cluster, job, event.at)
    leave_queue(cluster, job)
    cluster.dependents.discard(job.id, job.unmet)
    while job.state in _ON_THE_WAY:
        job.state = checked(job.state, _ON_THE_WAY[job.state])
    if event.attempt > job.attempt or event.places != job.places:
        job.attempts.append(Attempt(event.attempt, min(event.generations), event.places))
    running_since = job.placement.running_since if job.placement.running_since is not None else event.at
    job.phase = Placed()
    job.vacating = None
    job.placement = Placement(event.attempt, event.places, running_since=running_since, since=running_since)
    oldest, addresses = min(event.generations), tuple(cluster.hosts[place.host].address for place in event.places)
    job.launch = GangLaunch(
        oldest,
        Rendezvous(addresses[0], 0, "", addresses, (0,) * len(addresses)),
        started=dict(enumerate(event.started)),
        relaunched={index: generation for index, generation in enumerate(event.generations) if generation > oldest},
    )
    job.generation = newest
    job.single_launches |= {generation: index for index, generation in job.launch.relaunched.items()}
    job.started_at = event.at if job.started_at is None else job.started_at
    cluster.runtime[job.id] = Runtime()
    for member, place in zip(job.gang.members, event.places, strict=True):
        pool = job.gang.pool_of(member)
        share = Allocation(pool.cpus, pool.memory_mb, place.gpus, job.revocable)
        hold(cluster, cluster.hosts[place.host], place_key(job.id, member.index), share, event.at)


def fold_orphan(cluster: Cluster, event: ev.OrphanEvent) -> None:
    """Apply ``event`` to its host's orphans."""
    host = cluster.hosts[event.host]
    cluster.free_capacity.changed(event.host)
    match event:
        case ev.OrphanFound():
            key = f"{event.job}/{event.worker}"
            host.orphans[key] = Orphan(event.job, event.worker, event.generation, event.gpus, event.at)
        case ev.OrphanGone():
            host.orphans.pop(f"{event.job}/{event.worker}", None)
        case ev.OrphanStopRequested():
            host.orphans_to_stop.add(event.job)
        case ev.OrphanExited():
            pass
        case _:
            assert_never(event)
