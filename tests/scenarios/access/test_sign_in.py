"""Users of an identity provider: which names are theirs, which roles they get, and when their access ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.world import World

from holdfast._base.identity import Kind
from holdfast_controller.core.access.accounts import account_for
from holdfast_controller.core.model.accounts.users import GroupGrant, Role, RunAs, SignInPolicy
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

HOUR_S = 3600.0
GRANTS = (
    GroupGrant("ml", "*", Role.USER),
    GroupGrant("ops", "*", Role.ADMIN),
    GroupGrant("guests", "demo", Role.VIEWER),
)
POLICIES = Policies(
    secret_key=b"k", admins=frozenset({"root"}), run_as=RunAs.SAME_NAME, sign_in=SignInPolicy(GRANTS, 12 * HOUR_S)
)


@pytest.fixture
def world() -> World:
    return World(hosts=1, policies=POLICIES)


def step(world: World, incoming: st.Input) -> list[str]:
    told = world.step(incoming)
    last = world.sent[-1]
    return [f"> refuse {last.error}"] if isinstance(last, act.Refuse) else told


def sign_in(
    world: World, user: str = "ann", *groups: str, subject: str = "s-1", issuer: str = "https://id"
) -> list[str]:
    return step(world, st.SignInAsked(1, issuer, subject, user, frozenset(groups or ("ml",))))


def roles(world: World) -> dict[str, dict[str, Role]]:
    return world.cluster.people.roles


def test_groups_give_roles_at_each_sign_in_anew(world: World) -> None:
    assert sign_in(world, "ann", "ml", "guests", "others") == [
        "ann signed in by https://id, as user everywhere, viewer in project demo",
        "> user/ann may do otherwise",
        "> reply ann",
    ]
    sign_in(world, "ann", "ops", "ml")
    assert roles(world) == {"ann": {"*": Role.ADMIN}}, "the highest of each project"
    sign_in(world, "ann", "guests")
    assert roles(world) == {"ann": {"demo": Role.VIEWER}}


def test_a_user_without_a_group_is_refused_and_keeps_what_is_left_of_the_last_sign_in(world: World) -> None:
    assert sign_in(world, "ann", "others")[0].startswith("> refuse ann is in no group that may use this cluster.")
    assert not roles(world)
    sign_in(world)
    sign_in(world, "ann", "others")
    assert roles(world) == {"ann": {"*": Role.USER}}


def test_access_ends_with_the_newest_sign_in(world: World) -> None:
    sign_in(world)
    world.wait(8 * HOUR_S)
    sign_in(world)
    assert "sign-in of ann ended" not in world.wait(8 * HOUR_S)
    told = world.wait(5 * HOUR_S)
    assert told.count("sign-in of ann ended") == 1 and "> user/ann may do otherwise" in told
    assert not roles(world)
    sign_in(world)
    assert roles(world) == {"ann": {"*": Role.USER}}


def test_access_ends_also_while_no_controller_runs(world: World) -> None:
    sign_in(world)
    world.restart_controller(down_s=13 * HOUR_S)
    assert "sign-in of ann ended" in world.wait(60)
    assert not roles(world)


@pytest.mark.parametrize(
    "name", ["", "a" * 64, "ann/x", "ann\nroot", "\x1b[2Jann", "аnn", "ann root", "*", "../ann", "holdfast://x"]
)
def test_what_is_no_name_is_refused_in_words(world: World, name: str) -> None:
    [refused] = sign_in(world, name)
    assert refused.startswith("> refuse The identity provider calls this account ")
    assert refused.isprintable() and not roles(world)


def test_names_of_the_cluster_s_own_users_are_not_the_provider_s_to_give(world: World) -> None:
    step(world, st.RoleAsked(1, "root", "ben", "*", Role.VIEWER))
    assert "ben was added by an admin, and signs in by a token alone." in sign_in(world, "ben", "ops")[0]
    assert "root is an admin by controller.toml" in sign_in(world, "root", "ops")[0]
    assert roles(world) == {"ben": {"*": Role.VIEWER}}


def test_a_name_belongs_to_the_first_account_that_signed_in_by_it(world: World) -> None:
    sign_in(world, subject="s-1")
    for other in ({"subject": "s-2"}, {"issuer": "https://other"}):
        assert "The name ann belongs to another account" in sign_in(world, **other)[0]
    world.wait(13 * HOUR_S)
    assert "The name ann belongs to another account" in sign_in(world, subject="s-2")[0], "also when that has ended"


def test_a_removed_user_stays_out_until_an_admin_says_otherwise(world: World) -> None:
    sign_in(world)
    assert (
        step(world, st.UserRemovalAsked(2, "root", "ann"))[0]
        == "user ann removed by root; its certificates are void"
    )
    assert not roles(world)
    assert "ann was removed by an admin." in sign_in(world)[0]
    allowed = st.SignInAllowanceAsked(3, "root", "ann")
    assert step(world, allowed) == ["ann allowed to sign in again by root", "> reply ann"]
    assert step(world, allowed) == ["> reply ann"]
    assert sign_in(world, subject="s-2")[-1] == "> reply ann", "and may be another account then"
    step(world, st.UserRemovalAsked(2, "root", "ann"))
    assert "ann was removed by an admin." in sign_in(world, subject="s-2")[0]


def test_a_user_can_be_removed_after_the_sign_in_has_ended(world: World) -> None:
    sign_in(world)
    world.wait(13 * HOUR_S)
    step(world, st.UserRemovalAsked(2, "root", "ann"))
    assert "ann was removed by an admin." in sign_in(world)[0]


def test_a_user_by_token_is_handed_over_to_the_provider(world: World) -> None:
    step(world, st.RoleAsked(1, "root", "ben", "*", Role.VIEWER))
    allowed = st.SignInAllowanceAsked(3, "root", "ben")
    assert "ben is a user by token." in step(world, allowed)[0]
    step(world, st.UserRemovalAsked(2, "root", "ben"))
    step(world, allowed)
    assert sign_in(world, "ben")[-1] == "> reply ben"


def test_users_of_the_provider_get_no_roles_and_tokens_by_hand(world: World) -> None:
    sign_in(world)
    assert "whose groups give the roles" in step(world, st.RoleAsked(1, "root", "ann", "*", Role.ADMIN))[0]
    assert "whose groups give the roles" in step(world, st.UserRemovalAsked(2, "root", "ann", "*"))[0]
    token = st.TokenAsked(3, "root", "d", Kind.USER, "ann", 60)
    assert "ann signs in by the identity provider." in step(world, token)[0]
    assert roles(world) == {"ann": {"*": Role.USER}}


def test_a_cluster_without_a_provider_allows_no_sign_in(world: World) -> None:
    world.step(st.PoliciesChanged(replace(POLICIES, sign_in=SignInPolicy())))
    assert "has no identity provider" in step(world, st.SignInAllowanceAsked(3, "root", "ann"))[0]
    assert sign_in(world)[0].startswith("> refuse ann is in no group")


def test_jobs_run_as_users_of_the_provider_by_the_same_rules(world: World) -> None:
    sign_in(world)
    people = world.cluster.people
    assert account_for("ann", "", people, POLICIES) == "ann", "the account of the same name"
    step(world, st.AccountsAsked(4, "root", "ann", ("vision",)))
    assert account_for("ann", "", people, POLICIES) == "vision"
