"""Jobs that pause and go on: what they hold meanwhile, and what time counts."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason


@pytest.fixture
def world() -> World:
    """Three hosts, and job ``a`` of two workers running on two of them; it may be retried once."""
    made = World(hosts=3)
    made.submit("a", gang(retries=1, max_worker_restarts=1))
    made.run("a")
    return made


def job_of(world: World) -> Job:
    return world.cluster.jobs["a"]


def fail_once(world: World, rank: int, how: str | int = 7, **more: object) -> list[str]:
    """A rank fails; the other one is stopped for it."""
    generation = job_of(world).generation
    told = world.exit("a", rank, how, **more)  # type: ignore[arg-type]
    if not job_of(world).terminal:
        world.exit("a", 1 - rank, "STOPPED:15", generation)
    return told


def test_pause_stops_the_work_gives_the_hosts_up_and_resume_places_it_anew(world: World) -> None:
    assert world.pause("a") == [
        "a to pause",
        "a leaves to PAUSE: PAUSED",
        "> reply a",
        "> host-0 STOP a w0 g1",
        "> host-1 STOP a w1 g1",
    ]
    assert world.pause("a") == ["> reply a"]
    world.submit("b")
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    told = world.report("a", 1, "EMPTY")
    assert told[:3] == ["a emptied w1", "a paused", "b placed g1 on host-0 host-1"] or told[:2] == [
        "a emptied w1",
        "a paused",
    ]
    assert job_of(world).state is JobState.PAUSED
    assert wait_reason(world.cluster, job_of(world), []) == "paused; go on with: holdfast job resume a"
    assert world.resume("a")[0] == "a resumed"
    world.cancel("b")
    world.empty("b")
    job = job_of(world)
    assert (job.state, job.attempt, job.generation) == (JobState.PENDING, 2, 2)
    world.run("a")
    assert job.state is JobState.RUNNING
    assert not job.recoveries, "nobody failed"
    assert job.last_end is EndReason.PAUSED


def test_pause_of_a_waiting_job_takes_it_out_of_the_queue() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1))
    assert world.pause("b") == ["b to pause", "b paused", "> reply b"]
    assert list(world.cluster.queue) == []
    world.cancel("a")
    world.empty("a")
    assert world.cluster.jobs["b"].state is JobState.PAUSED
    assert world.resume("b")[:2] == ["b resumed", "b placed g1 on host-0"]


def test_pause_while_a_retry_is_under_way_waits_for_the_same_stops(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    world.exit("a", 1, 7)
    assert world.pause("a") == ["a to pause", "> reply a"]
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a paused"]
    assert not any(host.allocations for host in world.cluster.hosts.values())


def test_paused_job_can_be_cancelled_and_not_restarted(world: World) -> None:
    world.pause("a")
    world.empty("a")
    assert world.restart("a") == ["> refuse WRONG_STATE"]
    assert world.cancel("a")[:3] == ["a cancelled by ann", "a ending CANCELLED", "a ended CANCELLED"]
    assert world.resume("a") == ["> refuse WRONG_STATE"]
    assert world.pause("a") == ["> refuse WRONG_STATE"]


def test_cancel_while_an_attempt_is_given_up_ends_the_job_once_it_is_gone(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    world.exit("a", 1, 7)
    assert world.cancel("a")[:2] == ["a cancelled by ann", "a ending CANCELLED"]
    assert job_of(world).state is JobState.CANCELLING
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    assert job_of(world).state is JobState.CANCELLED
    assert not any(host.allocations for host in world.cluster.hosts.values())


def test_time_paused_is_not_run_time() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100.0))
    world.run("a")
    world.wait(60, beating=["host-0"])
    world.pause("a")
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    world.wait(1000, beating=["host-0"])
    world.resume("a")
    world.run("a")
    assert world.wait(39, beating=["host-0"]) == []
    assert "a ending FAILED" in world.wait(2, beating=["host-0"])
    assert job_of(world).error is not None
