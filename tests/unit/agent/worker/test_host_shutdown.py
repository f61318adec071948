"""The agent's reactor while its host shuts down."""

from __future__ import annotations

from tests.unit.agent.desired import FACTS, KEY, desired

from holdfast._session.assignment import Phase
from holdfast._session.reports import Exit, ExitReason, ReportedState
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.worker import Empty, Prepared, Running, Stopping


def running(*, connected: bool = True) -> Reactor:
    """A worker of two ranks runs."""
    reactor = Reactor(FACTS)
    reactor.step(ev.Welcomed(1), 0.0)
    reactor.step(ev.Assigned(desired(Phase.PREPARE, grace_s=7.0)), 0.0)
    reactor.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 99), 0.0)
    reactor.step(ev.Assigned(desired(Phase.RUN, grace_s=7.0)), 0.0)
    for rank in (0, 1):
        reactor.step(ev.RankStarted(KEY, 1, rank, 100 + rank), 1.0)
    assert isinstance(reactor.workers[KEY].state, Running)
    if not connected:
        reactor.step(ev.Disconnected(), 1.0)
    return reactor


def ended(rank: int) -> ev.RankExited:
    return ev.RankExited(KEY, Exit(1, 1, rank, ExitReason.STOPPED, signal=15))


def test_the_controller_is_told_first_then_workers_are_stopped_with_their_grace() -> None:
    told, stop, report = running().step(ev.ShutdownBegan(), 2.0)
    assert told == ev.SendGoingDown()
    assert stop == ev.StopRanks(KEY, 1, 7.0, ExitReason.STOPPED)
    assert isinstance(report, ev.SendReport)
    assert report.report.state is ReportedState.STOPPING


def test_workers_are_stopped_without_a_controller_too() -> None:
    assert running(connected=False).step(ev.ShutdownBegan(), 2.0) == [ev.StopRanks(KEY, 1, 7.0, ExitReason.STOPPED)]


def test_a_controller_that_comes_back_meanwhile_is_told_before_it_hears_of_any_end() -> None:
    reactor = running(connected=False)
    reactor.step(ev.ShutdownBegan(), 2.0)
    reactor.step(ended(0), 2.5)
    told = reactor.step(ev.Welcomed(1), 3.0)
    assert [type(action) for action in told] == [ev.SendGoingDown, ev.SendExit]


def test_nothing_is_started_any_more() -> None:
    reactor = running()
    reactor.step(ev.ShutdownBegan(), 2.0)
    told = reactor.step(ev.Assigned(desired(Phase.PREPARE, 2)), 2.5)
    told += reactor.step(ended(0), 3.0) + reactor.step(ended(1), 3.0)
    told += reactor.step(ev.WorkerEmptied(KEY, 1), 3.0)
    assert not any(isinstance(action, (ev.Prepare, ev.LaunchRanks)) for action in told)
    assert reactor.workers[KEY].state == Empty(1)


def test_what_was_made_ready_is_not_launched() -> None:
    reactor = Reactor(FACTS)
    reactor.step(ev.Welcomed(1), 0.0)
    reactor.step(ev.Assigned(desired(Phase.PREPARE)), 0.0)
    reactor.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 99), 0.0)
    reactor.step(ev.ShutdownBegan(), 1.0)
    assert reactor.wound_down
    assert [type(action) for action in reactor.step(ev.Assigned(desired(Phase.RUN)), 1.0)] == [ev.SendReport]
    assert isinstance(reactor.workers[KEY].state, Prepared)


def test_the_controllers_own_stop_is_obeyed_with_a_shorter_grace() -> None:
    reactor = running()
    reactor.step(ev.ShutdownBegan(), 2.0)
    told = reactor.step(ev.Assigned(desired(Phase.STOP, grace_s=1.0)), 2.5)
    assert told[0] == ev.StopRanks(KEY, 1, 1.0, ExitReason.STOPPED)
    assert isinstance(reactor.workers[KEY].state, Stopping)


def test_the_host_may_go_once_all_is_empty_and_ends_wait_for_their_acknowledgement() -> None:
    reactor = running()
    reactor.step(ev.ShutdownBegan(), 2.0)
    assert not reactor.wound_down
    sent = reactor.step(ended(0), 3.0) + reactor.step(ended(1), 3.0)
    reactor.step(ev.WorkerEmptied(KEY, 1), 3.0)
    assert reactor.wound_down
    assert len(reactor.outbox) == 2
    for action in sent:
        assert isinstance(action, ev.SendExit)
        reactor.step(ev.ExitAcked(action.report.sequence), 4.0)
    assert not reactor.outbox
