"""The content of a snapshot, every entity that has changed since the last one, and when it is time for the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import head_of
from holdfast_controller.shell.store import codec

Stored = list[tuple[str, str]]
"""Names and contents."""

EVERY, ENTITIES = 2_000, 250
"""Events, or entities that they changed, after which a snapshot is due: 250 jobs hold the event loop for some 10 ms."""
BYTES_AN_EVENT = 1_000
"""Of a snapshot for each event until the next one: a job is written whole, with the ends of all its ranks so far."""
BURST, LATEST = 100, 4
"""A commit of so many events is one of a burst, as a large gang's relaunch is, whose next commits a snapshot would hold
up: it comes after the burst, or after so many times the events."""
AFTER_BURST_S = 0.2
"""Without a commit of another kind."""


class SnapshotPace:
    """Tells when a snapshot is due. ``newest`` is the sequence of the log that the last one is of."""

    def __init__(self, newest: int) -> None:
        self._newest, self._every = newest, EVERY

    def is_due(self, sequence: int, entities: int, committing: int) -> bool:
        """Whether it is time for one at ``sequence``, which so many events lead to that are being committed."""
        wait = self._every * (LATEST if committing >= BURST else 1)
        return entities >= ENTITIES or sequence - self._newest >= wait

    def taken(self, sequence: int, written: int) -> None:
        """Count from a snapshot of so many bytes."""
        self._newest, self._every = sequence, max(EVERY, written // BYTES_AN_EVENT)

    def soon(self) -> None:
        """Have the next one at the next commit."""
        self._every = 0


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
