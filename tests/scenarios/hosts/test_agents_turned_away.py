"""An agent of a version that the controller doesn't work with: on record, given no work, and nothing is lost."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.hosts.host import Liveness
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.commands import HostTurnedAway

WHY = "The agent is too old. Upgrade it."


@pytest.fixture
def world() -> World:
    """Four hosts, and job ``a`` of two workers running on the first two."""
    made = World(hosts=4)
    made.submit("a")
    made.run("a")
    return made


def call(world: World, host: str, version: str = "0") -> list[str]:
    return world.step(HostTurnedAway(host, version, WHY))


def test_it_is_noted_once_and_its_work_runs_on(world: World) -> None:
    world.hang_up("host-0")
    assert call(world, "host-0") == ["host-0 refused"]
    assert call(world, "host-0") == []
    assert world.cluster.hosts["host-0"].refused == WHY
    assert world.cluster.hosts["host-0"].agent_version == "0"
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert world.cluster.jobs["a"].generation == 1


def test_it_is_no_sign_of_life(world: World) -> None:
    world.hang_up("host-0")
    others = ["host-1", "host-2", "host-3"]
    told = []
    for _ in range(16):
        told += world.wait(5, beating=others) + call(world, "host-0")
    assert "host-0 lost" in told
    assert world.cluster.jobs["a"].state is JobState.RUNNING


def test_a_session_of_before_is_over(world: World) -> None:
    old = world.sessions["host-0"]
    assert call(world, "host-0") == ["host-0 refused", "> host-0 close"]
    assert world.exit("a", 0, 7, session=old) == []


def test_it_is_welcome_again_once_it_is_upgraded(world: World) -> None:
    world.hang_up("host-0")
    call(world, "host-0")
    told = world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    assert told == ["host-0 joined", "> host-0 welcome 1", "> host-0 RUN a w0 g1"]
    assert world.cluster.hosts["host-0"].refused == ""


def test_it_gets_no_new_work() -> None:
    world = World(hosts=1)
    world.hang_up("host-0")
    call(world, "host-0")
    assert world.submit("a", gang(1))[1] == "a queued: no host takes work at present"


def test_a_host_that_was_never_welcome_is_known_and_is_lost_in_time() -> None:
    world = World(hosts=1)
    assert call(world, "host-9") == ["host-9 refused"]
    assert world.cluster.presence_of("host-9").liveness is Liveness.SUSPECT
    told = world.wait(80, beating=["host-0"])
    assert "host-9 lost" in told
    assert not world.cluster.hosts["host-0"].lost
    assert world.join("host-9") == ["host-9 joined", "host-9 returned", "> host-9 welcome 0"]
