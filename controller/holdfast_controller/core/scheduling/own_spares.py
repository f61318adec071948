"""Jobs' own spares (see ``model.hosts.own_spares``): kept while their hosts are sound, taken by workers, made up for.

A job that waits and holds spares for all workers that lack a place has them before any pass asks who is first: it holds
all that it starts on. A spare whose host takes no work any more is given back at once, and another one is held as
soon as there is room that no job waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.quota import Waiting, lack
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.capacity import HostCapacity
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.own_spares import is_usable, near_to
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.place import may_be_placed, place
from holdfast_controller.core.scheduling.placement import may_have, on_own_spares, spares_on
from holdfast_controller.core.scheduling.preempt import may_be_stopped
from holdfast_controller.core.step.step import Step

SUSPECT = 2
"""Failures of the job that a host is suspected of, from which on it is no spare of it."""
TAKEN = "on its own spare, in place of a host that it had to leave"


def give_back_unsound(step: Step) -> None:
    """Give back the spares on hosts that take no work any more; call it when hosts have changed."""
    if step.cluster.sparing and step.cluster.schedulable is None:
        hosts = step.cluster.hosts
        sound = {name for job in _sparing(step.cluster) for name in (each.host for each in job.spares)}
        sound = {name for name in sound if name in hosts and hosts[name].takes_work and not hosts[name].lost}
        _keep(step, {name: hosts[name] for name in sound})


def give_up(step: Step, host: str) -> None:
    """Give back the spares on a host that is about to be removed."""
    _keep(step, {name: each for name, each in step.cluster.hosts.items() if name != host})


def _keep(step: Step, hosts: dict[str, Host]) -> None:
    """Give back all spares that are not usable on these hosts."""
    for job in list(_sparing(step.cluster)):
        kept = tuple(each for each in job.spares if is_usable(job.gang, each, hosts))
        if kept != job.spares:
            step.emit(ev.JobSparesChanged(job_id=job.id, at=step.now.wall, spares=kept))
            step.capacity_freed = True


def serve_own_spares(step: Step, hosts: list[Host]) -> Iterator[Collection[str]]:
    """Place the jobs that hold spares for all workers that lack a place; the hosts of each that was placed."""
    cluster = step.cluster
    waiting = [job for job in _sparing(cluster) if job.spares and job.id in cluster.queue]
    for job in sorted(waiting, key=lambda job: job.turn):
        if not may_be_placed(cluster, job, step.now.wall) or _over_quota(step, job):
            continue
        if (found := on_own_spares(job, hosts)) is not None:
            places = (*job.places, *found.places)
            place(step, job, found, why=TAKEN)
            yield {each.host for each in places}


def make_up(step: Step, hosts: OpenHosts, left: Callable[[Host], HostCapacity]) -> None:
    """Hold spares for running jobs that have fewer than they ask for, of what is ``left`` by all that wait."""
    in_vain = set[str]()
    for job in list(_sparing(step.cluster)):
        lacking = job.gang.spares - len(job.spares)
        if not lacking or not job.awaited or not may_be_stopped(job) or job.gang.shape in in_vain:
            continue
        if _over_quota(step, job):
            continue
        unwanted = {name for name, times in job.budgets.suspected.items() if times >= SUSPECT}
        used = {each.host for each in job.places} | unwanted
        capacities = list(map(left, _near(step.cluster, job, may_have(job.gang, hosts.of(job)))))
        more = next((m for n in range(lacking, 0, -1) if (m := spares_on(job.gang, capacities, used, n))), None)
        if more is None:
            in_vain.add(job.gang.shape)
            continue
        spares = (*job.spares, *more)
        step.emit(ev.JobSparesChanged(job_id=job.id, at=step.now.wall, spares=spares))


def _near(cluster: Cluster, job: Job, hosts: list[Host]) -> list[Host]:
    """The part of ``hosts`` that is where all its workers have to be."""
    known = {each.host for each in job.places} & cluster.hosts.keys()
    return list(filter(near_to(job.gang, map(cluster.hosts.__getitem__, known)), hosts))


def _sparing(cluster: Cluster) -> Iterator[Job]:
    return (cluster.jobs.whole[name] for name in sorted(cluster.sparing))


def _over_quota(step: Step, job: Job) -> bool:
    holdings, quotas = step.cluster.holdings, step.policies.quotas
    return bool(lack(quotas, holdings, job.id, job.owner, job.gang, Waiting()))
