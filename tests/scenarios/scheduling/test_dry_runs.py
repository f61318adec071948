"""A dry run tells what a submission would come to, in the same words, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.scenarios.invariants import durable
from tests.scenarios.queue_stories import cpu, job_of, policies, why
from tests.scenarios.world import World, gang

from holdfast.errors import AccountDenied, HoldfastError, NeverFits, TooMany
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.fair_share.turns import ahead_of
from holdfast_controller.core.scheduling.projections.dry_run import DryRun, dry_run
from holdfast_controller.core.step.commands import JobSubmission


def tried(world: World, what: Gang) -> DryRun:
    """The dry run of a job; the state is as before."""
    before, log = durable(world.cluster), len(world.log)
    asked = JobSubmission(0, "ann", "", "new", JobPlan("new", what, "{}"))
    found = dry_run(world.cluster, asked, world.reactor.policies, Now(Mono(world.mono), Wall(world.wall)))
    assert durable(world.cluster) == before and len(world.log) == log
    return found


def empty() -> World:
    return World(hosts=2)


def half_full() -> World:
    world = World(hosts=2)
    world.submit("a", gang(1))
    return world


def full() -> World:
    world = World(hosts=2)
    world.submit("a", gang(2))
    return world


def one_waits() -> World:
    """For both hosts; what is free is kept for it."""
    world = half_full()
    world.submit("large", gang(2))
    return world


def over_quota() -> World:
    world = World(hosts=4, policies=policies(any=Quota(gpus=8)))
    world.submit("a", gang(2))
    return world


def used_up_by_those_ahead() -> World:
    world = World(hosts=2, policies=policies(any=Quota(gpus=8)))
    world.cordon("host-1")
    world.submit("a", gang(2))
    return world


def cordoned() -> World:
    world = World(hosts=2)
    world.cordon("host-0")
    return world


def several() -> World:
    world = World(hosts=3, policies=policies(any=Quota(gpus=12, running_jobs=3)))
    world.submit("a", gang(1, gpus=2))
    world.submit("b", gang(3))
    world.submit("c", cpu(1))
    return world


WORLDS = [empty, half_full, full, one_waits, over_quota, used_up_by_those_ahead, cordoned, several]
GANGS = [
    gang(1),
    gang(2),
    gang(1, gpus=2),
    cpu(1),
    gang(1, priority=3),
    gang(2, priority=3),
    gang(1, strategy=Strategy.SPOT),
]


@pytest.mark.parametrize("what", range(len(GANGS)))
@pytest.mark.parametrize("made", WORLDS)
def test_a_submission_comes_to_what_the_dry_run_said(made: Callable[[], World], what: int) -> None:
    world = made()
    found = tried(world, GANGS[what])
    world.submit("new", GANGS[what])
    job = job_of(world, "new")
    assert tuple(job.places) == found.places
    if found.places:
        assert found.wait_reason == "" and not found.gives_way
    else:
        assert ahead_of(world.cluster, world.cluster.jobs["new"]) == found.ahead
        reason = why(world, "new")
        assert found.wait_reason == reason or reason.startswith("behind ")


def test_room_that_is_kept_for_a_job_ahead_is_the_reason() -> None:
    found = tried(one_waits(), gang(1))
    assert found.wait_reason == "what it needs is kept for large, which is ahead of it in the queue"
    assert found.ahead == 1


def test_spot_jobs_that_would_give_way_are_named() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1, strategy=Strategy.SPOT))
    world.submit("b", gang(1))
    found = tried(world, gang(1))
    assert (found.gives_way, found.places) == (("a",), ())
    assert tried(world, gang(1, strategy=Strategy.SPOT)).gives_way == ()


@pytest.mark.parametrize(
    ("world", "what", "refusal"),
    [
        (empty, gang(3), NeverFits),
        (over_quota, gang(3), NeverFits),
        (empty, gang(1).running_as("root"), AccountDenied),
    ],
)
def test_what_would_be_refused_is_refused(
    world: Callable[[], World], what: Gang, refusal: type[HoldfastError]
) -> None:
    with pytest.raises(refusal):
        tried(world(), what)


def test_a_full_queue_refuses_a_dry_run_too() -> None:
    world = World(hosts=1, policies=replace(policies(), waiting_jobs_per_user=1))
    world.submit("a", gang(1))
    world.submit("b", gang(1))
    with pytest.raises(TooMany):
        tried(world, gang(1))


def test_without_hosts_it_says_so() -> None:
    assert tried(World(), gang(1)).wait_reason == "no host has joined yet"
