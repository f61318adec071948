"""Hosts that are in maintenance, or will be, or are reserved for a time: starts are projected past it."""

from __future__ import annotations

import dataclasses
import os
import random

import pytest
from bench.fleet.reactor import EPOCH
from tests.scenarios.hosts.test_faulty_gpus import XID_95, faulty
from tests.scenarios.queue_stories import finish, job_of, placed
from tests.scenarios.scheduling.test_projected_starts import QUIET, Watched, lasting, why
from tests.scenarios.world import World

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import HostSelector, Strategy
from holdfast_controller.core.model.hosts.host import Maintenance
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.reservation_commands import ReservationAsked
from holdfast_controller.core.step.step import Policies

HOUR = 3600.0
MORE = int(os.environ.get("HOLDFAST_QUEUES", "16"))
"""Random queues."""
ORDERED = pytest.mark.parametrize("backfill", [Backfill.PROJECTED, Backfill.LOAN])


def waits_for_maintenance(policies: Policies = QUIET, end: float | None = 3 * HOUR) -> World:
    """One of two hosts is in maintenance, and a gang waits for both."""
    world = World(hosts=2, policies=policies)
    world.maintain("host-0", None, end)
    world.submit("both", lasting(2, workers=2))
    return world


@ORDERED
def test_job_that_ends_before_a_host_is_back_passes_the_gang_that_waits_for_it(backfill: Backfill) -> None:
    world = waits_for_maintenance(dataclasses.replace(QUIET, backfill=backfill))
    assert placed(world.submit("short", lasting(2)))
    world.run("short")
    world.wait(2 * HOUR, beating=["host-0", "host-1"])
    finish(world, "short")
    world.wait(HOUR + 60, beating=["host-0", "host-1"])
    assert job_of(world, "both").state is JobState.PENDING


def test_one_that_lasts_until_after_that_waits_behind_the_gang() -> None:
    world = waits_for_maintenance()
    assert not placed(world.submit("long", lasting(4)))


def test_start_after_maintenance_says_that_it_rests_on_its_planned_end() -> None:
    world = waits_for_maintenance()
    assert "expected to start about " in why(world, "both")
    assert why(world, "both").endswith(", from the planned end of maintenance on host-0")


@pytest.mark.parametrize("besides", [False, True])
def test_host_that_is_not_known_to_come_back_gives_no_start(besides: bool) -> None:
    world = waits_for_maintenance(end=3 * HOUR if besides else None)
    if besides:
        world.wait(1)
        world.cordon("host-0", "a broken fan")
    assert not placed(world.submit("short", lasting(1)))
    assert "expected to start" not in why(world, "both")


# --- What is planned ----------------------------------------------------------------------------------------------


@ORDERED
def test_shorter_jobs_have_all_hosts_until_the_maintenance_that_a_gang_would_run_into(backfill: Backfill) -> None:
    world = World(hosts=4, policies=dataclasses.replace(QUIET, backfill=backfill))
    world.maintain("host-0", 2 * HOUR, 4 * HOUR)
    world.submit("gang", lasting(3, workers=4))
    assert all(placed(world.submit(f"short-{number}", lasting(1))) for number in range(4))
    assert not placed(world.submit("fifth", lasting(1)))
    assert "planned end of maintenance on host-0" in why(world, "gang")


def test_a_gang_that_ends_before_the_maintenance_starts_once_it_is_its_turn() -> None:
    world = World(hosts=2, policies=QUIET)
    world.maintain("host-0", 4 * HOUR, 6 * HOUR)
    world.submit("busy", lasting(1))
    world.run("busy")
    world.submit("gang", lasting(2, workers=2))
    assert why(world, "gang").endswith("declared duration of busy")
    assert not placed(world.submit("longer", lasting(2))), "it would delay the gang past the maintenance"
    finish(world, "busy")
    assert job_of(world, "gang").state is JobState.PENDING


def test_starts_of_others_are_projected_past_a_reservation() -> None:
    world = World(hosts=2, policies=QUIET)
    begins, ends = Wall(world.wall + HOUR), Wall(world.wall + 4 * HOUR)
    world.step(
        ReservationAsked(1, Reservation("talk", "vision", begins, ends, HostSelector(frozenset({"host-0"}))))
    )
    world.submit("gang", lasting(2, workers=2))
    assert placed(world.submit("short", lasting(1)))
    assert placed(world.submit("beside", lasting(3)))
    assert why(world, "gang").endswith("the end of the reservation of host-0")


def test_a_revocable_gang_starts_though_a_drain_is_near() -> None:
    world = World(hosts=2, policies=QUIET)
    world.maintain("host-0", HOUR, 2 * HOUR)
    assert placed(world.submit("spot", lasting(3, workers=2, strategy=Strategy.SPOT)))


# --- What no one knows the end of ---------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["cordoned", "lost", "with a faulty GPU"])
def test_the_longer_a_start_is_unknown_the_longer_the_jobs_that_pass(broken: str) -> None:
    others = [f"host-{number}" for number in range(1, 4)]
    world = World(hosts=4, policies=QUIET)
    if broken == "cordoned":
        world.cordon("host-0")
    elif broken == "lost":
        world.hang_up("host-0")
        world.wait(300, beating=others)
    else:
        world.join("host-0", faulty("host-0", XID_95))
    world.submit("gang", lasting(3, workers=4))
    tries = [world.submit(f"early-{hours}", lasting(hours)) for hours in (1, 24)]
    assert not any(map(placed, tries))
    told = world.wait(HOUR / 24 + 120, beating=others)
    assert [words.split()[0] for words in placed(told)] == ["early-1"]
    told = world.wait(HOUR, beating=others)
    assert [words.split()[0] for words in placed(told)] == ["early-24"]


def test_once_the_host_is_back_no_one_delays_the_gang_any_more() -> None:
    others = ["host-1"]
    world = World(hosts=2, policies=QUIET)
    world.cordon("host-0")
    world.submit("gang", lasting(3, workers=2))
    world.wait(HOUR, beating=others)
    assert placed(world.submit("short", lasting(2)))
    world.run("short")
    world.uncordon("host-0")
    assert why(world, "gang").endswith("declared duration of short")
    assert not placed(world.submit("longer", lasting(3)))
    assert placed(world.submit("as-long", lasting(2)))
    assert not world.cluster.unprojected


# --- The promise --------------------------------------------------------------------------------------------------


class Maintained(Watched):
    """The same with maintenance of some hosts, planned before all else."""

    def __init__(self, seed: int, sizes: tuple[int, ...], drain: bool) -> None:
        # The wall clock is looked at each minute.
        super().__init__(seed, sizes, late_s=61.0)
        dice = random.Random(f"maintained {seed}")
        for host in dice.sample(sorted(self.cluster.hosts), 2):
            start = dice.uniform(1_000, 40_000)
            begins, ends = (Wall(EPOCH + self.now + at) for at in (start, start + dice.uniform(600, 10_000)))
            self.step(st.MaintenanceAsked(1, host, Maintenance(begins, ends, "disk", "ann", drain, 0.0)))


@pytest.mark.parametrize("drain", [True, False])
def test_first_job_starts_no_later_than_projected_past_maintenance(drain: bool) -> None:
    for seed in range(MORE // 2):
        Maintained(seed, (1, 1, 2, 4, 8, 16, 32), drain).run()
