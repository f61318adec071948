"""Secrets are kept, named by jobs and forgotten: what is decided, whose a name is, and what is never logged."""

from __future__ import annotations

import dataclasses

import pytest
from tests.scenarios.world import World, gang, inventory

from holdfast._session.assignment import SecretVariable
from holdfast_controller.core.access import secrets
from holdfast_controller.core.access.secrets import holder_of
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell.store import codec


@pytest.fixture
def world() -> World:
    made = World(hosts=1)
    made.beat("host-0", dataclasses.replace(made.cluster.hosts["host-0"].inventory, gives_secrets=True))
    return made


def step(world: World, incoming: st.Input) -> list[str]:
    """As the world tells it, and a refusal in its own words."""
    told = world.step(incoming)
    last = world.sent[-1]
    assert "canary" not in repr(world.log) + repr(world.sent) + codec.dump_entity(world.cluster.people)
    return [f"> refuse {last.error}"] if isinstance(last, act.Refuse) else told


def give(world: World, name: str = "wandb", holder: str = "user/ann", by: str = "ann") -> list[str]:
    return step(world, st.SecretGiven(1, by, holder, name, b"sealed-canary"))


def remove(world: World, name: str = "wandb", holder: str = "user/ann", *, force: bool = False) -> list[str]:
    return step(world, st.SecretRemovalAsked(2, "ann", holder, name, force))


def needing(holder: str = "user/ann", name: str = "wandb") -> Gang:
    made = gang(1)
    [pool] = made.pools
    task = dataclasses.replace(pool.task, secrets=(SecretVariable("KEY", secret=name, holder=holder),))
    return dataclasses.replace(made, pools=(dataclasses.replace(pool, task=task),))


def submission() -> st.JobSubmission:
    return st.JobSubmission(3, "ann", "", "job-1", JobPlan("job-1", needing(), "{}"))


def test_a_value_is_kept_in_the_commit_that_says_so_and_not_in_the_log(world: World) -> None:
    assert give(world) == ["secret wandb of user ann set by ann", "> keep user/ann/wandb", "> reply wandb"]
    assert list(world.cluster.people.secrets["user/ann"]) == ["wandb"]
    assert remove(world) == ["secret wandb of user ann removed by ann", "> forget user/ann/wandb", "> reply wandb"]
    assert world.cluster.people.secrets == {}


def test_the_owners_own_secret_goes_before_the_projects_and_nobody_elses_counts(world: World) -> None:
    give(world, holder="project/vision")
    give(world, holder="user/bob")
    people = world.cluster.people
    assert holder_of(people, "ann", "vision", "wandb") == "project/vision"
    assert holder_of(people, "bob", "vision", "wandb") == "user/bob"
    assert holder_of(people, "ann", "speech", "wandb") == holder_of(people, "ann", "vision", "other") == ""


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "x" * 64, "sk+other="])
def test_what_is_no_name_is_refused_and_not_repeated(world: World, name: str) -> None:
    [said] = give(world, name)
    assert "name: is no name of a secret (letters, digits" in said
    assert "sk+" not in said


def test_a_project_has_to_have_a_name(world: World) -> None:
    assert "project: is no name of a project" in give(world, holder="project/*")[0]


def test_secrets_of_one_holder_are_bounded_and_known_ones_can_be_set_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "MAX_OF_ONE", 3)
    monkeypatch.setattr(secrets, "MAX_SECRETS", 4)
    for number in range(3):
        give(world, f"s{number}")
    assert "user ann has 3 secrets already" in give(world, "more")[0]
    assert give(world, "s1")[-1] == "> reply s1"
    assert give(world, "more", holder="user/bob")[-1] == "> reply more"
    assert "there are 4 secrets already" in give(world, "more", holder="user/eve")[0]


def test_a_secret_that_jobs_need_is_removed_only_by_force(world: World) -> None:
    give(world)
    world.submit("job-1", needing())
    [said] = remove(world)
    assert said.startswith("> refuse It is needed at the next launch of job-1. ")
    assert "--force" in said
    assert remove(world, force=True)[-1] == "> reply wandb"


def test_a_secret_of_jobs_that_have_ended_is_free(world: World) -> None:
    give(world)
    world.submit("job-1", needing())
    world.cancel("job-1")
    world.report("job-1", 0, "EMPTY")
    assert world.cluster.jobs["job-1"].state is JobState.CANCELLED
    assert remove(world)[-1] == "> reply wandb"


def test_what_is_not_there_cannot_be_removed(world: World) -> None:
    assert remove(world) == ["> refuse User ann has no secret of that name. See: holdfast secret list"]


def test_a_job_with_secrets_goes_only_where_the_agent_gives_them() -> None:
    world = World(hosts=1)
    assert step(world, submission())[0].endswith(
        "it needs a host whose agent gives secrets; upgrade that of host-0 (ask for less, or add hosts)"
    )
    world.join("host-1", dataclasses.replace(inventory(name="host-1"), gives_secrets=True))
    step(world, submission())
    assert [place.host for place in world.cluster.jobs["job-1"].places] == ["host-1"]
