"""A job of a project that the caller may not see is, as one to run after, a job that isn't there."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.submit import refusal
from holdfast_controller.core.step.commands import JobSubmission
from holdfast_controller.shell.services.spec_checks import unseen_dependencies

POOL = {"replicaCount": 1, "processSpec": {"command": ["true"]}}


@pytest.fixture
def world() -> World:
    world = World(hosts=1)
    world.submit("hidden", gang(1, project="secret"))
    world.submit("seen", gang(1, project="vision"))
    world.submit("bad", gang(1, project="vision"))
    world.cancel("bad")
    return world


def refused(world: World, *names: str, sees: str = "vision") -> str:
    after = [{"job": name} for name in names]
    job = spec.parse({"jobSpec": {"workerPoolSpecs": [POOL], "scheduling": {"after": after}}, "displayName": "x"})
    unseen = unseen_dependencies(job.job_spec, world.cluster, sees.split().__contains__)
    what = gang(1, after=tuple(map(Dependency, names)))
    asked = JobSubmission(0, "ann", "", "new", JobPlan("new", what, "{}"), unseen=unseen)
    error = refusal(world.cluster, asked, world.policies)
    assert error is None or isinstance(error, InvalidSpec)
    return "" if error is None else str(error)


def test_its_refusal_is_that_of_an_id_that_names_no_job(world: World) -> None:
    assert "jobSpec.scheduling.after[1].job: there is no job 'hidden'" in refused(world, "seen", "hidden")
    assert not refused(world, "seen", "hidden", sees="vision secret")


def test_an_array_is_as_little_seen_as_a_job(world: World) -> None:
    hidden = JobSubmission(0, "bob", "", "sweep", JobPlan("x", gang(1, project="secret"), "{}", indices=(1, 2)))
    world.step(hidden)
    absent = refused(world, "absent")
    assert refused(world, "sweep") == absent.replace("absent", "sweep")
    assert refused(world, "sweep-1") == absent.replace("absent", "sweep-1")
    assert not refused(world, "sweep", sees="secret")


def test_what_else_is_wrong_is_told_as_if_it_were_not_there(world: World) -> None:
    absent, hidden = refused(world, "absent", "no-such", "bad"), refused(world, "hidden", "no-such", "bad")
    assert "'no-such'" in absent and "bad ended as CANCELLED" in absent
    assert hidden == absent.replace("absent", "hidden")
