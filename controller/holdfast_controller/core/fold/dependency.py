"""Fold of the ends that jobs wait for."""

from __future__ import annotations

from dataclasses import replace

from holdfast_controller.core.events import job as ev
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.phase import Held, Paused, Queued


def fold_dependency(cluster: Cluster, job: Job, event: ev.DependencyEnded) -> None:
    """Wait for one less. After the last one the job takes its place in the queue, unless it is paused or to end."""
    assert isinstance(job.phase, Held | Paused)
    ended = tuple(each for each in job.phase.unmet if each.job == event.on)
    unmet = tuple(each for each in job.phase.unmet if each.job != event.on)
    cluster.dependents.discard(job.id, ended)
    missed = job.phase.missed if event.met else missed_in_words(job, event)
    job.phase = replace(job.phase, unmet=unmet, missed=missed)
    if isinstance(job.phase, Held) and not unmet and not missed:
        job.phase = Queued(since=event.at)
        cluster.queue.add(job.id, job.turn, job.line)


def missed_in_words(job: Job, event: ev.DependencyEnded) -> str:
    """The end that came instead of the one that was waited for, in words."""
    end = next(each.end for each in job.gang.after if each.job == event.on)
    return f"{event.on} ended as {event.state.name}, and this job waited for it to {end.in_words}"
