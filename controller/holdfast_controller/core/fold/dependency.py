"""Fold of what jobs wait for before they wait for hosts: ends of other jobs, and their turn in an array."""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.phase import Held, Paused, Queued


def fold_dependency(cluster: Cluster, job: Job, event: ev.DependencyEnded) -> None:
    """Wait for one less. After the last one the job takes its place in the queue, unless it is paused or to end.

    An element of an array that takes turns waits for its own first.
    """
    assert isinstance(job.phase, Held | Paused)
    ended = tuple(each for each in job.phase.unmet if each.job == event.on)
    unmet = tuple(each for each in job.phase.unmet if each.job != event.on)
    cluster.dependents.discard(job.id, ended)
    missed = job.phase.missed if event.met else missed_in_words(job, event)
    job.phase = replace(job.phase, unmet=unmet, missed=missed)
    if isinstance(job.phase, Held) and not unmet and not missed and not job.gang.takes_turns:
        enter_queue(cluster, job, event.at)


def enter_queue(cluster: Cluster, job: Job, at: Wall) -> None:
    """The job waits for hosts, at its place in the queue."""
    job.phase = Queued(since=at)
    cluster.queue.add(job.id, job.turn, job.line, job.gang.project)


def missed_in_words(job: Job, event: ev.DependencyEnded) -> str:
    """The end that came instead of the one that was waited for, in words."""
    end = next(each.end for each in job.gang.after if each.job == event.on)
    return f"{event.on} ended as {event.state.name}, and this job waited for it to {end.in_words}"
