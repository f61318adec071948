"""Wall clocks that are set while jobs run: what has run, waited and been used is counted as if none had been."""

from __future__ import annotations

import pytest
from tests.scenarios.training import Training, hanging_gang
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.model.run_times import FEWEST, Basis
from holdfast_controller.core.step.share_commands import ShareAsked

HOUR_S, DAY_S = 3600.0, 86_400.0


def job_of(world: World, name: str = "a") -> Job:
    return world.cluster.jobs[name]


def leap(world: World, by_s: float) -> list[str]:
    """The clock is set, and a host beats."""
    world.jumped += by_s
    return world.beat("host-0")


def pause(world: World) -> None:
    world.pause("a")
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    assert job_of(world).state is JobState.PAUSED


def run_an_hour(world: World) -> None:
    """Job ``a`` of twelve hours runs for one."""
    world.submit("a", gang(1, timeout_s=12 * HOUR_S))
    world.run("a")
    world.wait(HOUR_S, beating=["host-0"])


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_clock_that_was_set_uses_up_no_timeout(by_s: float) -> None:
    world = World(hosts=1)
    run_an_hour(world)
    assert leap(world, by_s) == [f"clock leapt by {by_s:.0f} s"]
    assert leap(world, 0.0) == []
    pause(world)
    leap(world, -by_s)
    assert job_of(world).ran_s == HOUR_S
    world.resume("a")
    world.run("a")
    world.wait(10 * HOUR_S, beating=["host-0"])
    assert job_of(world).outcome is None
    world.wait(HOUR_S + 1.0, beating=["host-0"])
    assert job_of(world).outcome is JobState.FAILED
    error = job_of(world).error
    assert error is not None
    assert "timeout" in error.message


def test_many_small_steps_of_a_clock_are_counted_together() -> None:
    world = World(hosts=1)
    run_an_hour(world)
    lines = [line for _ in range(100) for line in leap(world, 9.0)]
    assert lines == ["clock leapt by 18 s"] * 50
    assert (
        f"{world.sentences[-1]}" == "the controller's clock went forward by 18 s at once: no duration counts that"
    )
    pause(world)
    assert job_of(world).ran_s == HOUR_S


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_controller_that_starts_after_its_clock_was_set_leaves_a_job_the_time_it_has(by_s: float) -> None:
    world = World(hosts=1)
    run_an_hour(world)
    leap(world, by_s)
    world.restart_controller()
    world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    world.wait(11 * HOUR_S - 60.0, beating=["host-0"])
    assert job_of(world).outcome is None
    world.wait(120.0, beating=["host-0"])
    assert job_of(world).outcome is JobState.FAILED


def test_a_clock_that_was_wrong_only_from_a_start_of_the_controller_on_uses_up_no_timeout() -> None:
    world = World(hosts=1)
    run_an_hour(world)
    world.restart_controller(set_by_s=-3650 * DAY_S)  # a machine whose battery is empty
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING")])[0] == "clock leapt by -315359999 s"
    world.wait(HOUR_S, beating=["host-0"])
    leap(world, 3650 * DAY_S)
    world.wait(HOUR_S, beating=["host-0"])
    pause(world)
    assert job_of(world).ran_s == 3 * HOUR_S  # all but the second without a controller


def test_a_clock_that_was_set_makes_no_use_of_gpus() -> None:
    world = World(hosts=2)
    world.step(ShareAsked(7, "root", "", 2.0))
    world.submit("a", gang(1))
    world.run("a")
    world.wait(30.0, beating=["host-0"])
    leap(world, DAY_S)
    world.wait(30.0, beating=["host-0"])
    pause(world)
    used = sum(each.gpu_s for each in world.cluster.shares.used.values())
    assert used == pytest.approx(4 * 60.0, rel=0.01)


