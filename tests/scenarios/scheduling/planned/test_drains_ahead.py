"""No job starts on a host that is to be drained before the job is expected to end; shorter and SPOT jobs do."""

from __future__ import annotations

import random

import pytest
from tests.scenarios.queue_stories import why
from tests.scenarios.world import World, gang

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.open_hosts import AHEAD_S
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

HOUR = 120.0
"""Short ones, since hosts beat all the while."""


def cluster(hosts: int, **policies: object) -> World:
    return World(hosts, Policies(secret_key=b"k", **{"backfill": Backfill.PROJECTED, **policies}))  # type: ignore[arg-type]


def runs(hours: float, workers: int = 1, **rules: object) -> Gang:
    """A job that says how long it takes."""
    return gang(workers, expected_s=hours * HOUR, timeout_s=7 * 24 * HOUR, **rules)  # type: ignore[arg-type]


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in world.cluster.jobs[job].places]


def test_a_job_that_would_run_into_the_drain_takes_another_host_and_a_short_one_takes_it() -> None:
    world = cluster(3)
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("long", runs(3))
    world.submit("short", runs(1))
    assert (hosts_of(world, "long"), hosts_of(world, "short")) == (["host-1"], ["host-0"])


def test_where_no_other_host_has_room_it_waits_and_says_for_which_drain() -> None:
    world = cluster(1)
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("long", runs(3))
    assert world.state("long") is JobState.QUEUED
    assert "host-0 is drained from " in why(world, "long")
    assert why(world, "long").endswith("on, before the job is expected to end")
    world.wait(4 * HOUR + 60, beating=["host-0"])
    assert world.state("long") is JobState.PENDING, "the maintenance is over"


def test_a_job_without_an_estimate_runs_for_its_timeout() -> None:
    world = cluster(2)
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("unknown", gang(1))
    world.submit("bounded", gang(1, timeout_s=HOUR))
    assert (hosts_of(world, "unknown"), hosts_of(world, "bounded")) == (["host-1"], ["host-0"])


@pytest.mark.parametrize("backfill", [Backfill.PROJECTED, Backfill.LOAN])
def test_shorter_jobs_behind_one_that_is_kept_off_start_on_the_host(backfill: Backfill) -> None:
    world = cluster(2, backfill=backfill)
    world.submit("busy", runs(10))
    world.run("busy")
    free = next(name for name in world.cluster.hosts if name not in hosts_of(world, "busy"))
    world.maintain(free, 2 * HOUR, 4 * HOUR)
    for name, hours in (("long-0", 30.0), ("long-1", 30.0), ("longer", 40.0), ("short", 1.0)):
        world.submit(name, runs(hours))
    assert [world.state(f"long-{number}") for number in (0, 1)] == [JobState.QUEUED] * 2
    assert hosts_of(world, "short") == [free]


def test_a_spot_job_has_the_host_until_then() -> None:
    world = cluster(1)
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("lent", runs(30, strategy=Strategy.SPOT))
    assert hosts_of(world, "lent") == ["host-0"]


def test_maintenance_that_leaves_the_work_and_a_drain_after_more_than_a_day_keep_nothing_off() -> None:
    world = cluster(1)
    world.maintain("host-0", HOUR, 4 * HOUR, drain=False)
    world.submit("a", gang(1, gpus=1))
    world.call_off("host-0")
    world.maintain("host-0", AHEAD_S + 60, AHEAD_S + HOUR)
    world.submit("b", gang(1, gpus=1))
    world.wait(120, beating=["host-0"])
    world.submit("c", gang(1, gpus=1))
    assert [world.state(name) for name in "abc"] == [JobState.PENDING, JobState.PENDING, JobState.QUEUED]


def test_a_drain_that_is_called_off_lets_the_job_start_at_once() -> None:
    world = cluster(1)
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("long", runs(3))
    assert "long placed g1 on host-0" in world.call_off("host-0")


