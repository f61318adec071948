"""The content of a snapshot: every entity that has changed since the last one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import head_of
from holdfast_controller.shell.store import codec

Stored = list[tuple[str, str]]
"""Names and contents."""


def changed_entities(cluster: Cluster, dirty: Collection[str]) -> tuple[Stored, Stored]:
    """Changed entities, empty where one is gone, and heads of those that have ended; what the cluster notes is cleared.

    ``dirty`` has the names that events were about; of these only jobs count here.
    """
    jobs = cluster.jobs
    changed = {name for kind, _, name in (each.partition("/") for each in dirty) if kind == "job"}
    changed |= cluster.dirty_jobs & jobs.whole.keys()
    entities = [(f"job/{name}", codec.dump_entity(jobs[name]) if name in jobs else "") for name in sorted(changed)]
    # A job's events change its hosts too.
    for name in cluster.dirty_hosts:
        host = cluster.hosts.get(name)
        entities.append((f"host/{name}", "" if host is None else codec.dump_entity(host)))
    for name in cluster.dirty_plans:
        kind, _, key = name.partition("/")
        plan = (cluster.schedules if kind == "schedule" else cluster.templates).get(key)
        entities.append((name, "" if plan is None else codec.dump_entity(plan)))
    single = (cluster.people, cluster.shares, cluster.reservations)
    entities += [(codec.name_of(each), codec.dump_entity(each)) for each in single]
    cluster.dirty_jobs.clear()
    cluster.dirty_hosts.clear()
    cluster.dirty_plans.clear()
    return entities, heads_of(jobs[name] for name in sorted(changed) if name in jobs)


def heads_of(jobs: Iterable[Job]) -> Stored:
    """Heads of those jobs of which a start needs no more: they have ended for good."""
    ended = (job for job in jobs if job.terminal and job.unreconciled is None)
    return [(f"job/{job.id}", codec.dump_head(head_of(job))) for job in ended]
