"""The order in which jobs that wait are served.

Without fair share that is the queue's own. Where any project has a weight, jobs of the same class (see ``queue``) go by
their project's level (see ``shares``), then by age. Levels are looked at again after each job that was placed, so one
pass over the queue divides all that is free.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.queue import InLine

_NONE: Mapping[str, str] = {}


def in_turn(
    cluster: Cluster, passed: Collection[str] | None = None, apart: Mapping[str, str] = _NONE
) -> Iterator[str]:
    """Jobs that wait, from the first to be served on; those that come meanwhile are left out.

    Without fair share those too whose line, in the queue or ``apart``, is ``passed`` by the time of their turn.
    """
    if not cluster.shares.weights:
        yield from cluster.queue if passed is None else cluster.queue.in_turn(passed, apart)
        return
    waiting = [{project: list(jobs) for project, jobs in each.items()} for _, each in cluster.queue.classes()]
    for each in waiting:
        yield from _by_level(cluster, each)


def _by_level(cluster: Cluster, waiting: Mapping[str, InLine]) -> Iterator[str]:
    heads = [(level_of(cluster, project), jobs[0][0], project, 0) for project, jobs in waiting.items()]
    heapq.heapify(heads)
    while heads:
        level, _, project, index = heapq.heappop(heads)
        jobs = waiting[project]
        next_level, next_number = heads[0][:2] if heads else (math.inf, 0)
        # Of projects at the same level, such as those that never had anything, the oldest job is next.
        until = len(jobs) if level < next_level else bisect_left(jobs, (next_number, ""), index)
        sequence = cluster.sequence
        for _, name in islice(jobs, index, until):
            yield name
            index += 1
            if cluster.sequence != sequence:
                break
        if index < len(jobs):
            heapq.heappush(heads, (level_of(cluster, project), jobs[index][0], project, index))


def level_of(cluster: Cluster, project: str) -> float:
    """The project's level; see ``Shares``."""
    return cluster.shares.level(project, cluster.holdings.gpus_of(project))


def ahead_of(cluster: Cluster, job: Job) -> int:
    """How many jobs that wait are to be served before a job, which need not be in the queue itself."""
    if not cluster.shares.weights:
        return cluster.queue.ahead_of(job.turn, job.id)
    *own, number = job.turn
    level, count = level_of(cluster, job.gang.project), 0
    for each, waiting in cluster.queue.classes():
        if each < tuple(own):
            count += sum(map(len, waiting.values()))
        if each != tuple(own):
            continue
        for project, jobs in waiting.items():
            theirs = level_of(cluster, project)
            if theirs < level:
                count += len(jobs)
            elif theirs == level:
                count += bisect_left(jobs, (number, ""))
    return count
