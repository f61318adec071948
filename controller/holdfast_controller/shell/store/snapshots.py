"""The content of a snapshot: every entity that has changed since the last one."""

from __future__ import annotations

from collections.abc import Collection

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.store import codec


def changed_entities(cluster: Cluster, dirty: Collection[str]) -> list[tuple[str, str]]:
    """Names and contents of changed entities, empty for those that are gone; what the cluster notes is then cleared.

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
    return entities
