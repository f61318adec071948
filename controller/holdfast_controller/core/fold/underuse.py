"""Fold of events of unused GPUs. Their time is added up beside the ledger: it is part of other categories there."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.slowness import close_slowdown, fold_slowness
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.underuse import Underuse


def fold_underuse(
    job: Job, event: ev.UnderuseNoticed | ev.UnderuseOver | ev.SlowdownNoticed | ev.SlowdownOver
) -> None:
    """Apply ``event`` to its job."""
    if isinstance(event, ev.SlowdownNoticed | ev.SlowdownOver):
        fold_slowness(job, event)
        return
    acted = job.underuse is not None and job.underuse.acted
    _close(job, event.at)
    if isinstance(event, ev.UnderuseNoticed):
        job.unused_gpu_s += event.before_s
        acted = acted or event.action is not None
        job.underuse = Underuse(event.idle, event.gpus, event.since, event.unknown, acted, event.at)


def close_underuse(job: Job, at: Wall) -> None:
    """End the findings about the job's GPUs and its pace, as its ranks are stopped."""
    _close(job, at)
    close_slowdown(job, at)


def _close(job: Job, at: Wall) -> None:
    job.unused_gpu_s = unused_gpu_s(job, at)
    job.underuse = None


def unused_gpu_s(job: Job, at: Wall) -> float:
    """GPU seconds for which GPUs of the job were unused until then."""
    found = job.underuse
    return job.unused_gpu_s + (max(at - found.counted_at, 0.0) * found.idle if found is not None else 0.0)
