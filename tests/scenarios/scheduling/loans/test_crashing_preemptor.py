"""A job that has SPOT jobs stopped for it and crashes at once: how long it waits until that happens again."""

from __future__ import annotations

import dataclasses

from tests.scenarios.queue_stories import finish, placed, why
from tests.scenarios.scheduling.loans.test_spot_loans import HOUR_S, QUIET, SPOT, preempted
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.clock import Wall, time_of_day
from holdfast_controller.core.model.gang import Gang, Retries


def patient() -> Gang:
    """A job that is placed again a minute after each failure."""
    retries = Retries(job_retries=9, backoff_s=60.0, backoff_limit_s=60.0)
    return dataclasses.replace(gang(1, max_worker_restarts=0), retries=retries)


def crashing() -> World:
    """A STANDARD job has stopped a SPOT job, crashed at once, and the SPOT job runs again while that one backs off."""
    world = World(hosts=1, policies=QUIET)
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    assert preempted(world.submit("b", patient()))
    world.report("s", 0, "EMPTY")
    crash(world)
    return world


def crash(world: World) -> None:
    world.run("b")
    world.exit("b", 0, 1)
    told = world.report("b", 0, "EMPTY")
    assert [words for words in placed(told) if words.startswith("s ")], told
    world.run("s")


def test_job_that_crashed_at_once_stops_no_other_until_a_while_has_passed() -> None:
    world = crashing()
    until = time_of_day(Wall(world.wall + 600))
    assert not preempted(world.wait(61)), "its back-off is over"
    assert why(world, "b").endswith(
        f"; it failed soon after its start, so no other job is stopped for it before {until}"
    )
    assert not preempted(world.wait(530))
    assert preempted(world.wait(10)) == ["s leaves to RETRY: PREEMPTED of job b"]


def test_wait_of_a_crashing_job_doubles_and_ends_at_four_hours() -> None:
    world, waits = crashing(), []
    for _ in range(7):
        began = world.mono
        while not preempted(world.wait(60)):
            assert world.mono - began < 5 * HOUR_S
        waits.append(world.mono - began)
        world.report("s", 0, "EMPTY")
        crash(world)
    assert waits == [600, 1200, 2400, 4800, 9600, 14400, 14400]


def test_job_that_crashed_at_once_starts_in_free_hosts_as_ever() -> None:
    world = crashing()
    world.wait(61)
    assert placed(finish(world, "s")) == ["b placed g2 on host-0"]


def test_wait_of_a_crashing_job_goes_on_over_a_restart_of_the_controller() -> None:
    world = crashing()
    world.restart_controller(down_s=100)
    world.join("host-0", places=[world.place("s", 0, "RUNNING")])
    assert not preempted(world.wait(490))
    assert preempted(world.wait(10)) == ["s leaves to RETRY: PREEMPTED of job b"]


def test_job_that_crashed_after_a_long_run_takes_its_room_at_once() -> None:
    world = World(hosts=1, policies=QUIET)
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    world.submit("b", patient())
    world.report("s", 0, "EMPTY")
    world.run("b")
    world.wait(700)
    world.exit("b", 0, 1)
    world.report("b", 0, "EMPTY")
    assert preempted(world.wait(61)) == ["s leaves to RETRY: PREEMPTED of job b"]