def test_a_clock_that_was_set_back_keeps_what_was_used() -> None:
    world = World(hosts=1)
    run_an_hour(world)
    leap(world, -DAY_S)
    pause(world)
    used = world.cluster.shares.used_s(job_of(world).gang.project, 0, Wall(world.wall))
    assert used == pytest.approx(4 * HOUR_S, rel=0.01)


def test_estimates_learn_how_long_jobs_ran_though_the_clock_was_set() -> None:
    world = World(hosts=1)
    for number in range(FEWEST):
        name = f"train-{number}"
        world.submit(name, gang(1, timeout_s=100 * HOUR_S))
        world.run(name)
        world.wait(HOUR_S, beating=["host-0"])
        leap(world, DAY_S if number % 2 else -DAY_S)
        world.exit(name, 0)
        world.empty(name)
        assert world.state(name) is JobState.SUCCEEDED
    world.submit("train-9", gang(1, timeout_s=100 * HOUR_S))
    found = world.cluster.run_times.estimate(job_of(world, "train-9"))
    assert (found.seconds, found.basis) == (HOUR_S, Basis.LEARNED)


def test_a_clock_that_was_set_back_while_no_controller_ran_gives_a_job_no_time() -> None:
    world = World(hosts=1)
    run_an_hour(world)
    world.restart_controller(set_by_s=-DAY_S)
    world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    world.wait(11 * HOUR_S + 60.0, beating=["host-0"])
    assert job_of(world).outcome is JobState.FAILED


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_job_that_waits_may_wait_as_long_as_it_said_after_a_start_too(by_s: float) -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100 * HOUR_S))
    world.run("a")
    world.submit("b", gang(1, max_wait_s=2 * HOUR_S))
    world.wait(HOUR_S, beating=["host-0"])
    leap(world, by_s)
    world.restart_controller()
    world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    world.wait(HOUR_S - 60.0, beating=["host-0"])
    assert world.state("b") is JobState.QUEUED
    world.wait(120.0, beating=["host-0"])
    assert world.state("b") is JobState.EXPIRED


def test_a_recovery_takes_no_longer_because_the_clock_was_set() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, max_worker_restarts=3))
    world.run("a")
    world.exit("a", 0, 1)
    leap(world, DAY_S)
    world.wait(60.0, beating=["host-0"])
    world.run("a")
    recovery = job_of(world).recoveries[0]
    assert recovery.ended_at is not None
    assert 0.0 < recovery.ended_at - recovery.started_at < 120.0
    assert 0.0 < recovery.ended_at - recovery.failed_at < 120.0


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_drain_waits_for_a_checkpoint_that_was_made_since_whatever_the_clock_does(by_s: float) -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    training = Training(world, beating=("host-0",), checkpoint_s=world.mono)
    training.trains()
    world.drain("host-0", at_checkpoint=True)
    world.jumped += by_s
    training.trains()
    assert job_of(world).last_end is None, "its newest checkpoint is older than the drain"
    training.checkpoint_s = world.mono
    training.trains(5.0)
    assert job_of(world).last_end is EndReason.DRAINED


def test_a_hang_costs_no_day_because_the_clock_was_set() -> None:
    world = World(hosts=2)
    world.submit("a", hanging_gang())
    world.run("a")
    training = Training(world)
    training.trains(900.0)
    lines: list[str] = []
    while not any("hang" in line for line in lines):
        lines = training.stands_still(5.0)
    world.jumped += DAY_S
    training.stands_still(600.0)
    for worker in range(2):
        world.evidence("a", worker, training.dumps(worker))
    training.stands_still(900.0)
    recovery = job_of(world).recoveries[-1]
    assert recovery.detect_s is not None
    assert 0.0 < recovery.detect_s + recovery.diagnose_s < 3600.0


def test_a_job_that_is_promised_a_start_is_not_overdue_because_the_clock_was_set() -> None:
    world = World(hosts=1)
    world.cluster.promised["b"] = Wall(world.wall + 60.0)
    world.beat("host-0")
    leap(world, DAY_S)
    assert world.cluster.promised["b"] == pytest.approx(world.wall + 60.0)
