"""Places that a waiting job keeps for its next attempt, on hosts that it can't have again: they are given back."""

from __future__ import annotations

import pytest
from tests.scenarios.queue_stories import job_of, placed, why
from tests.scenarios.world import World, gang

from holdfast_controller.core.step.access_commands import HostRemovalAsked


@pytest.fixture
def world() -> World:
    """Job ``a`` had to leave host-1, keeps its place on host-0, and waits for another host."""
    world = World(hosts=2)
    world.submit("a", gang())
    world.run("a")
    world.drain("host-1", 0.0)
    world.wait(1, beating=("host-0", "host-1"))
    world.empty("a")
    assert "needs 4 GPUs" in why(world, "a") and job_of(world, "a").reserved == {0}
    assert list(world.cluster.hosts["host-0"].allocations) == ["a/0"]
    return world


def test_a_host_is_drained_though_a_waiting_job_kept_a_place_there(world: World) -> None:
    assert world.drain("host-0") == [
        "host-0 draining",
        "a queued: its place on host-0, which is being drained, is kept no longer",
        "host-0 drained",
        "> reply host-0",
    ]
    assert not job_of(world, "a").reserved
    world.uncordon("host-0")
    assert placed(world.uncordon("host-1")) == ["a placed g2 on host-0 host-1"]


def test_a_place_on_a_draining_host_is_given_back_once_it_is_empty() -> None:
    world = World(hosts=2)
    world.submit("a", gang())
    world.run("a")
    world.drain("host-0")
    world.drain("host-1", 0.0)
    assert "keeps w0" in world.wait(1, beating=("host-0", "host-1"))[0]
    world.report("a", 1, "EMPTY")
    assert "host-0 drained" in world.report("a", 0, "EMPTY")


def test_a_host_that_was_lost_meanwhile_holds_nothing_once_it_is_fenced(world: World) -> None:
    world.hang_up("host-0")
    world.wait(300, beating=("host-1",))
    assert "free once it returns" in why(world, "a")
    assert "a queued: its place on host-0, which was fenced by ann, is kept no longer" in world.fence("host-0")
    assert not world.cluster.hosts["host-0"].allocations
    assert "lost" not in why(world, "a"), "nothing there is waited for, and no second fencing helps"


def test_a_lost_host_on_which_a_waiting_job_holds_nothing_is_no_reason_of_its_wait(world: World) -> None:
    world.hang_up("host-1")
    world.wait(300, beating=("host-0",))
    assert world.cluster.hosts["host-1"].lost
    assert why(world, "a") == "needs 4 GPUs on one host (0 free on the best); 1 of 2 workers would fit now"


def test_a_host_is_removed_by_force_though_a_waiting_job_kept_a_place_there(world: World) -> None:
    world.hang_up("host-0")
    assert "> reply host-0" in world.step(HostRemovalAsked(7, "ann", "host-0", force=True))
    assert "host-0" not in world.cluster.hosts
    world.join("host-2")
    assert placed(world.uncordon("host-1")) == ["a placed g2 on host-1 host-2"]


def test_a_place_is_given_back_once_over_a_restart_of_the_controller(world: World) -> None:
    world.drain("host-0")
    world.restart_controller()
    world.join("host-0")
    world.join("host-1")
    assert not world.cluster.hosts["host-0"].allocations and world.cluster.hosts["host-0"].drained
