"""A job whose primary has completed is done: what befalls its hosts in the end grace starts nothing again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.queue_stories import why
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st

HOSTS = ("host-0", "host-1", "host-2")


def done(**rules: object) -> World:
    """Job ``a`` of three workers, whose primary, on host-0, has completed; the others have ten minutes from then on."""
    grace = {"success": SuccessPolicy.PRIMARY, "end_grace_s": 600.0, "replace_when_lost": True}
    world = World(hosts=3)
    world.submit("a", gang(3, **(grace | rules)))  # type: ignore[arg-type]
    world.run("a")
    assert "a primary completed" in world.exit("a", 0, 0)
    return world


def lose(world: World, host: str) -> list[str]:
    world.hang_up(host)
    return world.wait(100, beating=[name for name in HOSTS if name != host])


@pytest.mark.parametrize("host", ["host-0", "host-2"])
def test_who_loses_a_host_leaves_the_others_the_rest_of_their_grace(host: str) -> None:
    world = done()
    told = lose(world, host)
    assert f"{host} lost" in told and not any("a leaves" in words for words in told)
    assert world.cluster.jobs["a"].budgets.spent.host_moves == 0
    assert why(world, "a") == "", "it waits for nobody"
    assert "a ending SUCCEEDED" in world.wait(600, beating=[name for name in HOSTS if name != host])
    for worker in range(3):
        if world.cluster.jobs["a"].places[worker].host != host:
            world.report("a", worker, "EMPTY")
    assert world.state("a") is JobState.SUCCEEDED
    world.join(host, places=[world.place("a", HOSTS.index(host), "EMPTY", 1)])
    world.report("a", HOSTS.index(host), "EMPTY", 1)
    assert not any(each.allocations for each in world.cluster.hosts.values())


def test_who_loses_a_host_succeeds_once_all_others_have_ended() -> None:
    world = done()
    lose(world, "host-2")
    assert "a ending SUCCEEDED" in world.exit("a", 1, 3)


def fenced(world: World) -> list[str]:
    world.hang_up("host-0")
    world.wait(60, beating=HOSTS[1:])
    return world.fence("host-0")


def removed(world: World) -> list[str]:
    return world.step(st.HostRemovalAsked(9, "ann", "host-0", force=True))


def drained(world: World) -> list[str]:
    world.drain("host-1", 0.0)
    return world.wait(1, beating=HOSTS)


def drained_with_a_warning(world: World) -> list[str]:
    world.drain("host-1", 30.0)
    world.wait(10, beating=HOSTS)
    world.exit("a", 1, 1)
    return world.exit("a", 2, 1)


def shut_down(world: World) -> list[str]:
    return world.step(st.ShutdownAnnounced("host-2", world.sessions["host-2"]))


def preempted(world: World) -> list[str]:
    return world.submit("b", gang(1))


def late(world: World) -> list[str]:
    return world.wait(300, beating=HOSTS)


@pytest.mark.parametrize(
    ("what", "rules"),
    [
        (fenced, {}),
        (removed, {}),
        (drained, {}),
        (drained_with_a_warning, {"warning": WarningSignal(10, 60.0)}),
        (shut_down, {}),
        (preempted, {"strategy": Strategy.SPOT}),
        (late, {"timeout_s": 200.0}),
    ],
)
def test_it_ends_as_succeeded_before_its_grace_is_over(
    what: Callable[[World], list[str]], rules: dict[str, object]
) -> None:
    assert "a ending SUCCEEDED" in what(done(**rules))


def test_it_is_neither_restarted_nor_paused() -> None:
    world = done()
    for told in (world.restart("a"), world.pause("a")):
        assert told == ["> refuse WRONG_STATE"]
        refused = world.sent[-1]
        assert isinstance(refused, act.Refuse) and "is ending" in str(refused.error)
        assert "Wait for its end." in refused.error.fix
    assert "a ending CANCELLED" in world.cancel("a"), "a user may say that it is none"
