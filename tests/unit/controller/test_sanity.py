"""Every contradiction that the invariants name is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.controller.examples import EVENTS

from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Allocation
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.phase import Ended, Paused, Placed, Queued
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.model.sanity import check_sanity


def running() -> tuple[Cluster, Job]:
    cluster = Cluster()
    for event in EVENTS:
        fold(cluster, event)
        found = [job for job in cluster.jobs.values() if job.state is JobState.RUNNING and not job.outcome]
        if found and not found[0].vacating:
            return cluster, found[0]
    raise AssertionError("no job of the example runs")


def _end(cluster: Cluster, job: Job) -> None:
    job.state = JobState.FAILED
    job.phase = Ended(outcome=JobState.FAILED, error=None, at=Wall(1.0))
    cluster.runtime[job.id] = Runtime()


def _end_otherwise(cluster: Cluster, job: Job) -> None:
    cluster.runtime.clear()
    job.state = JobState.FAILED
    job.phase = Ended(outcome=JobState.CANCELLED, error=None, at=Wall(1.0))


def _wait_unseen(cluster: Cluster, job: Job) -> None:
    job.state, job.phase = JobState.QUEUED, Queued(since=Wall(1.0))


def _reserve_too_many(cluster: Cluster, job: Job) -> None:
    job.state, job.phase = JobState.QUEUED, Queued(since=Wall(1.0), reserved=frozenset({99}))
    cluster.queue.add(job.id, job.turn)


BREAKS: dict[str, Callable[[Cluster, Job], object]] = {
    "phase": lambda _, job: setattr(job, "phase", Paused()),
    "queue": lambda cluster, job: cluster.queue.add(job.id, job.turn),
    "not queued": _wait_unseen,
    "runtime": _end,
    "outcome": _end_otherwise,
    "allocation": lambda cluster, _: next(iter(cluster.hosts.values())).allocations.update(
        {"none/0": Allocation(1, 1, ())}
    ),
    "draining": lambda cluster, _: cluster.draining.add("nowhere"),
    "fenced": lambda _, job: job.placement.fenced.add(0),
    "emptied": lambda _, job: job.placement.emptied.add(99),
    "reserved": _reserve_too_many,
    "deferred": lambda _, job: job.launch.deferred.add(0),
    "relaunched": lambda _, job: job.launch.relaunched.update({0: job.generation + 1}),
    "generation": lambda _, job: setattr(job.launch, "generation", job.generation + 1),
    "places": lambda _, job: setattr(job.placement, "places", job.places[:-1]),
    "vacating": lambda _, job: setattr(job, "vacating", Leaving.RETRY),
}


def test_the_state_that_events_give_is_sane() -> None:
    cluster = Cluster()
    for event in EVENTS:
        fold(cluster, event)
    cluster, job = running()
    assert isinstance(job.phase, Placed)
    check_sanity(cluster)


@pytest.mark.parametrize("broken", BREAKS)
def test_a_contradiction_is_found(broken: str) -> None:
    cluster, job = running()
    BREAKS[broken](cluster, job)
    with pytest.raises(AssertionError):
        check_sanity(cluster)
