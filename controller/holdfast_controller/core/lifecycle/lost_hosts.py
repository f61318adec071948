"""Workers on lost hosts: which of them are known to have stopped, so that their job may go on without them.

Theory of operation. A host that isn't heard may have lost its power, or only its way to us; from here both look the
same. What makes the difference is a deadline that the worker's own shim keeps:

- STOP_AND_REPLACE: it counts from the last word of the controller, so a lost host has stopped.
- REPLACE_IF_ISOLATED: it moves on as well while the worker's peers answer. A peer that has answered nothing for longer
  than such a deadline says so (``WorkerReport.silent_peers``), and then the worker has stopped. Otherwise its peers
  reach it, and the job may well make progress: it is left alone.
- KEEP: there is none. Only the host itself, or an admin, can say that the worker is gone.

A worker of which no generation was launched since it was placed has nothing to stop, whatever its policy; nor has one
that was proven empty before its host was lost.
"""

from __future__ import annotations

from holdfast._session.reports import WorkerReport
from holdfast_controller.core.lifecycle.exits import lose_workers
from holdfast_controller.core.lifecycle.stop import settle
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.step import Step


def has_stopped(cluster: Cluster, job: Job, index: int) -> bool:
    """Whether a worker on a lost host is known to have ended there."""
    if job.gang.replace_when_lost:
        return True
    generations = range(job.attempts[-1].generation, job.generation_of(index) + 1)
    if any(job.is_skipped(generation) for generation in generations):
        return False
    launched = max((each for each in generations if job.was_launched(each, index)), default=0)
    ready_for_next = not job.launched and index in cluster.runtime_of(job.id).prepared
    if not launched or ready_for_next or index in cluster.runtime_of(job.id).empty:
        return True
    return job.gang.replace_if_isolated and any(
        (index, launched) in cluster.presence_of(place.host).silent_peers.get(place_key(job.id, other), ())
        for other, place in enumerate(job.places)
    )


def on_silent_peers(step: Step, host: str, job: Job, index: int, report: WorkerReport) -> None:
    """Keep what a worker says of its peers, and go on without those that are on lost hosts."""
    if index >= len(job.places) or job.places[index].host != host:
        return
    told, key = step.cluster.presence_of(host).silent_peers, place_key(job.id, index)
    count = len(job.gang.members)
    silent = frozenset((peer, number) for peer, number in report.silent_peers if 0 <= peer < count)
    if not silent:
        told.pop(key, None)
        return
    told[key] = silent
    hosts = dict.fromkeys(job.places[peer].host for peer, _ in sorted(silent))
    for name in hosts:
        if step.cluster.hosts[name].lost and job.unreconciled is None and not job.terminal:
            go_on_without(step, job, name)


def go_on_without(step: Step, job: Job, host: str) -> None:
    """Take a job's workers on a lost host as gone, those that are known to be."""
    here = [index for index in job.awaited if job.places[index].host == host]
    gone = [index for index in here if has_stopped(step.cluster, job, index)]
    if gone:
        lose_workers(step, job, gone, f"{host} was lost")
    settle(step, job)
