"""Users get and lose roles, tokens are used once, hosts are forgotten: what is decided, and in which words."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast._base.identity import Kind
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies


@pytest.fixture
def world() -> World:
    return World(hosts=2, policies=Policies(secret_key=b"k", admins=frozenset({"root"})))


def step(world: World, incoming: st.Input) -> list[str]:
    """As the world tells it, and a refusal in its own words."""
    told = world.step(incoming)
    last = world.sent[-1]
    return [f"> refuse {last.error}"] if isinstance(last, act.Refuse) else told


def add(world: World, user: str = "bob", project: str = "*", role: Role = Role.USER) -> list[str]:
    return step(world, st.RoleAsked(1, "root", user, project, role))


def remove(world: World, user: str = "bob", project: str = "") -> list[str]:
    return step(world, st.UserRemovalAsked(2, "root", user, project))


def make_token(
    world: World, kind: Kind = Kind.HOST, name: str = "", ttl_s: float = 60, digest: str = "d"
) -> list[str]:
    return step(world, st.TokenAsked(3, "root", digest, kind, name, ttl_s))


def enrol(world: World, name: str = "h9", digest: str = "d", key: str = "k", kind: Kind = Kind.HOST) -> list[str]:
    return step(world, st.EnrolAsked(4, digest, kind, name, key))


def remove_host(world: World, host: str, *, force: bool = False) -> list[str]:
    return step(world, st.HostRemovalAsked(5, "root", host, force))


def test_a_role_is_given_changed_and_taken(world: World) -> None:
    assert add(world) == ["bob made user everywhere by root", "> user/bob may do otherwise", "> reply bob"]
    assert add(world) == ["> reply bob"]
    assert add(world, role=Role.ADMIN, project="vision")[0] == "bob made admin in project vision by root"
    assert remove(world, project="vision")[0] == "role of bob in project vision removed by root"
    assert world.cluster.people.roles == {"bob": {"*": Role.USER}}


def test_what_is_removed_is_void_from_then_on(world: World) -> None:
    add(world)
    assert remove(world)[0] == "user bob removed by root; its certificates are void"
    assert world.cluster.people.void_until == {"user/bob": world.wall}
    assert "There is no user 'bob'" in remove(world)[0]


def test_an_admin_by_configuration_is_not_removed_by_a_call(world: World) -> None:
    assert "is an admin by controller.toml" in remove(world, "root")[0]


@pytest.mark.parametrize(
    ("user", "project"), [("", "*"), ("a b", "*"), ("x" * 64, "*"), ("bob", ""), ("bob", "-x")]
)
def test_names_that_are_none_are_refused(world: World, user: str, project: str) -> None:
    assert add(world, user, project)[0].startswith("> refuse")
    assert world.cluster.people.roles == {}


def test_a_token_is_good_once_and_for_one_key(world: World) -> None:
    make_token(world)
    assert enrol(world) == ["first certificate issued to host h9", "> reply host/h9"]
    assert enrol(world) == ["> reply host/h9"], "the answer may have been lost"
    assert "was used already, by host h9" in enrol(world, key="other")[0]
    assert "was used already" in enrol(world, name="h10", key="other")[0]


def test_a_token_ends(world: World) -> None:
    make_token(world, ttl_s=60)
    world.wait(61, beating=["host-0", "host-1"])
    assert "has ended 1 s ago" in enrol(world)[0]


def test_a_forged_token_is_not_known(world: World) -> None:
    assert "knows no such token" in enrol(world, digest="forged")[0]


def test_a_wall_clock_that_is_set_back_makes_no_token_last_longer(world: World) -> None:
    make_token(world, ttl_s=1800)
    world.jumped = -30
    assert enrol(world)[-1] == "> reply host/h9", "as time servers set a clock"
    make_token(world, ttl_s=1800, digest="second")
    world.jumped = -86_400
    assert "clock was set back" in enrol(world, "h10", digest="second")[0]
    make_token(world, digest="third")
    assert enrol(world, "h10", digest="third")[-1] == "> reply host/h10"


def test_a_token_for_a_host_or_user_is_for_nobody_else(world: World) -> None:
    add(world)
    make_token(world, name="h9")
    make_token(world, Kind.USER, "bob", digest="u")
    assert "is for host h9, not for h10" in enrol(world, "h10")[0]
    assert "is for a user, not for a host" in enrol(world, "bob", digest="u")[0]
    assert "is for a host, not for a user" in enrol(world, "", kind=Kind.USER)[0]
    assert enrol(world, "", digest="u", kind=Kind.USER)[-1] == "> reply user/bob"


def test_a_token_for_any_host_takes_over_no_known_one(world: World) -> None:
    make_token(world)
    assert "There is a host host-0 in this cluster" in enrol(world, "host-0")[0]
    make_token(world, name="host-0", digest="named")
    assert enrol(world, "host-0", digest="named")[-1] == "> reply host/host-0"
    enrol(world, "h9")
    make_token(world, digest="second")
    assert "There is a host h9" in enrol(world, "h9", digest="second", key="other")[0]


def test_tokens_that_make_no_sense_are_refused(world: World) -> None:
    assert "out of range" in make_token(world, ttl_s=1801)[0]
    assert "out of range" in make_token(world, ttl_s=0)[0]
    assert "There is no user 'eve'" in make_token(world, Kind.USER, "eve")[0]
    assert "no name" in make_token(world, name="a b")[0]


def test_a_token_goes_with_the_user_that_it_waits_for(world: World) -> None:
    add(world)
    make_token(world, Kind.USER, "bob")
    remove(world)
    assert "has withdrawn it" in enrol(world, "", kind=Kind.USER)[0]


def test_an_idle_host_is_forgotten_and_may_come_again(world: World) -> None:
    told = remove_host(world, "host-1")
    assert [words for words in told if not words.startswith("> reply")] == [
        "host-1 removed",
        "> host-1 close",
        "> host/host-1 may do otherwise",
    ]
    assert list(world.cluster.hosts) == ["host-0"]
    world.sessions.pop("host-1")
    world.wait(120, beating=["host-0"])
    assert "host-1 joined" in world.join("host-1")
    assert "There is no host 'host-9'" in remove_host(world, "host-9")[0]


def test_a_host_that_joined_and_never_came_is_forgotten_too(world: World) -> None:
    make_token(world)
    enrol(world)
    assert remove_host(world, "h9")[0] == "h9 removed"
    make_token(world, digest="again")
    assert enrol(world, digest="again", key="new")[-1] == "> reply host/h9"


@pytest.mark.parametrize("named", ["h9", ""])
def test_who_has_the_key_of_a_removed_host_gets_nothing_by_its_used_token(world: World, named: str) -> None:
    make_token(world, name=named)
    assert enrol(world)[-1] == enrol(world)[-1] == "> reply host/h9", "the same key may ask again"
    remove_host(world, "h9")
    assert enrol(world)[0].startswith("> refuse")


def test_who_has_the_key_of_a_removed_user_gets_nothing_by_its_used_token(world: World) -> None:
    add(world)
    make_token(world, Kind.USER, "bob")
    assert enrol(world, "bob", kind=Kind.USER)[-1] == "> reply user/bob"
    remove(world)
    add(world)
    assert enrol(world, "bob", kind=Kind.USER)[0].startswith("> refuse")


def test_what_was_void_stays_so_when_the_clock_is_set_back(world: World) -> None:
    add(world)
    remove(world)
    first = world.wall
    world.jumped -= 3600
    add(world)
    remove(world)
    assert world.cluster.people.void_until == {"user/bob": first}


def test_a_host_with_work_is_kept_unless_somebody_vouches(world: World) -> None:
    world.submit("a", gang(retries=1))
    world.run("a")
    assert "still holds work of a" in remove_host(world, "host-1")[0]
    told = remove_host(world, "host-1", force=True)
    assert "a exit g1 r1 LOST_HOST" in told
    assert "host-1 removed" in told
    assert world.cluster.jobs["a"].state is not JobState.FAILED
    world.sessions.pop("host-1")
    world.wait(120, beating=["host-0"])
    assert "host-1" not in world.cluster.hosts


def test_a_drained_host_is_forgotten_with_its_timers(world: World) -> None:
    world.submit("a", gang(1, retries=1))
    world.run("a")
    world.drain("host-1", 60)
    remove_host(world, "host-1")
    world.sessions.pop("host-1")
    world.wait(200, beating=["host-0"])
    assert list(world.cluster.hosts) == ["host-0"]
    assert world.cluster.draining == set()
