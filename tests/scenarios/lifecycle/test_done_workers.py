"""A worker whose ranks have all finished needs no host any more: what befalls its host is nothing to its job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.queue_stories import why
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step import commands as st

HOSTS = ("host-0", "host-1", "host-2", "host-3")


def one_done(*, left: bool = True, **rules: object) -> World:
    """Job ``a`` of three workers runs; that on host-1 has finished, and nothing of it is ``left`` there."""
    world = World(hosts=4)
    world.submit("a", gang(3, **({"replace_when_lost": True} | rules)))  # type: ignore[arg-type]
    world.run("a")
    world.exit("a", 1, 0)
    if left:
        world.report("a", 1, "EMPTY")
    return world


def lost(world: World) -> list[str]:
    world.hang_up("host-1")
    return world.wait(100, beating=[name for name in HOSTS if name != "host-1"])


def fenced(world: World) -> list[str]:
    world.hang_up("host-1")
    world.wait(30, beating=[name for name in HOSTS if name != "host-1"])
    return world.fence("host-1")


def removed(world: World) -> list[str]:
    return world.step(st.HostRemovalAsked(9, "ann", "host-1", force=True))


def drained(world: World) -> list[str]:
    return world.drain("host-1", 0.0) + world.wait(1, beating=HOSTS)


def shut_down(world: World) -> list[str]:
    return world.step(st.ShutdownAnnounced("host-1", world.sessions["host-1"]))


EVENTS = [lost, fenced, removed, drained, shut_down]


@pytest.mark.parametrize("rules", [{}, {"replace_when_lost": False}, {"warning": WarningSignal(10, 60.0)}])
@pytest.mark.parametrize("what", EVENTS)
def test_the_job_goes_on_with_the_others(what: Callable[[World], list[str]], rules: dict[str, object]) -> None:
    world = one_done(**rules)  # type: ignore[arg-type]
    told = what(world)
    assert not any("a leaves" in words or "warned" in words for words in told), told
    job = world.cluster.jobs["a"]
    assert (job.state, job.generation, job.budgets.spent.host_moves) == (JobState.RUNNING, 1, 0)
    assert why(world, "a") == "", "it waits for nobody"
    assert what in (lost,) or not world.cluster.hosts.get("host-1") or not world.cluster.hosts["host-1"].allocations
    world.exit("a", 0, 0)
    assert "a ending SUCCEEDED" in world.exit("a", 2, 0)
    for worker in (0, 2):
        world.report("a", worker, "EMPTY")
    assert world.state("a") is JobState.SUCCEEDED


@pytest.mark.parametrize("what", [drained, shut_down])
def test_a_place_that_is_not_empty_yet_is_given_up_once_it_is(what: Callable[[World], list[str]]) -> None:
    world = one_done(left=False)
    assert not any("a leaves" in words for words in what(world))
    assert "a/1" in world.cluster.hosts["host-1"].allocations
    told = world.report("a", 1, "EMPTY")
    assert "> host-1 FORGET a w1 g1" in told, "nothing starts there again"
    assert not world.cluster.hosts["host-1"].allocations


def test_a_host_that_keeps_its_work_for_now_keeps_the_place() -> None:
    world = one_done()
    world.drain("host-1")
    world.cordon("host-0")
    world.wait(100, beating=HOSTS)
    assert "a/1" in world.cluster.hosts["host-1"].allocations


@pytest.mark.parametrize("what", EVENTS)
def test_a_relaunch_places_the_worker_again(what: Callable[[World], list[str]]) -> None:
    world = one_done()
    what(world)
    told = world.exit("a", 2, 7) + world.wait(2, beating=[name for name in HOSTS if name in world.sessions])
    assert any("a leaves to RETRY: NONZERO_EXIT of workerpool1-1 rank 2, keeps w0 w2," in words for words in told)
    assert not any("w1" in words for words in told), "nothing is there to be stopped"
    world.report("a", 0, "EMPTY")
    told = world.report("a", 2, "EMPTY")
    assert [place.host for place in world.cluster.jobs["a"].places] == ["host-0", "host-3", "host-2"], told
    world.run("a")
    for rank in range(3):
        world.exit("a", rank, 0)
    world.empty("a")
    assert world.state("a") is JobState.SUCCEEDED


@pytest.mark.parametrize("what", EVENTS)
def test_other_hosts_of_the_job_are_drained_as_always(what: Callable[[World], list[str]]) -> None:
    world = one_done()
    what(world)
    world.drain("host-2", 0.0)
    told = world.wait(1, beating=[name for name in HOSTS if name in world.sessions])
    assert any(words.startswith("a leaves to RETRY: DRAINED of host host-2, keeps w0,") for words in told), told


@pytest.mark.parametrize("what", EVENTS)
def test_a_restart_of_the_controller_changes_nothing(what: Callable[[World], list[str]]) -> None:
    world = one_done()
    what(world)
    there = [name for name in HOSTS if name in world.sessions and name in world.cluster.hosts]
    world.restart_controller()
    told = []
    for name in there:
        at = [index for index in (0, 2) if world.cluster.jobs["a"].places[index].host == name]
        told += world.join(name, places=[world.place("a", index, "RUNNING") for index in at])
        for index in at:
            told += world.report("a", index, "RUNNING")
    assert not any("w1" in words for words in told), told
    world.wait(200, beating=there)
    assert (world.state("a"), world.cluster.jobs["a"].generation) == (JobState.RUNNING, 1)


def test_a_host_that_returns_frees_what_it_held() -> None:
    world = one_done()
    lost(world)
    assert "a/1" in world.cluster.hosts["host-1"].allocations, "it may still be there"
    told = world.join("host-1", places=[world.place("a", 1, "EMPTY")])
    assert "> host-1 FORGET a w1 g1" in told
    assert not world.cluster.hosts["host-1"].allocations


def test_a_restored_controller_takes_the_job_as_it_is() -> None:
    world = one_done()
    drained(world)
    world.restore(world.back_up())
    told = []
    for name, index in (("host-0", 0), ("host-2", 2), ("host-1", None), ("host-3", None)):
        told += world.join(name, places=[world.place("a", index, "RUNNING")] if index is not None else [])
    assert "a cleared" in told
    assert not any("w1" in words for words in told), told


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("move", ["pause", "drain", "restart"])
def test_nothing_waits_for_a_lost_host_of_a_worker_that_is_done(move: str, keep: bool) -> None:
    world = one_done(replace_when_lost=not keep)
    lost(world)
    beating = [name for name in HOSTS if name != "host-1"]
    if move == "pause":
        world.pause("a")
    elif move == "drain":
        world.drain("host-2", 0.0)
        world.wait(1, beating=beating)
    else:
        world.restart("a")
    for index in (0, 2):
        world.exit("a", index, "STOPPED")
        world.report("a", index, "EMPTY")
    after = {"pause": JobState.PAUSED, "drain": JobState.QUEUED, "restart": JobState.PENDING}
    assert world.state("a") is after[move]


def test_nothing_waits_for_a_host_that_is_lost_while_the_job_pauses() -> None:
    world = one_done(replace_when_lost=False)
    world.hang_up("host-1")
    world.pause("a")
    for index in (0, 2):
        world.exit("a", index, "STOPPED")
        world.report("a", index, "EMPTY")
    assert world.state("a") is JobState.RUNNING
    assert "a paused" in world.wait(100, beating=[name for name in HOSTS if name != "host-1"])
