"""As which account of the hosts a job runs: what admins say, what jobs may ask for, and that it stays so."""

from __future__ import annotations

import dataclasses

import pytest
from tests.scenarios.world import World, gang, inventory

from holdfast.errors import AccountDenied
from holdfast_controller.core.model.accounts.users import Role, RunAs
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

ABLE = dataclasses.replace(inventory(), no_accounts="")


def a_world(run_as: RunAs = RunAs.SERVICE) -> World:
    made = World(policies=Policies(secret_key=b"k", admins=frozenset({"root"}), run_as=run_as))
    for name in ("host-0", "host-1"):
        made.join(name, ABLE)
    made.step(st.RoleAsked(1, "root", "ann", "*", Role.USER))
    return made


@pytest.fixture
def world() -> World:
    return a_world()


def set_accounts(world: World, *accounts: str, user: str = "ann") -> list[str]:
    return world.step(st.AccountsAsked(2, "root", user, accounts))


def submit(world: World, job: str, wanted: str = "", owner: str = "ann") -> str:
    """The account that the hosts are told of, or why there is no such job."""
    what = gang(1, gpus=1)
    world.submit(job, what.running_as(wanted) if wanted else what, owner=owner)
    last = world.sent[-1]
    if isinstance(last, act.Refuse):
        assert isinstance(last.error, AccountDenied)
        assert job not in world.cluster.jobs
        return str(last.error)
    return told(world, job)


def told(world: World, job: str) -> str:
    """The account in the newest order to a host."""
    orders = [a.assignment for a in world.sent if isinstance(a, act.Assign) and a.assignment.key.job == job]
    launch = orders[-1].launch
    assert launch is not None
    return launch.task.account


def test_without_a_word_of_the_admin_each_host_has_its_own_way(world: World) -> None:
    assert submit(world, "a") == ""


def test_the_first_account_is_that_of_jobs_that_name_none(world: World) -> None:
    assert set_accounts(world, "ann", "vision") == ["accounts of ann set to ann, vision by root", "> reply ann"]
    assert set_accounts(world, "ann", "vision") == ["> reply ann"]
    assert submit(world, "a") == "ann"
    assert submit(world, "b", "vision") == "vision"


def test_a_user_may_be_added_with_accounts(world: World) -> None:
    words = world.step(st.RoleAsked(3, "root", "bob", "*", Role.USER, ("bob",)))
    assert "accounts of bob set to bob by root" in words
    assert world.step(st.RoleAsked(4, "root", "bob", "*", Role.ADMIN))[-1] == "> reply bob"
    assert world.cluster.people.accounts == {"bob": ("bob",)}, "another role is no other account"


@pytest.mark.parametrize("wanted", ["bob", "root", "vision"])
def test_the_account_of_another_is_refused_with_what_may_be_done(world: World, wanted: str) -> None:
    set_accounts(world, "ann")
    refusal = submit(world, "a", wanted)
    assert f"jobSpec.runAs: jobs of ann may run as ann, not as {wanted}" in refusal
    assert f"leave it out, or ask an admin: holdfast user set ann --run-as ann --run-as {wanted}" in refusal
    assert submit(world, "a") == "ann"


def test_who_is_mapped_to_nothing_may_name_nothing(world: World) -> None:
    assert "jobSpec.runAs: ann is mapped to no account, so their jobs may not run as ann" in submit(
        world, "a", "ann"
    )


def test_a_cluster_may_take_the_account_of_the_same_name() -> None:
    world = a_world(RunAs.SAME_NAME)
    assert submit(world, "a") == "ann"
    assert submit(world, "b", "ann") == "ann"
    assert "jobs of ann may run as ann, not as bob" in submit(world, "c", "bob")
    set_accounts(world, "vision")
    assert submit(world, "c") == "vision", "what the admin says of somebody goes before what holds for all"


def test_a_job_stays_what_it_was_when_it_was_submitted(world: World) -> None:
    set_accounts(world, "ann")
    submit(world, "a")
    world.run("a")
    set_accounts(world, "vision")
    world.step(st.UserRemovalAsked(5, "root", "ann"))
    world.restart("a", by="root")
    assert world.cluster.jobs["a"].generation == 2
    assert told(world, "a") == "ann"
    assert world.cluster.people.accounts == {}


def test_who_is_removed_and_added_again_has_no_account_left(world: World) -> None:
    set_accounts(world, "ann")
    world.step(st.UserRemovalAsked(5, "root", "ann"))
    world.step(st.RoleAsked(6, "root", "ann", "*", Role.USER))
    assert submit(world, "a") == ""


def test_accounts_are_taken_away_again(world: World) -> None:
    set_accounts(world, "ann")
    assert set_accounts(world)[0] == "accounts of ann reset to the cluster's default by root"
    assert set_accounts(world) == ["> reply ann"]
    assert submit(world, "a") == ""


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        (("1000",), "accounts[0]: '1000' is no account's name"),
        (("ann", "a b"), "accounts[1]: 'a b' is no account's name"),
        (("",), "accounts[0]: '' is no account's name"),
        (("ann", "ann"), "accounts[1]: ann stands there twice"),
        (tuple(f"a{n}" for n in range(17)), "accounts: are 17; at most 16 may be"),
    ],
)
def test_names_that_no_account_has_are_refused(world: World, accounts: tuple[str, ...], words: str) -> None:
    set_accounts(world, *accounts)
    assert isinstance(world.sent[-1], act.Refuse)
    assert words in str(world.sent[-1].error)
    world.step(st.RoleAsked(3, "root", "bob", "*", Role.USER, accounts))
    assert isinstance(world.sent[-1], act.Refuse)
    assert "bob" not in world.cluster.people.roles, "all of it or nothing"


def test_who_is_not_known_is_mapped_to_nothing(world: World) -> None:
    set_accounts(world, "bob", user="bob")
    assert isinstance(world.sent[-1], act.Refuse)
    assert "First: holdfast user add bob" in str(world.sent[-1].error)
    assert set_accounts(world, "ops", user="root")[-1] == "> reply root", "an admin by configuration is known"


def test_a_job_waits_for_a_host_that_can_start_it_as_its_account(world: World) -> None:
    unable = dataclasses.replace(ABLE, no_accounts="its agent is not root")
    world.join("host-0", unable)
    set_accounts(world, "ann")
    submit(world, "a")
    assert [place.host for place in world.cluster.jobs["a"].places] == ["host-1"]
