"""Replacements: a job that had to leave a host continues on a spare (see ``model.spares``), before all that wait.

As soon as its attempt has ended a spare is booked for it, while its other workers are stopped: SPOT jobs there give
way, and nothing else starts there. When they are gone it is placed. A job for which the spares are not enough waits
in its turn, for them and for all other hosts. Spares that are reserved for others, or about to be drained, are none
for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from holdfast_controller.core.model.accounts.quota import Waiting, lack
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.spares import lost_a_host, spares_of
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.fair_share.reclaim import Booked
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.place import may_be_placed, place
from holdfast_controller.core.scheduling.placement import Plan, plan_job
from holdfast_controller.core.scheduling.preempt import Preemption
from holdfast_controller.core.step.step import Step


def choose_spares(
    step: Step, hosts: list[Host], booked: Booked | None = None, *, reserved: Collection[str] = ()
) -> None:
    """Choose the spares among the hosts that take work; what is ``booked`` there, or ``reserved``, counts as work."""
    if step.policies.spares or step.cluster.spares:
        taken = {*(booked.places if booked is not None else ()), *reserved}
        step.cluster.spares = spares_of(step.policies.spares, hosts, taken)


def serve_replacements(step: Step, hosts: OpenHosts, preemption: Preemption) -> Booked:
    """Place jobs that had to leave a host on spares, or book these for them; the result is kept from all others."""
    booked = Booked()
    if not step.cluster.spares:
        return booked
    for job in list(_waiting(step)):
        _serve(step, job, hosts, preemption, booked)
    return booked


def _waiting(step: Step) -> Iterator[Job]:
    """The jobs that had to leave a host, in the order of the queue: they are in its first classes."""
    cluster = step.cluster
    for (none_failed, *_), by_project in cluster.queue.classes():
        if none_failed:
            return
        for _, name in sorted(each for waiting in by_project.values() for each in waiting):
            job = cluster.jobs.whole[name]
            if not lost_a_host(job) or job.unreconciled is not None:
                continue
            if not lack(step.policies.quotas, cluster.holdings, name, job.owner, job.gang, Waiting()):
                yield job


def _serve(step: Step, job: Job, hosts: OpenHosts, preemption: Preemption, booked: Booked) -> None:
    cluster, own = step.cluster, {job.places[index].host for index in job.reserved}
    own |= {spare.host for spare in job.spares}
    kept, closed = {*cluster.spares, *own}, hosts.closed_to(job)
    suitable = [host for host in hosts.hosts if host.name in kept and host.name not in closed]
    free = cluster.free_capacity
    found = plan_job(job, suitable, lambda host, shares: booked.limit(free.without(host, shares), host))
    if isinstance(found, Plan) and may_be_placed(cluster, job, step.now.wall):
        places = (*job.places, *found.places)
        place(step, job, found, why="with a spare in place of a host that it had to leave")
        preemption.placed(frozenset(each.host for each in places))
        choose_spares(step, hosts.hosts, booked, reserved=hosts.reserved)
        return
    if not isinstance(found, Plan):
        room = preemption.find_room(job, suitable, booked.limit)
        if room is None:
            return
        preemption.stop(step, job, room)
        coming = preemption.coming(job, suitable, booked.limit)
        if coming is None:
            return
        found = coming
    booked.add(job, found)
    choose_spares(step, hosts.hosts, booked, reserved=hosts.reserved)
