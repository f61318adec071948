"""Common causes among the cluster's suspects: when jobs that share something turn suspect together, killing helps none.

Asked for each look at a suspect job, in the worst of times for all jobs at once: one pass over the suspects, and one
over other jobs only where enough suspects were found.
"""

from __future__ import annotations

import re

from holdfast.hang.judge.common_cause import CLUSTER, CommonCause, SuspectJob, common_cause, mount_waits
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.thresholds import Tuning
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import job_of
from holdfast_controller.core.model.job import Job

_STALE_S = Tuning().stale_s
_PLACE = re.compile(r"\b(rack|switch|leaf|spine|subnet|pdu|storage)\b")
"""Words of a label's key that say where a host is; other labels say what it is, and hosts share no fault by them."""


def note_suspect(cluster: Cluster, job: Job, since_s: float | None, workers: list[WorkerFeatures]) -> None:
    """Remember that a job is suspect since then, and what its ranks wait for; None: it is not."""
    if since_s is None:
        cluster.suspects.pop(job.id, None)
        return
    known = cluster.suspects.get(job.id)
    uses = known.uses if known is not None and known.suspected_s == since_s else _uses(cluster, job)
    cluster.suspects[job.id] = SuspectJob(job.id, since_s, uses, mount_waits(workers))


def shared_cause(cluster: Cluster, job: Job, now: Mono) -> CommonCause | None:
    """The cause that this job's suspicion shares with others or among its hosts."""
    mine = cluster.suspects.get(job.id)
    if mine is None:
        return None
    others = (other for other in cluster.suspects.values() if other.job != job.id)
    return common_cause(mine, others, lambda thing: _going_on(cluster, thing, now))


def _uses(cluster: Cluster, job: Job) -> frozenset[str]:
    """The job's hosts, and the labels that say where they are."""
    names = {place.host for place in job.places}
    labels = {label for name in names for label in _labels(cluster, name)}
    return frozenset(names | labels)


def _labels(cluster: Cluster, host: str) -> list[str]:
    known = cluster.hosts.get(host)
    pairs = known.labels.items() if known is not None else ()
    return [f"{key}={value}" for key, value in pairs if _PLACE.search(key.replace("_", "-").lower())]


def _going_on(cluster: Cluster, thing: str, now: Mono) -> int:
    """How many jobs use a thing and are seen to move."""
    if thing == CLUSTER:
        jobs = cluster.watches.keys() - cluster.suspects.keys()
    else:
        named = thing in cluster.hosts
        hosts = [thing] if named else [name for name in cluster.hosts if thing in _labels(cluster, name)]
        shares = (key for name in hosts for key in cluster.hosts[name].allocations)
        jobs = {job_of(key) for key in shares} - cluster.suspects.keys()
    return sum(_moves(cluster, job_id, now) for job_id in jobs)


def _moves(cluster: Cluster, job_id: str, now: Mono) -> bool:
    """Whether a rank of the job is seen to move, if only from one sleep to the next; a job that stands still and isn't
    suspect yet tells nothing.
    """
    runtime = cluster.runtime.get(job_id)
    if runtime is None or not cluster.jobs[job_id].launched:
        return False
    fresh = [worker for worker in runtime.features.values() if now - worker.at_s <= _STALE_S]
    _, watch = cluster.watches.get(job_id, (0, None))
    if watch is not None and watch.stood_since_s is None and len(fresh) == len(runtime.features):
        return any(not rank.blind for worker in fresh for rank in worker.ranks)
    return any(not rank.still and not rank.blind for worker in fresh for rank in worker.ranks)
