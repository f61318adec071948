"""Stored watches: what was learned of a job's progress is written beside the log and read after a restart.

It is a cache: nothing is decided from it that looks at the job wouldn't show again, later. So a record that is
missing, can't be read or is of another generation is a watch that begins again.
"""

from __future__ import annotations

from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.records import persistence
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.actions import KeepWatch
from holdfast_controller.core.step.step import Step


def keep_watch(step: Step, job: Job, watch: JobWatch) -> None:
    """Write the watch down if it has something new to say."""
    known = step.cluster.kept_watches.get(job.id)
    now_s = step.now.mono
    if known is not None:
        kept_s, kept = known
        same = kept.generation == job.generation
        if same and not persistence.worth_keeping(kept.watch, kept_s, watch, now_s):
            return
    fresh = KeptWatch(job.generation, persistence.resting(watch, now_s))
    step.cluster.kept_watches[job.id] = now_s, fresh
    step.do(KeepWatch(job.id, fresh))


def forget_ended(step: Step) -> None:
    """Delete the stored watches of jobs that are ending, in the same commit."""
    for entry in step.entries:
        if isinstance(entry.event, ev.JobEnding):
            step.cluster.elapsed_backoffs.pop(entry.event.job_id, None)
            step.cluster.elapsed_loans.pop(entry.event.job_id, None)
            known = step.cluster.kept_watches.pop(entry.event.job_id, None)
            if known is not None:
                step.do(KeepWatch(entry.event.job_id, None))


def wake(cluster: Cluster, kept: dict[str, KeptWatch], now: Now) -> None:
    """After a start: go on with the watches of the jobs that go on."""
    for job_id, record in kept.items():
        job = cluster.jobs.whole.get(job_id)
        if job is not None and job.outcome is None and not job.terminal:
            cluster.kept_watches[job_id] = now.mono, record
            cluster.watches[job_id] = record.generation, persistence.woken(record.watch, now.mono)
