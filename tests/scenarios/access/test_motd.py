"""The message of the day: set, changed and cleared by admins, bounded, and safe to show."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World

from holdfast_controller.core.access.motd import MAX_BYTES, MAX_LINES
from holdfast_controller.core.model.accounts.users import Motd
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st


@pytest.fixture
def world() -> World:
    return World(hosts=1)


def set_motd(world: World, text: str, by: str = "root") -> list[str]:
    told = world.step(st.MotdAsked(1, by, text))
    last = world.sent[-1]
    return [f"> refuse {last.error}"] if isinstance(last, act.Refuse) else told


def test_a_message_is_set_changed_and_cleared(world: World) -> None:
    assert set_motd(world, "no work on Friday") == ["message of the day set by root", "> reply "]
    assert world.cluster.people.motd == Motd("no work on Friday", Wall(world.wall), "root")
    assert set_motd(world, "all is well", "ann") == ["message of the day set by ann", "> reply "]
    assert set_motd(world, "") == ["message of the day cleared by root", "> reply "]
    assert world.cluster.people.motd is None


def test_repeating_a_message_changes_nothing(world: World) -> None:
    assert set_motd(world, "") == ["> reply "]
    set_motd(world, "no work on Friday")
    first = world.cluster.people.motd
    world.wait(60)
    assert set_motd(world, "no work on Friday\n", "ann") == ["> reply "]
    assert world.cluster.people.motd == first, "users who have seen it are not shown it again"


def test_lines_are_kept_and_cleaned(world: World) -> None:
    set_motd(world, "\n\n  Friday: \x1b[2Jno work  \r\n\tnext \u202eline\x00\n\n")
    assert world.cluster.people.motd is not None
    assert world.cluster.people.motd.text == "  Friday: ?[2Jno work\n        next ?line?"


@pytest.mark.parametrize("text", ["x\n" * MAX_LINES + "x", "ä" * (MAX_BYTES // 2 + 1)])
def test_a_long_message_is_refused_and_the_old_one_stays(world: World, text: str) -> None:
    set_motd(world, "short")
    [refused] = set_motd(world, text)
    assert "text: has " in refused and "at most 24 and 4,096 are allowed" in refused
    assert world.cluster.people.motd is not None
    assert world.cluster.people.motd.text == "short"


def test_a_message_as_long_as_allowed_is_taken(world: World) -> None:
    assert set_motd(world, "x\n" * (MAX_LINES - 1) + "x")[0] == "message of the day set by root"
    assert set_motd(world, "x" * MAX_BYTES)[0] == "message of the day set by root"
