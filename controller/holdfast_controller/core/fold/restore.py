"""What a restore and its end mean: the part of ``fold`` that keeps what is in doubt."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events import restore as ev
from holdfast_controller.core.fold.allocation import hold, let_go
from holdfast_controller.core.fold.attempt import leave_queue, release_kept
from holdfast_controller.core.model.host import Allocation, Stranger, place_key
from holdfast_controller.core.model.job import Attempt, Cluster, Doubt, Job, Rendezvous, Runtime
from holdfast_controller.core.model.job_state import JobState, checked

_ON_THE_WAY = {
    JobState.PAUSED: JobState.QUEUED,
    JobState.QUEUED: JobState.PENDING,
    JobState.PENDING: JobState.RUNNING,
}


def fold_cluster_doubt(cluster: Cluster, event: ev.ClusterDoubt) -> None:
    """Apply ``event``; the sequence was counted already."""
    match event:
        case ev.ClusterRestored():
            cluster.gaps.append((cluster.sequence - 1, event.sequence))
            cluster.sequence = event.sequence
            for host in cluster.hosts.values():
                host.in_doubt = True
                cluster.altered.add(host.name)
            for job in cluster.jobs.values():
                if job.outcome is None and not job.terminal:
                    job.doubt, job.cursor = Doubt.OPEN, cluster.sequence
            tokens = cluster.people.tokens
            cluster.people.tokens = {digest: token for digest, token in tokens.items() if token.used_by}
        case ev.DoubtEnded():
            for host in cluster.hosts.values():
                host.in_doubt = False
                cluster.altered.add(host.name)
        case _:
            assert_never(event)


def fold_job_doubt(cluster: Cluster, job: Job, event: ev.JobDoubt) -> None:
    """Apply ``event``."""
    match event:
        case ev.JobFound():
            job.doubt = None
            _found(cluster, job, event)
        case ev.JobUnsure():
            job.doubt = Doubt.CLEARING
            _skip(job, event.generation + 1)
            job.generation = job.gang_generation = event.generation
            job.rendezvous = None
            job.alone, job.held_back = {}, set()
        case ev.JobCleared():
            job.doubt = None
        case _:
            assert_never(event)


def _skip(job: Job, following: int) -> None:
    """Of generations past the newest known, before ``following``, nobody knows whether they were launched."""
    if following > job.generation + 1:
        job.skipped.append((job.generation + 1, following - 1))
    job.unsure_below = following


def _found(cluster: Cluster, job: Job, event: ev.JobFound) -> None:
    """It runs as its hosts have said; how its ranks find each other is not known, and they know it themselves."""
    newest = max(event.generations)
    if newest > job.generation:
        _skip(job, min(event.generations))
    for host in cluster.hosts.values():
        for member in job.gang.members:
            let_go(cluster, host, place_key(job.id, member.index))
            if host.strangers.pop(f"{job.id}/{member.name}", None) is not None:
                cluster.openings.changed(host.name)
                cluster.altered.add(host.name)
    release_kept(cluster, job)
    leave_queue(cluster, job)
    while job.state in _ON_THE_WAY:
        job.state = checked(job.state, _ON_THE_WAY[job.state])
    if event.attempt > job.attempt or event.places != job.places:
        job.attempts.append(Attempt(event.attempt, min(event.generations), event.places))
    job.attempt, job.places = event.attempt, event.places
    job.generation, job.gang_generation = newest, min(event.generations)
    job.alone = {i: g for i, g in enumerate(event.generations) if g > job.gang_generation}
    job.alone_ever |= {generation: index for index, generation in job.alone.items()}
    addresses = tuple(cluster.hosts[place.host].address for place in event.places)
    job.rendezvous = Rendezvous(addresses[0], 0, "", addresses, (0,) * len(addresses))
    job.started = dict(enumerate(event.started))
    job.running_since = event.at if job.running_since is None else job.running_since
    job.started_at = event.at if job.started_at is None else job.started_at
    job.leaving = job.queued_since = job.not_before = job.pause_due = job.primary_done_at = None
    job.avoided, job.lacks = frozenset(), 0
    job.emptied, job.fenced, job.held_back = set(), set(), set()
    cluster.runtime[job.id] = Runtime()
    for member, place in zip(job.gang.members, event.places, strict=True):
        pool = job.gang.pool_of(member)
        share = Allocation(pool.cpus, pool.memory_mb, place.gpus)
        hold(cluster, cluster.hosts[place.host], place_key(job.id, member.index), share)


def fold_stranger(cluster: Cluster, event: ev.StrangerEvent) -> None:
    """Apply ``event``."""
    host = cluster.hosts[event.host]
    cluster.openings.changed(event.host)
    match event:
        case ev.StrangerFound():
            key = f"{event.job}/{event.worker}"
            host.strangers[key] = Stranger(event.job, event.worker, event.generation, event.gpus, event.at)
        case ev.StrangerGone():
            host.strangers.pop(f"{event.job}/{event.worker}", None)
        case ev.StrangerDismissed():
            host.dismissed.add(event.job)
        case ev.StrangerEnded():
            pass
        case _:
            assert_never(event)
