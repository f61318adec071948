"""Gangs near each other: where they wait, whom they stop, and where a worker goes whose host is lost."""

from __future__ import annotations

from typing import Any

from tests.scenarios.queue_stories import finish, placed
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.step.actions import Refuse

LEVELS = ("pod", "rack")


def racks(**hosts: str) -> World:
    """Hosts of four GPUs by name, each in a rack of one pod; without one where it is empty."""
    world = World()
    for name, rack in hosts.items():
        world.join(name, labels={"pod": "p", "rack": rack} if rack else {"pod": "p"})
    return world


def near(workers: int, *, required: bool = True, within: str = "rack", **rules: Any) -> Any:
    return gang(workers, near=Locality(LEVELS, within, required), **rules)


def hosts_of(world: World, job: str) -> set[str]:
    return {place.host for place in world.cluster.jobs[job].places}


def test_a_gang_waits_for_its_rack_says_so_and_keeps_it_from_those_behind() -> None:
    world = racks(h1="a", h2="b", h3="a", h4="b")
    world.submit("one", gang(1))
    world.submit("two", gang(1, near=None))
    assert hosts_of(world, "one") | hosts_of(world, "two") == {"h1", "h2"}
    said = world.submit("whole", near(2))
    assert "whole queued: needs room within one rack, and only hosts further apart have it" in said
    assert not placed(world.submit("behind", gang(1))), "h3 and h4 are kept for the gang"
    found = placed(finish(world, "one"))
    assert found[0] == "whole placed g1 on h1 h3"
    assert found[1] == "behind placed g1 on h4"


def test_a_gang_that_only_prefers_a_rack_starts_at_once() -> None:
    world = racks(h1="a", h2="b")
    assert placed(world.submit("spread", near(2, required=False)))


def test_a_gang_that_no_rack_could_hold_is_refused_with_the_reason() -> None:
    world = racks(h1="a", h2="b")
    assert world.submit("large", near(2)) == ["> refuse NEVER_FITS"]
    [refused] = [action.error for action in world.sent if isinstance(action, Refuse)]
    assert "needs room within one rack, and only hosts further apart have it" in str(refused)


def test_a_host_without_the_label_is_never_taken_for_what_has_to_be_near() -> None:
    world = racks(h1="", h2="", h3="a", h4="a")
    world.submit("one", near(2))
    assert hosts_of(world, "one") == {"h3", "h4"}


def test_only_what_frees_a_whole_rack_is_stopped() -> None:
    world = racks(h1="a", h2="b", h3="a", h4="b")
    for number in (1, 2):
        world.submit(f"spot-{number}", gang(1, strategy=Strategy.SPOT))
    world.submit("std", gang(1))
    assert hosts_of(world, "spot-1") | hosts_of(world, "spot-2") == {"h1", "h2"}
    assert hosts_of(world, "std") == {"h3"}
    said = world.submit("whole", near(2))
    stopped = [line for line in said if "PREEMPTED" in line]
    assert len(stopped) == 1 and "spot-2" in stopped[0], "that in rack b, whose other host is free"


def moved_off(world: World, host: str) -> set[str]:
    """Where the job ``a`` of two workers is, once the host of its second is drained."""
    world.drain(host, 0.0)
    world.wait(1.0, beating=tuple(world.sessions))
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    for worker in (0, 1):
        world.report("a", worker, "EMPTY")
    return hosts_of(world, "a")


def test_a_worker_s_new_host_is_in_the_rack_of_the_others() -> None:
    world = racks(h1="a", h2="b", h3="a", h4="a")
    world.submit("a", near(2))
    world.run("a")
    assert hosts_of(world, "a") == {"h1", "h3"}
    assert moved_off(world, "h3") == {"h1", "h4"}, "not h2, which is free as well and comes first by name"


def test_the_whole_gang_moves_where_its_rack_has_no_other_host() -> None:
    world = racks(h1="a", h2="a", h3="b", h4="b")
    world.submit("a", near(2))
    world.run("a")
    assert moved_off(world, "h2") == {"h3", "h4"}


def test_what_only_prefers_a_rack_keeps_its_other_places_and_takes_the_next_best() -> None:
    world = racks(h1="a", h2="a", h3="b", h4="b")
    world.submit("a", near(2, required=False))
    world.run("a")
    assert moved_off(world, "h2") == {"h1", "h3"}
