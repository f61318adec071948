"""Fold of events of unused GPUs. Their time is added up beside the ledger: it is part of other categories there."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.underuse import Underuse


def fold_underuse(job: Job, event: ev.UnderuseNoticed | ev.UnderuseOver) -> None:
    """Apply ``event`` to its job."""
    acted = job.underuse is not None and job.underuse.acted
    close_underuse(job, event.at)
    if isinstance(event, ev.UnderuseNoticed):
        job.unused_gpu_s += event.before_s
        acted = acted or event.action is not None
        job.underuse = Underuse(event.idle, event.gpus, event.since, event.unknown, acted, event.at)


def close_underuse(job: Job, at: Wall) -> None:
    """A finding about the job's GPUs ends: they are used again, or its ranks are stopped."""
    job.unused_gpu_s = unused_gpu_s(job, at)
    job.underuse = None


def unused_gpu_s(job: Job, at: Wall) -> float:
    """GPU seconds for which GPUs of the job were unused until then."""
    found = job.underuse
    return job.unused_gpu_s + (max(at - found.counted_at, 0.0) * found.idle if found is not None else 0.0)
