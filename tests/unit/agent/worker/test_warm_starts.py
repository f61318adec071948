"""What waits for a worker's next generation is kept for it, reported, and gone before the worker is empty for good."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.agent.desired import FACTS, KEY, LAUNCH, desired

from holdfast._session.assignment import Assignment, Phase, WarmStart
from holdfast._session.reports import ExitReason, ReportedState, WorkerReport
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor

WARM = WarmStart(("mylib",))
WAITING = "2 ranks parked: 73 modules wait in 5 MiB"


def wanted(phase: Phase, generation: int = 1, warm: WarmStart | None = WARM) -> Assignment:
    made = desired(phase, generation)
    return replace(made, launch=replace(made.launch, warm=warm)) if made.launch is not None else made


def running(*, warm: bool = False, generation: int = 1) -> Reactor:
    """An agent whose worker runs, and has processes waiting for the next generation."""
    made = Reactor(FACTS)
    made.step(ev.Welcomed(1), 1.0)
    made.step(ev.Assigned(wanted(Phase.PREPARE, generation)), 1.0)
    made.step(ev.WorkerPrepared(KEY, generation, 20000, 20001, 77), 1.0)
    (launched,) = made.step(ev.Assigned(wanted(Phase.RUN, generation)), 1.0)
    assert isinstance(launched, act.LaunchRanks)
    assert launched.warm == WARM
    for rank in (0, 1):
        made.step(ev.RankStarted(KEY, generation, rank, 1000 + rank, warm), 1.0)
    made.step(ev.WarmStartNoted(KEY, 2, WAITING), 1.0)
    return made


def reports(actions: list[act.Action]) -> list[WorkerReport]:
    return [action.report for action in actions if isinstance(action, act.SendReport)]


def stops(actions: list[act.Action]) -> list[tuple[int, bool]]:
    return [(each.generation, each.another_follows) for each in actions if isinstance(each, act.StopRanks)]


def test_what_the_shim_says_is_reported_once() -> None:
    agent = running()
    assert agent.workers[KEY].parked
    assert agent.step(ev.WarmStartNoted(KEY, 2, WAITING), 2.0) == []
    (report,) = reports(agent.step(ev.WarmStartNoted(KEY, 0, "the next start is cold: numpy starts a thread"), 2.0))
    assert (report.warm, report.warm_ranks) == ("the next start is cold: numpy starts a thread", 0)
    assert not agent.workers[KEY].parked


def test_the_ranks_that_started_warm_are_counted() -> None:
    assert running(warm=True).workers[KEY].report().warm_ranks == 2
    mixed = running(warm=True)
    mixed.workers[KEY].started_warm.discard(1)
    assert mixed.workers[KEY].report().warm_ranks == 1


def test_a_restart_in_place_keeps_what_waits() -> None:
    agent = running()
    assert stops(agent.step(ev.Assigned(wanted(Phase.PREPARE, 2)), 2.0)) == [(1, True)]
    assert agent.workers[KEY].parked


def test_the_shim_is_told_which_ranks_hung() -> None:
    agent = running()
    hung = replace(wanted(Phase.PREPARE, 2), hung_ranks=(1,))
    (stop,) = (each for each in agent.step(ev.Assigned(hung), 2.0) if isinstance(each, act.StopRanks))
    assert (stop.another_follows, stop.hung_ranks) == (True, (1,))


def test_a_job_that_may_have_no_more_warm_starts_keeps_nothing() -> None:
    agent = running()
    assert stops(agent.step(ev.Assigned(wanted(Phase.PREPARE, 2, None)), 2.0)) == [(1, False)]
    assert not agent.workers[KEY].parked


def test_the_end_of_the_job_keeps_nothing() -> None:
    agent = running()
    assert stops(agent.step(ev.Assigned(wanted(Phase.STOP)), 2.0)) == [(1, False)]
    told = agent.step(ev.WorkerEmptied(KEY, 1), 3.0)
    assert [report.state for report in reports(told)] == [ReportedState.EMPTY]


def test_a_worker_whose_next_generation_never_came_is_empty_once_what_waits_is_gone() -> None:
    agent = running()
    agent.step(ev.Assigned(wanted(Phase.PREPARE, 2)), 2.0)
    agent.step(ev.WorkerEmptied(KEY, 1), 2.0)
    agent.step(ev.WorkerPrepared(KEY, 2, 20002, 20003, 77), 2.0)
    told = agent.step(ev.Assigned(wanted(Phase.STOP, 2)), 3.0)
    assert stops(told) == [(2, False)]
    assert [report.state for report in reports(told)] == [ReportedState.STOPPING]
    told = agent.step(ev.WorkerEmptied(KEY, 2), 4.0)
    assert [(report.state, report.generation) for report in reports(told)] == [(ReportedState.EMPTY, 2)]


def test_a_lost_shim_has_taken_with_it_what_waited() -> None:
    agent = running()
    agent.step(ev.ShimLost(KEY), 2.0)
    assert (agent.workers[KEY].parked, agent.workers[KEY].warm) == (False, "")


def test_a_host_that_shuts_down_keeps_nothing() -> None:
    assert stops(running().step(ev.ShutdownBegan(), 2.0)) == [(1, False)]


def test_a_job_that_does_not_ask_stops_as_before() -> None:
    agent = Reactor(FACTS)
    agent.step(ev.Welcomed(1), 1.0)
    agent.step(ev.Assigned(desired(Phase.PREPARE)), 1.0)
    agent.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77), 1.0)
    agent.step(ev.Assigned(desired(Phase.RUN)), 1.0)
    assert LAUNCH.warm is None
    told = agent.step(ev.Assigned(desired(Phase.PREPARE, 2)), 2.0)
    assert act.StopRanks(KEY, 1, 10.0, ExitReason.STOPPED) in told


def test_ranks_that_went_on_in_their_process_are_counted_and_survivors_are_kept() -> None:
    agent = running()
    agent.step(ev.Assigned(wanted(Phase.PREPARE, 2)), 2.0)
    agent.step(ev.WarmStartNoted(KEY, 0, "1 of 2 ranks wait to go on", frozenset({1000})), 2.0)
    assert agent.workers[KEY].parked
    agent.step(ev.WorkerEmptied(KEY, 1), 2.0)
    agent.step(ev.WorkerPrepared(KEY, 2, 20002, 20003, 77), 2.0)
    agent.step(ev.Assigned(wanted(Phase.RUN, 2)), 2.0)
    agent.step(ev.RankStarted(KEY, 2, 0, 1000, True, True), 2.0)
    agent.step(ev.RankStarted(KEY, 2, 1, 1002, True), 2.0)
    report = agent.workers[KEY].report()
    assert (report.warm_ranks, report.in_process_ranks) == (2, 1)


def test_survivors_end_with_the_job() -> None:
    agent = running()
    agent.step(ev.Assigned(wanted(Phase.PREPARE, 2)), 2.0)
    agent.step(ev.WarmStartNoted(KEY, 0, "1 of 2 ranks wait to go on", frozenset({1000})), 2.0)
    agent.step(ev.WorkerEmptied(KEY, 1), 2.0)
    agent.step(ev.WorkerPrepared(KEY, 2, 20002, 20003, 77), 2.0)
    assert stops(agent.step(ev.Assigned(wanted(Phase.STOP, 2)), 3.0)) == [(2, False)]


def test_a_lost_shim_has_no_survivors() -> None:
    agent = running()
    agent.step(ev.WarmStartNoted(KEY, 0, "1 of 2 ranks wait to go on", frozenset({1000})), 2.0)
    agent.step(ev.ShimLost(KEY), 2.0)
    assert (agent.workers[KEY].survivors, agent.workers[KEY].parked) == (frozenset(), False)
