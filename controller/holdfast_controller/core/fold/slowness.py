"""Fold of events of a job that is slow. What that costs is added up beside the ledger, as unused time is."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.slowness import Slowdown


def fold_slowness(job: Job, event: ev.SlowdownNoticed | ev.SlowdownOver) -> None:
    """Apply ``event`` to its job."""
    before = job.slowdown
    close_slowdown(job, event.at)
    if isinstance(event, ev.SlowdownNoticed):
        found = Slowdown(event.since, event.best_ms, event.recent_ms, event.named, event.waited_for, event.at)
        if before is None:
            job.slowed_gpu_s += max(event.at - event.since, 0.0) * found.lost * _weight(job)
        job.slowdown = found


def close_slowdown(job: Job, at: Wall) -> None:
    """The job is fast again, or its ranks are stopped."""
    job.slowed_gpu_s = slowed_gpu_s(job, at)
    job.slowdown = None


def slowed_gpu_s(job: Job, at: Wall) -> float:
    """GPU seconds that slowness has cost until then; of a job without GPUs, seconds of its ranks."""
    found = job.slowdown
    return job.slowed_gpu_s + (max(at - found.counted_at, 0.0) * found.lost * _weight(job) if found else 0.0)


def _weight(job: Job) -> int:
    return job.gang.gpus or job.gang.rank_count
