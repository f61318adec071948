"""Calls that arrive twice, late or with another content under the same id."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World

from holdfast_controller.core.step import idempotency
from holdfast_controller.core.step.commands import CordonAsked, Once, RestartAsked


def restart(world: World, token: int, *, request: str = "r-1", by: str = "ann", digest: str = "d") -> list[str]:
    return world.step(Once(by, request, digest, RestartAsked(token, by, "a")))


def running() -> World:
    world = World(hosts=2)
    world.submit("a")
    world.run("a")
    return world


def test_restart_that_arrives_twice_restarts_once_and_is_answered_twice() -> None:
    world = running()
    first = restart(world, 91)
    assert [first.count(line) for line in ("> reply a", "> keep the answer to ann's r-1")] == [1, 1]
    assert restart(world, 92) == ["> reply a"]
    assert world.cluster.jobs["a"].generation == 2


def test_another_content_under_the_same_id_is_refused_and_changes_nothing() -> None:
    world = running()
    restart(world, 91)
    assert restart(world, 92, digest="e") == ["> refuse INVALID_INPUT"]


def test_ids_are_each_caller_s_own() -> None:
    world = World(hosts=1)
    for by, token in (("ann", 91), ("bob", 92)):
        said = world.step(Once(by, "r-1", by, CordonAsked(token, by, "host-0", f"{by}'s reason")))
        assert said[0] == "host-0 cordoned"


def test_refusal_is_not_remembered() -> None:
    world = World(hosts=2)
    world.submit("a")
    assert restart(world, 91) == ["> refuse WRONG_STATE"]
    world.run("a")
    assert "> reply a" in restart(world, 92)


def test_answers_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "KEPT_ANSWERS", 2)
    world = World(hosts=1)
    for number in range(3):
        world.step(Once("ann", f"r-{number}", "d", CordonAsked(90 + number, "ann", "host-0", str(number))))
    assert [request for _, request in world.cluster.answers] == ["r-1", "r-2"]
