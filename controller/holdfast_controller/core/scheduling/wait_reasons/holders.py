"""The jobs that hold what a waiting job needs, in words, and what its owner can do about it.

Ids of jobs are no secret to those who may see hosts; whose they are is.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast._base.dataclass import replace
from holdfast_controller.core.model.hosts.capacity import capacity_of, gpu_matches
from holdfast_controller.core.model.hosts.host import job_of, place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.placement import Plan, may_have, plan_job

if TYPE_CHECKING:
    from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView

MOST_NAMED = 3
MOST_SHAPES = 50
"""Kinds of jobs of which one view of the queue finds out the holders: each is a plan over all hosts."""
MOST_TRIED = 8
"""Jobs of the same owner of which it is found out whether the end of one is enough."""


def holders(job: Job, queue_view: QueueView) -> tuple[str, ...]:
    """The jobs that hold what a job lacks on hosts that it may have, those with most GPUs first; empty for no lack."""
    known, shape = queue_view.holders, queue_view.open_hosts.shape(job)
    if job.places or shape not in known:
        found: tuple[str, ...] = ()
        if len(known) < MOST_SHAPES and queue_view.lack_of_room(job):
            found = _holders(job, queue_view)
        if job.places:
            return tuple(name for name in found if name != job.id)
        known[shape] = found
    return known[shape]


def _holders(job: Job, queue_view: QueueView) -> tuple[str, ...]:
    """The jobs on its hosts that hold GPUs of its models, or anything where it asks for none."""
    known = queue_view.holders
    models = {(pool.gpu_type, pool.gpu_partition) for pool in job.gang.pools if pool.replicas and pool.gpus}
    kind = f"of {sorted(models)}" if job.gang.anywhere else ""
    if kind in known:
        return known[kind]
    held = Counter[str]()
    hosts = may_have(job.gang, queue_view.schedulable_hosts)
    if job.gang.is_choosy:
        pools = [pool for pool in job.gang.pools if pool.replicas]
        hosts = [host for host in hosts if any(map(capacity_of(host).is_admitted, pools))]
    for host in hosts:
        unwanted = set[str]()
        if models and (("", "") not in models or host.inventory.is_partitioned):
            gpus = host.inventory.gpus
            unwanted = {gpu.uuid for gpu in gpus if not any(gpu_matches(*wanted, gpu.model) for wanted in models)}
        for key, share in host.allocations.items():
            count = len(share.gpus) if not unwanted else sum(gpu not in unwanted for gpu in share.gpus)
            if count or not models:
                held[job_of(key)] += count
    found = tuple(sorted(held, key=lambda name: (-held[name], name)))
    if kind:
        known[kind] = found
    return found


def held_by(job: Job, queue_view: QueueView) -> str:
    """Such as "; the GPUs are held by a-1, b-2 with a spare, c-3 and 2 more"; empty where no job holds what it lacks.

    Where no end of theirs would be enough by all that is known, that is said too.
    """
    names = holders(job, queue_view)
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    what = "the GPUs are" if job.gang.gpus else "the hosts' room is"
    unknown = queue_view.now is not None and queue_view.head is job and job.id not in queue_view.starts
    when = ", and when it can start is not known" if unknown else ""
    named = ", ".join(name + _spares(name, queue_view) for name in names[:MOST_NAMED])
    return f"; {what} held by {named}{more}{when}"


def _spares(name: str, queue_view: QueueView) -> str:
    job = queue_view.cluster.jobs.whole.get(name)
    count = len(job.spares) if job is not None else 0
    return {0: "", 1: " with a spare"}.get(count, f" with {count} spares")


def own_to_end(job: Job, queue_view: QueueView) -> str:
    """A job of the same owner and project whose end alone makes room for the first in the queue; empty for none."""
    if queue_view.head is not job:
        return ""
    jobs = queue_view.cluster.jobs.whole
    held = [jobs[name] for name in holders(job, queue_view) if name in jobs]
    own = [each for each in held if (each.owner, each.gang.project) == (job.owner, job.gang.project)]
    return next((each.id for each in own[:MOST_TRIED] if _fits_without(job, each, queue_view)), "")


def _fits_without(job: Job, other: Job, queue_view: QueueView) -> bool:
    keys = frozenset(place_key(other.id, index) for index in range(len(other.gang.seats)))
    free, hosts = queue_view.cluster.free_capacity, queue_view.schedulable_hosts
    theirs = {place.host for place in (*other.places, *other.spares)}
    found = plan_job(job, hosts, lambda host, own: free.without(host, own | keys if host.name in theirs else own))
    return isinstance(found, Plan)


def fewer_gpus(job: Job, queue_view: QueueView) -> int:
    """GPUs for each worker with which a job would fit now that is first in the queue; 0 where fewer don't help."""
    gang = job.gang
    pools = [pool for pool in gang.pools if pool.replicas]
    if queue_view.head is not job or len({(pool.gpus, pool.gpu_type, pool.gpu_partition) for pool in pools}) != 1:
        return 0
    hosts = may_have(gang, queue_view.schedulable_hosts)
    free = max((queue_view.cluster.free_capacity.capacity_of(host).matching(pools[0]) for host in hosts), default=0)
    for gpus in range(min(free, pools[0].gpus - 1), 0, -1):
        smaller = replace(job, gang=replace(gang, pools=tuple(replace(pool, gpus=gpus) for pool in pools)))
        if isinstance(plan_job(smaller, hosts, queue_view.cluster.free_capacity.without), Plan):
            return gpus
    return 0
