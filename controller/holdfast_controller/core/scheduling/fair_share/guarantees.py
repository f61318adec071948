"""Guarantees: GPUs that a project has whenever it has work for them, and that others only borrow meanwhile.

Theory of operation. Jobs that hold GPUs *stand* in their project's guarantee, in the order in which they were placed,
as long as they fit in it beside each other; all others *borrow*. A waiting job has a *claim* if it fits in what its
project's guarantee has left: less all that the project holds, and all that its other claims wait for. Claims are served
before the queue, and borrowers give way to them (see ``reclaim``).

SPOT jobs have no part in this: they have no claim, stand in no guarantee, and give way to any claim.

No two jobs chase each other. One that stands gives way to no claim; one whose claim was served stands; and one that has
borrowed has no claim when it has given way, since its project's guarantee has no room for it beside those that stand.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._base.plural import count
from holdfast_controller.core.model.accounts.quota import USER, Quotas, Waiting, lack, quota_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.place import may_be_placed
from holdfast_controller.core.scheduling.wait_reasons.never_fits import waits_for_others


def claims(cluster: Cluster, quotas: Quotas, now_wall: Wall) -> list[Job]:
    """The waiting jobs that have a claim, in the order of the queue; none that waits for anything but hosts."""
    found, waiting = list[Job](), Waiting()
    classes = cluster.queue.classes() if cluster.shares.guarantees else []
    for project, guaranteed in cluster.shares.guarantees.items():
        left = guaranteed - sum(gpus for _, gpus in _held(cluster, project))
        for each, by_project in classes:
            for _, name in by_project.get(project, ()) if not each[2] else ():
                job, own = cluster.jobs[name], cluster.holdings.gpus_by_job.get(name)
                more = job.gang.gpus_held - (own or 0)
                if not job.gang.gpus or more > left or not may_be_placed(cluster, job, now_wall):
                    continue
                if lack(quotas, cluster.holdings, name, job.owner, job.gang, waiting):
                    continue
                if waits_for_others(cluster, job.gang):
                    continue
                waiting.charge(job.owner, job.gang, own)
                left -= more
                found.append(job)
    return sorted(found, key=lambda job: job.turn)


def has_claim(cluster: Cluster, job: Job, quotas: Quotas, now_wall: Wall) -> bool:
    """Whether a job that is not in the queue yet would have a claim behind those that are."""
    project, gpus = job.gang.project, job.gang.gpus_held
    if not gpus or project not in cluster.shares.guarantees or job.gang.strategy is Strategy.SPOT:
        return False
    ahead = (each.gang.gpus_held for each in claims(cluster, quotas, now_wall) if each.gang.project == project)
    held = sum(gpus for _, gpus in _held(cluster, project))
    return held + sum(ahead) + gpus <= cluster.shares.guarantees[project]


def borrowers(cluster: Cluster, leaving: frozenset[str] = frozenset()) -> dict[str, int]:
    """The GPUs of each job that stands in no guarantee, but for those that are ``leaving``; none without guarantees."""
    found: dict[str, int] = {}
    for project in cluster.holdings.by_holder if cluster.shares.guarantees else ():
        if not project.startswith(USER):
            found |= _borrowers_of(cluster, project, leaving)
    return found


def _borrowers_of(cluster: Cluster, project: str, leaving: frozenset[str]) -> dict[str, int]:
    found, left = dict[str, int](), cluster.shares.guarantees.get(project, 0)
    for job, gpus in sorted(_held(cluster, project), key=lambda held: _since(held[0])):
        if job.id in leaving:
            continue
        if gpus <= left:
            left -= gpus
        else:
            found[job.id] = gpus
    return found


def guaranteed_loans(cluster: Cluster) -> frozenset[str]:
    """Jobs on loan that stand in a guarantee."""
    if not cluster.shares.guarantees:
        return frozenset()
    borrowing = borrowers(cluster)
    held = (job.id for project in cluster.shares.guarantees for job, _ in _held(cluster, project) if job.loan)
    return frozenset(name for name in held if name not in borrowing)


def _held(cluster: Cluster, project: str) -> Iterator[tuple[Job, int]]:
    """The GPUs of each job of a project that holds any and isn't SPOT."""
    use = cluster.holdings.by_holder.get(project)
    for name in use.jobs if use is not None else ():
        job, gpus = cluster.jobs[name], cluster.holdings.gpus_by_job[name]
        if gpus and job.gang.strategy is not Strategy.SPOT:
            yield job, gpus


def _since(job: Job) -> tuple[Wall, int]:
    return job.placement.since, job.number


def borrows(cluster: Cluster, job: Job) -> bool:
    """Whether a job that holds GPUs may have to give way to a claim of another project."""
    shares, project = cluster.shares, job.gang.project
    if not shares.guarantees or not job.gang.gpus or job.gang.strategy is Strategy.SPOT:
        return False
    if cluster.holdings.gpus_of(project) <= shares.guarantees.get(project, 0):
        return False
    return project not in shares.guarantees or job.id in _borrowers_of(cluster, project, frozenset())


def warning(cluster: Cluster) -> str:
    """A sentence where more is guaranteed than the hosts have; else empty."""
    guaranteed = sum(cluster.shares.guarantees.values())
    gpus = sum(len(host.inventory.gpus) for host in cluster.hosts.values() if not host.lost)
    if guaranteed <= gpus:
        return ""
    return f"{guaranteed} GPUs are guaranteed in all, and the hosts have {gpus}"


def above_quotas(cluster: Cluster, quotas: Quotas) -> dict[str, str]:
    """By project that is guaranteed more than it may hold: that in words. Its quota counts then.

    A command that would lead to it is refused; settings may.
    """
    found = {}
    for project, guaranteed in sorted(cluster.shares.guarantees.items()):
        quota = quota_of(quotas, project)
        if quota is not None and quota.gpus is not None and quota.gpus < guaranteed:
            found[project] = f"{project} is guaranteed {count(guaranteed, 'GPU')}, and its quota is {quota.gpus}"
    return found
