"""Exits that a host reports in one message: each is recorded, and what follows is decided once, by all of them."""

from __future__ import annotations

from typing import Any

from tests.scenarios.world import World, gang

from holdfast._session.reports import ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.recovery import of_rank
from holdfast_controller.core.step import actions as act

RANKS = range(8)


def running(**rules: Any) -> World:
    """Two hosts with four ranks each."""
    world = World(hosts=2)
    world.submit("a", gang(2, processes=4, **rules))
    world.run("a")
    return world


def acked(world: World, since: int) -> list[tuple[int, ...]]:
    return [action.sequences for action in world.sent[since:] if isinstance(action, act.AckExits)]


def test_each_is_recorded_and_all_are_acknowledged_by_one_message() -> None:
    world = running()
    sent, logged = len(world.sent), len(world.log)
    told = [world.ended("a", rank) for rank in range(4)]
    world.exits(*told)
    assert [event.exit.rank for event in world.log[logged:] if isinstance(event, ev.RankExited)] == [0, 1, 2, 3]
    assert acked(world, sent) == [tuple(report.sequence for _, report in told)]


def test_a_message_of_a_worker_is_answered_once_by_the_rank_that_failed_first() -> None:
    """One by one, the one that is told of first is the cause until the others are known."""
    world = running(max_worker_restarts=3)
    began, logged = world.wall, len(world.log)
    world.wait(1.0, beating=tuple(world.sessions))
    world.exits(*(world.ended("a", rank, 1, end_time=began + 0.4 - rank / 10) for rank in range(4)))
    decided = [event for event in world.log[logged:] if not isinstance(event, ev.RankExited)]
    assert [type(event) for event in decided] == [ev.RestartDecided]
    assert world.cluster.jobs["a"].recoveries[-1].related == of_rank("workerpool0-0", 3)


def test_a_gang_that_is_stopped_ends_as_it_does_one_by_one() -> None:
    """Relaunched: the ends of all ranks of a host are one step, and the log and the job say the same of each."""
    logs, jobs = [], []
    for together in (True, False):
        world = running()
        world.restart("a")
        logged = len(world.log)
        for first in (0, 4):
            told = [world.ended("a", rank, "STOPPED", 1) for rank in range(first, first + 4)]
            for message in [told] if together else [[each] for each in told]:
                world.exits(*message)
        world.run("a")
        logs.append(world.log[logged:])
        jobs.append(world.cluster.jobs["a"])
        assert {exit_.reason for exit_ in world.cluster.jobs["a"].exits[1].values()} == {ExitReason.STOPPED}
    assert logs[0] == logs[1]
    assert jobs[0] == jobs[1]


def test_what_is_not_believed_is_not_acknowledged_beside_what_is() -> None:
    world = running()
    sent = len(world.sent)
    here, elsewhere, again = (world.ended("a", rank, host="host-0") for rank in (0, 4, 1))
    unlaunched = world.ended("a", 2, generation=7)
    world.exits(here, elsewhere, unlaunched, again)
    assert acked(world, sent) == [(here[1].sequence, again[1].sequence)]
    assert sorted(world.cluster.jobs["a"].exits[1]) == [0, 1]


def test_one_rank_told_twice_in_a_message_has_one_record() -> None:
    world = running()
    sent, logged = len(world.sent), len(world.log)
    first, other = world.ended("a", 0, "SIGNALED:9"), world.ended("a", 0, 3)
    world.exits(first, other, first)
    kinds = [type(event) for event in world.log[logged:] if isinstance(event, ev.RankExited | ev.LateExitFound)]
    assert kinds == [ev.RankExited, ev.LateExitFound]
    assert acked(world, sent) == [tuple(report.sequence for _, report in (first, other, first))]


def test_exits_of_a_host_with_several_workers_are_recorded_for_each() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, gpus=2))
    world.submit("b", gang(1, gpus=2))
    world.run("a")
    world.run("b")
    sent = len(world.sent)
    told = [world.ended("a", 0), world.ended("b", 0)]
    world.exits(*told)
    assert acked(world, sent) == [tuple(report.sequence for _, report in told)]
    assert all(world.cluster.jobs[name].exits[1][0].ok for name in ("a", "b"))
