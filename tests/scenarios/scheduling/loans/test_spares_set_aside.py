"""A spare that is reserved for others, or soon drained, replaces no host of a job that would run into that."""

from __future__ import annotations

import pytest
from tests.scenarios.queue_stories import job_of
from tests.scenarios.scheduling.test_own_spares import lose, stop
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.gang import HostSelector
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.core.step.step import Policies


def loses_a_host(project: str = "", *, drained: bool = False) -> World:
    """A job on two hosts loses one; the third is a spare, and reserved for the project, or drained soon."""
    world = World(hosts=3, policies=Policies(secret_key=b"k", spares=(SpareRule("all", 1),)))
    world.submit("job", gang(2, replace_when_lost=True))
    world.run("job")
    (spare,) = world.cluster.spares
    if project:
        until, named = Wall(world.wall + 36_000.0), HostSelector(hosts=frozenset({spare}))
        world.step(ReservationAsked(0, Reservation("conference", project, NEVER, until, named)))
    if drained:
        world.maintain(spare, 600.0, 3600.0)
    lose(world, job_of(world, "job").places[1].host)
    stop(world, "job", 0)
    return world


def test_a_spare_that_is_reserved_for_another_project_is_left_to_it() -> None:
    world = loses_a_host("vision")
    assert world.state("job") is JobState.QUEUED
    world.step(ReservationDeletionAsked(0, "root", "conference"))
    assert [place.host for place in job_of(world, "job").places] == ["host-1", "host-0"]


def test_a_spare_that_is_drained_before_the_jobs_expected_end_is_not_taken() -> None:
    world = loses_a_host(drained=True)
    assert world.state("job") is JobState.QUEUED
    world.call_off("host-0")
    assert [place.host for place in job_of(world, "job").places] == ["host-1", "host-0"]


@pytest.mark.parametrize("project", ["", "default"])
def test_any_other_spare_is_taken_at_once(project: str) -> None:
    world = loses_a_host(project)
    assert [place.host for place in job_of(world, "job").places] == ["host-1", "host-0"]
