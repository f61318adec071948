"""A controller that ran nothing for a while: it counts no silence for that time, and gives each lease its full term."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.hosts.host import Liveness
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.commands import StoodStill, TimePassed

OTHERS = ("host-1", "host-2", "host-3")


@pytest.fixture
def world() -> World:
    """Four hosts, and job ``a`` of two workers running on the first two."""
    made = World(hosts=4)
    made.submit("a")
    made.run("a")
    return made


def stand_still(world: World, seconds: float) -> list[str]:
    """As the driver: what comes first afterwards comes after the word of the stall."""
    world.mono += seconds
    return world.step(StoodStill(seconds)) + world.step(TimePassed())


def test_no_host_is_silent_because_nothing_was_read(world: World) -> None:
    assert stand_still(world, 220) == []
    assert world.wait(14) == []
    assert all(world.beat(f"host-{number}") == [] for number in range(4))
    assert world.cluster.jobs["a"].state is JobState.RUNNING


def test_a_host_that_was_silent_before_has_its_full_term_again(world: World) -> None:
    assert world.wait(60, beating=OTHERS) == ["> note host.silent host-0 SUSPECT"]
    assert stand_still(world, 30) == []
    assert world.cluster.presence["host-0"].liveness is Liveness.SUSPECT, "only its own word makes it ready"
    assert world.wait(65, beating=OTHERS) == []
    assert world.wait(1, beating=OTHERS) == ["host-0 lost", "> note host.silent host-0 LOST"]


def test_a_stall_between_two_deadlines_counts_as_well(world: World) -> None:
    """The deadline itself is noticed in time, and the host came back while nothing was read."""
    world.wait(50, beating=OTHERS)
    assert stand_still(world, 15.9) == []
    assert world.wait(1, beating=OTHERS) == []
    assert world.beat("host-0") == []


def test_a_controller_that_is_late_by_seconds_still_gives_dead_hosts_up(world: World) -> None:
    told: list[str] = []
    for _ in range(24):
        told += world.wait(1, beating=OTHERS)
        world.mono += 2.5
        for host in OTHERS:
            world.beat(host)
    assert "host-0 lost" in told


def test_a_host_that_was_lost_before_is_lost(world: World) -> None:
    world.wait(70, beating=OTHERS)
    assert stand_still(world, 100) == []
    assert world.cluster.hosts["host-0"].lost
    assert world.cluster.presence["host-0"].liveness is Liveness.LOST


def test_the_most_are_not_silent_because_the_controller_was(world: World) -> None:
    stand_still(world, 500)
    told = world.wait(66, beating=["host-3"])
    assert told[:3] == [f"> note host.silent host-{n} SUSPECT" for n in range(3)]
    assert "3 of 4 hosts silent" in told, "after a full term of their own silence"


def test_a_success_that_was_not_read_yet_outranks_the_timeout() -> None:
    world = World(hosts=2)
    world.submit("a", gang(timeout_s=100.0))
    world.run("a")
    world.wait(90, beating=["host-0", "host-1"])
    assert stand_still(world, 60) == []
    world.exit("a", 0, 0)
    world.exit("a", 1, 0)
    world.empty("a")
    assert world.cluster.jobs["a"].state is JobState.SUCCEEDED


def test_a_timeout_is_late_by_no_more_than_that() -> None:
    world = World(hosts=2)
    world.submit("a", gang(timeout_s=100.0))
    world.run("a")
    world.wait(90, beating=["host-0", "host-1"])
    assert not any(" STOP " in line for line in stand_still(world, 60))
    assert "> host-0 STOP a w0 g1" in world.wait(15)
