"""Drains that are called off, or put off, after ranks were warned of them: who saves and exits for that goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.queue_stories import placed
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.warning import WarningSignal

HOSTS = ("host-0", "host-1", "host-2")


def warned(workers: int = 2, *, planned: bool = False, **rules: object) -> World:
    """The ranks of job ``a`` were warned of the drain of host-1, which was to move them in 50 s."""
    world = World(hosts=3)
    world.submit("a", gang(workers, warning=WarningSignal(10, 60.0), **rules))  # type: ignore[arg-type]
    world.run("a")
    told = world.maintain("host-1", None, 600, deadline_s=50.0) if planned else world.drain("host-1", 50.0)
    assert "a warned g1 of the drain of host-1" in told
    world.wait(5, beating=HOSTS)
    return world


def uncordoned(world: World) -> None:
    world.uncordon("host-1")


def put_off(world: World) -> None:
    world.drain("host-1", 7200.0)


def for_good(world: World) -> None:
    world.drain("host-1")


@pytest.mark.parametrize("end", [uncordoned, put_off, for_good])
@pytest.mark.parametrize("code", [0, 3])
def test_ranks_that_exit_for_it_are_neither_a_success_nor_a_failure(
    end: Callable[[World], None], code: int
) -> None:
    world = warned()
    end(world)
    world.exit("a", 0, code)
    told = world.exit("a", 1, code)
    assert told[1].startswith("a leaves to RETRY: DRAINED of host host-1")
    world.report("a", 0, "EMPTY")
    assert placed(world.report("a", 1, "EMPTY")) == ["a placed g2 on host-0 host-2"]
    spent = world.cluster.jobs["a"].budgets.spent
    assert (spent.failures, spent.worker_restarts) == (0, {})


def test_maintenance_that_is_called_off_is_such_a_drain() -> None:
    world = warned(planned=True)
    world.call_off("host-1")
    world.exit("a", 0, 0)
    assert world.exit("a", 1, 0)[1].startswith("a leaves to RETRY: DRAINED of host host-1")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_when_its_deadline_comes_those_that_stayed_go_on_elsewhere_too(restarted: bool, code: int) -> None:
    """Else the primary's end would count for nothing, and no rank's failure would be answered."""
    world = warned(success=SuccessPolicy.PRIMARY)
    world.uncordon("host-1")
    assert world.exit("a", 0, code)[1:] == ["> host-0 ack"]
    if restarted:
        world.restart_controller()
        for worker, host in enumerate(HOSTS[:2]):
            world.join(host, places=[world.place("a", worker, "RUNNING")])
    told = world.wait(50, beating=world.sessions)
    assert told[0].startswith("a leaves to RETRY: DRAINED of host host-1")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_worker_that_had_finished_before_has_not_left_for_it(restarted: bool) -> None:
    world = World(hosts=3)
    world.submit("a", gang(3, warning=WarningSignal(10, 60.0)))
    world.run("a")
    world.exit("a", 2, 0)
    world.wait(30, beating=HOSTS)
    world.drain("host-1", 50.0)
    world.wait(5, beating=HOSTS)
    world.uncordon("host-1")
    if restarted:
        world.restart_controller()
        for worker, host in enumerate(HOSTS):
            world.join(host, places=[world.place("a", worker, "RUNNING")])
    assert not world.wait(100, beating=world.sessions)
    assert world.state("a") is JobState.RUNNING


def test_ranks_that_stay_beyond_its_deadline_end_as_any_others() -> None:
    world = warned()
    world.uncordon("host-1")
    assert not world.wait(100, beating=HOSTS)
    world.exit("a", 0, 0)
    assert "a ending SUCCEEDED" in world.exit("a", 1, 0)
    for worker in (0, 1):
        world.report("a", worker, "EMPTY")
    assert world.state("a") is JobState.SUCCEEDED


def test_the_next_generation_was_warned_of_nothing() -> None:
    world = warned()
    world.uncordon("host-1")
    world.restart("a")
    world.run("a")
    world.exit("a", 0, 0)
    assert "a ending SUCCEEDED" in world.exit("a", 1, 0)