def test_a_gang_that_is_restarted_keeps_its_places_though_a_drain_is_ahead() -> None:
    world = cluster(3)
    world.submit("a", runs(20, 2, retries=3, replace_when_lost=True))
    world.run("a")
    stays, gone = hosts_of(world, "a")
    world.maintain(stays, 2 * HOUR, 4 * HOUR)
    world.hang_up(gone)
    world.wait(80, beating=[name for name in world.cluster.hosts if name != gone])
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert hosts_of(world, "a")[0] == stays and hosts_of(world, "a")[1] not in (stays, gone)


def test_a_guarantee_and_a_preemption_lead_to_no_such_host_either() -> None:
    world = cluster(2)
    world.submit("lent", runs(30, 2, strategy=Strategy.SPOT))
    world.run("lent")
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("long", runs(3))
    for worker in (0, 1):
        world.exit("lent", worker, "STOPPED:15")
        world.report("lent", worker, "EMPTY")
    assert hosts_of(world, "long") == ["host-1"]


def test_a_dry_run_says_that_it_would_wait() -> None:
    world = cluster(1)
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    now = Now(Mono(world.mono), Wall(world.wall))
    asked = st.JobSubmission(900, "ann", "", "x", JobPlan("x", runs(3), "{}"))
    assert not dry_run(world.cluster, asked, world.policies, now).places
    short = st.JobSubmission(900, "ann", "", "x", JobPlan("x", runs(1), "{}"))
    assert dry_run(world.cluster, short, world.policies, now).places


@pytest.mark.parametrize("seed", range(12))
def test_no_job_was_placed_where_a_drain_that_was_planned_then_would_end_it(seed: int) -> None:
    """From the log alone: for each placement the drains that were planned by then, and the time that was declared."""
    dice = random.Random(seed)
    rules = (SpareRule("any", 1),) if dice.random() < 0.3 else ()
    world = cluster(5, backfill=dice.choice(list(Backfill)), spares=rules)
    planned: dict[str, float] = {}
    asked: dict[str, Gang] = {}
    began = 0
    for number in range(50):
        what = dice.choice(["submit", "submit", "submit", "plan", "call off", "end", "wait"])
        if what == "submit":
            strategy = dice.choice([Strategy.STANDARD, Strategy.STANDARD, Strategy.SPOT])
            workers, gpus = dice.choice([1, 1, 2]), dice.choice([1, 2, 4])
            asked[f"job-{number}"] = runs(dice.choice([0.5, 2.0, 8.0, 30.0]), workers, gpus=gpus, strategy=strategy)
            world.submit(f"job-{number}", asked[f"job-{number}"])
        elif what == "plan" and (hosts := [n for n, h in world.cluster.hosts.items() if h.maintenance is None]):
            start = dice.uniform(0.2, 20.0) * HOUR
            world.maintain(dice.choice(hosts), start, start + HOUR)
        elif what == "call off" and (hosts := [n for n, h in world.cluster.hosts.items() if h.maintenance]):
            world.call_off(dice.choice(hosts))
        elif what == "end" and (
            live := [job.id for job in world.cluster.jobs.values() if job.places and not job.terminal]
        ):
            name = dice.choice(live)
            world.cancel(name)
            for index in world.cluster.jobs[name].awaited:
                world.report(name, index, "EMPTY")
        else:
            world.wait(dice.uniform(60.0, 2 * HOUR), beating=world.cluster.hosts)
        for event in world.log[began:]:
            if isinstance(event, ev.MaintenancePlanned):
                planned[event.host] = event.maintenance.start
            elif isinstance(event, ev.MaintenanceBegan | ev.MaintenanceEnded):
                planned.pop(event.host, None)
            elif isinstance(event, ev.JobPlaced) and asked[event.job_id].strategy is not Strategy.SPOT:
                until = event.at + asked[event.job_id].expected_s
                wrong = [place.host for place in event.places if event.at < planned.get(place.host, until) < until]
                assert not wrong or event.attempt > 1, f"{event.job_id} until {until} on {wrong}"
        began = len(world.log)
    assert asked
