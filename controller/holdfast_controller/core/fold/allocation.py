"""Fold of allocations: workers' shares of hosts, and the projects' sums with them."""

from __future__ import annotations

from holdfast_controller.core.fold.shares import charge
from holdfast_controller.core.goodput.host_record import observe
from holdfast_controller.core.goodput.shares import on_hold, on_let_go, on_upgrade
from holdfast_controller.core.model.accounts.quota import Holdings
from holdfast_controller.core.model.accounts.shares import Used
from holdfast_controller.core.model.arrays import Arrays
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.dependencies import Dependents
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import Allocation, Host, job_of
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.jobs import JobHead, Known
from holdfast_controller.core.model.phase import Queued
from holdfast_controller.core.model.queue import Queue
from holdfast_controller.core.model.run_times import RunTimes, run_time_of


def hold(cluster: Cluster, host: Host, key: str, share: Allocation, at: Wall) -> None:
    """A worker holds a share of a host, in place of what it may have held there before."""
    let_go(cluster, host, key, at)
    host.allocations[key] = share
    _note_change(cluster, host)
    job = _job(cluster, key)
    charge(cluster, job.gang.project, at)
    cluster.holdings.take(job.owner, job.gang, job.id, len(share.gpus))
    on_hold(job, _index(key), host, share, at)
    observe(cluster, host, at)


def let_go(cluster: Cluster, host: Host, key: str, at: Wall) -> None:
    """A worker holds nothing on a host any more."""
    share = host.allocations.pop(key, None)
    if share is not None:
        _note_change(cluster, host)
        job = _job(cluster, key)
        charge(cluster, job.gang.project, at)
        cluster.holdings.give_back(job.owner, job.gang, job.id, len(share.gpus))
        on_let_go(cluster, job, _index(key), host, at)
        observe(cluster, host, at)
        if not job.gang.measures:
            host.measured.idle_since = at


def recount(cluster: Cluster) -> None:
    """Rebuild the queue and the sums from jobs and hosts, for a state that was read from a snapshot."""
    cluster.queue, cluster.holdings, cluster.free_capacity = Queue(), Holdings(), FreeCapacity()
    cluster.dependents, cluster.arrays = Dependents(), Arrays()
    cluster.measuring = {job.id for job in cluster.jobs.whole.values() if job.gang.measures and not job.terminal}
    cluster.sparing = {job.id for job in cluster.jobs.whole.values() if job.gang.spares and not job.terminal}
    for known in cluster.jobs.heads():
        for name in known.output_on:
            cluster.output_on.setdefault(name, set()).add(known.id)
        cluster.arrays.note(known)
    for job in cluster.jobs.whole.values():
        cluster.dependents.add(job.id, job.unmet)
        if isinstance(job.phase, Queued) and job.vacating is not Leaving.PAUSE:
            cluster.queue.add(job.id, job.turn, job.line, job.gang.project)
    cluster.run_times = RunTimes()
    ran = [(known, ran_s) for known in cluster.jobs.heads() if (ran_s := _ran_s(known)) is not None]
    for known, ran_s in sorted(ran, key=lambda each: (each[0].ended_at or 0.0, each[0].number)):
        cluster.run_times.learn(known, ran_s)
    for host in cluster.hosts.values():
        cluster.free_capacity.changed(host.name)
        for key, share in host.allocations.items():
            job = _job(cluster, key)
            cluster.holdings.take(job.owner, job.gang, job.id, len(share.gpus))
            # Not there where an older release wrote the snapshot: its use begins with the job's newest event.
            cluster.shares.used.setdefault(job.gang.project, Used(0.0, job.updated_at))
            if key not in host.quarantined:
                on_upgrade(job, _index(key), host, share)


def learn_run_time(cluster: Cluster, job: Known) -> None:
    """Take in how long a job ran that has ended by itself, or at its timeout."""
    if (ran_s := _ran_s(job)) is not None:
        cluster.run_times.learn(job, ran_s)


def _ran_s(job: Known) -> float | None:
    return job.ran_s if isinstance(job, JobHead) else run_time_of(job)


def _note_change(cluster: Cluster, host: Host) -> None:
    cluster.free_capacity.changed(host.name)
    cluster.host_changed(host.name)


def _job(cluster: Cluster, key: str) -> Job:
    return cluster.jobs[job_of(key)]


def _index(key: str) -> int:
    return int(key.rpartition("/")[2])
