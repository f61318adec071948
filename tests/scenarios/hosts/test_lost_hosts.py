"""Hosts that are cut off, lost, fenced or drained under a running job."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState


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


def test_lost_host_is_waited_for_unless_the_job_asks_to_go_on_without_it(world: World) -> None:
    world.hang_up("host-1")
    assert "host-1 lost" in world.wait(80, beating=["host-0", "host-2"])
    assert job_of(world).state is JobState.RUNNING


def test_job_that_asked_for_it_goes_on_without_a_lost_host() -> None:
    world = World(hosts=3)
    world.submit("a", gang(retries=3, replace_when_lost=True))
    world.run("a")
    world.hang_up("host-1")
    told = world.wait(80, beating=["host-0", "host-2"])
    assert [words for words in told if not words.startswith("> note")][-4:] == [
        "a exit g1 r1 LOST_HOST",
        "a leaves to RETRY: LOST_HOST of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
        "a fenced w1",
        "> host-0 STOP a w0 g1",
    ]
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"
    # What it held stays withheld until the host has proven it empty.
    assert list(world.cluster.hosts["host-1"].allocations) == ["a/1"]
    told = world.join("host-1", places=[world.place("a", 1, "RUNNING", 1)])
    assert "> host-1 FORGET a w1 g2" in told
    late = world.exit("a", 1, 9, 1, host="host-1")
    assert late[0] == "a late exit g1 r1 NONZERO_EXIT 9"
    assert world.report("a", 1, "EMPTY", 2, host="host-1") == ["host-1 freed a/1"]
    assert not world.cluster.hosts["host-1"].allocations


def test_gpus_that_a_moved_worker_left_on_a_host_go_to_no_worker_of_its_job_until_they_are_proven_free() -> None:
    world = World(hosts=3)
    world.submit("a", gang(retries=3, replace_when_lost=True))
    world.run("a")
    world.hang_up("host-1")
    world.wait(80, beating=["host-0", "host-2"])
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"
    world.run("a")
    # The host is back, and its old worker is not proven gone when the other one is lost.
    world.join("host-1", places=[world.place("a", 1, "RUNNING", 1)])
    world.hang_up("host-0")
    world.wait(80, beating=["host-1", "host-2"])
    world.exit("a", 1, "STOPPED:15")
    assert not any("placed" in told for told in world.report("a", 1, "EMPTY")), "host-1 may still run g1"
    told = world.report("a", 1, "EMPTY", 1, host="host-1")
    assert told[:2] == ["host-1 freed a/1", "a placed g3 on host-1 host-2"]


def test_admin_s_word_fences_a_host_and_frees_what_it_held() -> None:
    world = World(hosts=3)
    world.submit("a", gang(retries=3))
    world.run("a")
    assert world.fence("host-1") == ["> refuse WRONG_STATE"], "it answers"
    world.hang_up("host-1")
    told = world.fence("host-1")
    assert told[:4] == [
        "host-1 fenced",
        "a exit g1 r1 LOST_HOST",
        "a leaves to RETRY: LOST_HOST of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
        "a fenced w1",
    ]
    assert not world.cluster.hosts["host-1"].allocations


def test_drained_host_loses_its_work_at_the_deadline_and_not_before(world: World) -> None:
    assert world.drain("host-1", 600.0) == ["host-1 draining", "> reply host-1"]
    assert world.wait(590, beating=["host-0", "host-1", "host-2"]) == []
    told = world.wait(20, beating=["host-0", "host-1", "host-2"])
    assert told[0] == "a leaves to RETRY: DRAINED of host host-1, keeps w0, not on host-1"
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"
