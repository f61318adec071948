"""What a person reads of a job that was placed and isn't running, or of which nothing is heard."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.gang import Gang, Retries
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason

BACKS_OFF = replace(gang(), retries=Retries(backoff_s=10.0))


def running(hosts: int = 3, wanted: Gang | None = None) -> World:
    """Job ``a`` of two workers runs on the first two hosts."""
    world = World(hosts=hosts)
    world.submit("a", wanted or gang())
    world.run("a")
    return world


def why(world: World) -> str:
    return wait_reason(world.cluster, world.cluster.jobs["a"], list(world.cluster.hosts.values()))


def fail(world: World) -> None:
    generation = world.cluster.jobs["a"].generation
    world.exit("a", 1, 7)
    world.exit("a", 0, "STOPPED:15", generation)


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        (False, "its ranks may run on there, so the job waits for it, or for: holdfast host fence host-1"),
        (True, "the job is moved at 13:49:26 UTC unless it returns; now by: holdfast host fence host-1"),
    ],
)
def test_silent_host_of_a_running_job_is_named_until_it_is_heard_again(replaced: bool, words: str) -> None:
    world = running(wanted=gang(replace_when_lost=replaced))
    world.hang_up("host-1")
    assert why(world) == "", "it may be back in a moment"
    world.wait(20, beating=["host-0", "host-2"])
    assert why(world) == f"nothing is heard from host-1 since 13:48:20 UTC; {words}"
    world.join("host-1", places=[world.place("a", 1, "RUNNING")])
    assert why(world) == ""


def test_restart_is_under_way_until_it_waits_for_its_time_only() -> None:
    world = running(wanted=BACKS_OFF)
    fail(world)
    assert why(world) == "restarting in place on host-0, host-1"
    world.report("a", 0, "PREPARED")
    assert why(world) == "restarting in place on host-1"
    world.report("a", 1, "PREPARED")
    assert why(world) == "backs off after a failure until 13:48:30 UTC; at once by: holdfast job restart a"
    world.wait(11, beating=["host-0", "host-1", "host-2"])
    assert why(world) == "starting on host-0, host-1"


def test_restart_by_a_user_ends_the_back_off() -> None:
    world = running(wanted=BACKS_OFF)
    fail(world)
    for index in (0, 1):
        world.report("a", index, "PREPARED")
    assert "at once by: holdfast job restart a" in why(world)
    assert world.restart("a")[0] == "a launched g2"
    assert why(world) == "starting on host-0, host-1"
    world.run("a")
    fail(world)
    assert world.restart("a")[0].startswith("a restarts as g4"), "its old ranks are still being stopped"
    world.run("a")
    assert (world.cluster.jobs["a"].generation, why(world)) == (4, "")


def test_pause_names_the_hosts_that_it_waits_for_and_then_the_way_on() -> None:
    world = running()
    world.pause("a")
    assert why(world) == "being paused; waits for its workers to be gone from host-0, host-1"
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert why(world) == "being paused; waits for its workers to be gone from host-0"
    world.report("a", 0, "EMPTY")
    assert why(world) == "paused; go on with: holdfast job resume a"


def test_retry_that_waits_for_its_time_says_so_in_the_same_words() -> None:
    world = running(wanted=replace(BACKS_OFF, max_worker_restarts=0))
    for failures in ("a failure", "2 failures in a row"):
        world.run("a")
        fail(world)
        assert why(world).startswith("being placed again; waits for its workers to be gone from host-")
        world.empty("a")
        assert why(world).startswith(f"backs off after {failures} until 13:")
        assert "holdfast" not in why(world), "a queued job can't be restarted in place"
        world.wait(11, beating=["host-0", "host-1", "host-2"])
    assert world.cluster.jobs["a"].state is JobState.QUEUED
