"""What a person reads of a job that ends, fails or is paused while it is to be placed again: that it wasn't."""

from __future__ import annotations

import pytest
from tests.scenarios.queue_stories import why
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.views.job_summary import Summary, summary_of


def moving(**rules: object) -> World:
    """Job ``a`` leaves host-1, and no other host is there for it."""
    world = World(hosts=2)
    world.submit("a", gang(**rules))  # type: ignore[arg-type]
    world.run("a")
    world.drain("host-1", 0.0)
    world.wait(1, beating=world.sessions)
    return world


def told(world: World) -> Summary:
    now = Now(Mono(world.mono), Wall(world.wall))
    return summary_of(world.cluster, world.cluster.jobs["a"], world.reactor.queue_view(now), now)


@pytest.mark.parametrize("what", ["cancelled", "expired", "paused and cancelled"])
def test_a_job_that_ends_while_it_leaves_its_hosts_is_not_said_to_be_placed_again(what: str) -> None:
    world = moving(max_wait_s=60.0)
    if what == "paused and cancelled":
        world.pause("a")
    if what == "expired":
        world.wait(100, beating=world.sessions)
    else:
        world.cancel("a")
    outcome = "EXPIRED" if what == "expired" else "CANCELLED"
    assert why(world, "a") == "waits for its workers to be gone from host-0, host-1"
    assert told(world).health == f"Ends as {outcome}: waits for its workers to be gone from host-0, host-1"
    assert told(world).done == "It was to be placed again, and its end was decided before"
    world.empty("a")
    assert world.state("a").name == outcome
    assert told(world).done == "It was to be placed again, and its end was decided before"


def test_a_job_that_finds_no_room_after_a_move_was_not_relaunched() -> None:
    world = moving(waits=False)
    world.empty("a")
    world.wait(100, beating=world.sessions)
    assert world.state("a").name == "FAILED"
    assert told(world).done == "It was not relaunched"


def test_a_job_that_is_resumed_waits_to_be_placed_again_until_it_is() -> None:
    world = moving()
    world.pause("a")
    world.empty("a")
    world.resume("a")
    assert told(world).done.startswith("Waits to be placed again in part")
    world.uncordon("host-1")
    assert world.state("a").name == "PENDING"
    assert told(world).done.startswith("Placed again in part")
