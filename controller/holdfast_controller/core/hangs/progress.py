"""Progress of running generations for the ledger: gathered from vectors, kept across restarts of the controller.

It is a cache, as watches are: without it the time before a restart of the controller is ``ran``, nothing more.
"""

from __future__ import annotations

from copy import deepcopy

from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.goodput.progress import observe
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import ProgressWatch
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.actions import KeepProgress
from holdfast_controller.core.step.step import Step

KEEP_EVERY_S = 60.0
"""At most so often a job's progress is written down, but for its first step."""


def note_progress(step: Step, job: Job, index: int, vector: WorkerFeatures) -> None:
    """Take a worker's vector into the job's progress, and write that down now and then."""
    runtime, ledger = step.cluster.runtime_of(job.id), job.ledger
    if ledger is None or ledger.started_at is None or index in job.launch.relaunched:
        return
    watch = runtime.progress
    if watch is None or watch.generation != job.launch.generation:
        watch = runtime.progress = ProgressWatch(job.launch.generation)
        if step.now.mono_of(Wall(ledger.started_at / 1000)) < step.cluster.listening_since:
            watch.since = round(step.now.wall_of(Mono(vector.at_s)) * 1000)
    first = watch.first is None
    news = observe(watch, index, vector, step.now)
    began = first and watch.first is not None
    kept_at = runtime.progress_kept_at
    if began or (news and (kept_at is None or step.now.mono - kept_at >= KEEP_EVERY_S)):
        runtime.progress_kept_at = step.now.mono
        step.do(KeepProgress(job.id, deepcopy(watch)))


def keep_all(step: Step) -> None:
    """Write down all progress again: what was kept has other times than the ledger since the clock was set."""
    for job_id, runtime in step.cluster.runtime.items():
        if runtime.progress is not None:
            step.do(KeepProgress(job_id, deepcopy(runtime.progress)))


def wake_progress(cluster: Cluster, kept: dict[str, ProgressWatch], now: Now) -> None:
    """After a start: go on with the progress of generations that still run."""
    for job_id, watch in kept.items():
        job = cluster.jobs.whole.get(job_id)
        if job is None or job.terminal or job.launch.generation != watch.generation:
            continue
        if watch.newest <= round(max(now.wall, cluster.last_ran) * 1000):  # the leap is yet to be noted
            cluster.runtime_of(job_id).progress = watch
