"""Common causes among the cluster's suspects: when several jobs turn suspect together, killing helps none.

Asked for each look at a suspect job, in the worst of times for all jobs at once, so no more than a few neighbours
are looked at.
"""

from __future__ import annotations

from itertools import islice

from holdfast.hang.judge.common_cause import CommonCause, SuspectJob, common_cause
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.pipeline.samples import State
from holdfast.hang.tuning import Tuning
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import Suspect
from holdfast_controller.core.model.job import Job

MOST_NEIGHBOURS = 31
"""Enough to name a common cause; more would change no decision."""
_WINDOW_S = Tuning().common_cause_s


def note_suspect(cluster: Cluster, job: Job, since_s: float | None, workers: list[WorkerFeatures]) -> None:
    """Remember that a job is suspect since then, and what its ranks wait for; None: it is not."""
    if since_s is None:
        cluster.suspects.pop(job.id, None)
        return
    waiting = (rank for worker in workers for rank in worker.ranks if rank.state is State.DISK)
    cluster.suspects[job.id] = Suspect(since_s, frozenset(rank.mount for rank in waiting if rank.mount))


def shared_cause(cluster: Cluster, job: Job, workers: list[WorkerFeatures]) -> CommonCause | None:
    """The cause that this job's suspicion shares with others or among its hosts."""
    mine = cluster.suspects.get(job.id)
    if mine is None:
        return None
    others = [(job_id, other) for job_id, other in cluster.suspects.items() if job_id != job.id]
    if mine.mounts:
        sharing = islice((pair for pair in others if mine.mounts & pair[1].mounts), MOST_NEIGHBOURS)
        found = [SuspectJob(job_id, o.since_s, _vectors(cluster, job_id)) for job_id, o in sharing]
        cause = _of_job(job, [SuspectJob(job.id, mine.since_s, workers), *found])
        if cause is not None:
            return cause
    near = islice((pair for pair in others if abs(pair[1].since_s - mine.since_s) <= _WINDOW_S), MOST_NEIGHBOURS)
    # Without their vectors: a mount of theirs is no matter of this job.
    found = [SuspectJob(job_id, other.since_s, ()) for job_id, other in near]
    return _of_job(job, [SuspectJob(job.id, mine.since_s, ()), *found]) if found else None


def _vectors(cluster: Cluster, job_id: str) -> list[WorkerFeatures]:
    runtime = cluster.runtime.get(job_id)
    return list(runtime.features.values()) if runtime is not None else []


def _of_job(job: Job, suspects: list[SuspectJob]) -> CommonCause | None:
    cause = common_cause(suspects)
    return cause if cause is not None and job.id in cause.jobs else None
