"""The agent's reactor while its host shuts down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.agent.desired import FACTS, KEY, desired

from holdfast._session.assignment import Phase
from holdfast._session.reports import Exit, ExitReason, ReportedState
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.states import Empty, Prepared, Running, Stopping


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
    assert told == act.SendGoingDown()
    assert stop == act.StopRanks(KEY, 1, 7.0, ExitReason.STOPPED)
    assert isinstance(report, act.SendReport)
    assert report.report.state is ReportedState.STOPPING


def test_workers_are_stopped_without_a_controller_too() -> None:
    assert running(connected=False).step(ev.ShutdownBegan(), 2.0) == [
        act.StopRanks(KEY, 1, 7.0, ExitReason.STOPPED)
    ]


def test_a_controller_that_comes_back_meanwhile_is_told_before_it_hears_of_any_end() -> None:
    reactor = running(connected=False)
    reactor.step(ev.ShutdownBegan(), 2.0)
    reactor.step(ended(0), 2.5)
    told = reactor.step(ev.Welcomed(1), 3.0)
    assert [type(action) for action in told] == [act.SendGoingDown, act.SendExit]


def test_nothing_is_started_any_more() -> None:
    reactor = running()
    reactor.step(ev.ShutdownBegan(), 2.0)
    told = reactor.step(ev.Assigned(desired(Phase.PREPARE, 2)), 2.5)
    told += reactor.step(ended(0), 3.0) + reactor.step(ended(1), 3.0)
    told += reactor.step(ev.WorkerEmptied(KEY, 1), 3.0)
    assert not any(isinstance(action, (act.Prepare, act.LaunchRanks)) for action in told)
    assert reactor.workers[KEY].state == Empty(1)


def test_what_was_made_ready_is_not_launched() -> None:
    reactor = Reactor(FACTS)
    reactor.step(ev.Welcomed(1), 0.0)
    reactor.step(ev.Assigned(desired(Phase.PREPARE)), 0.0)
    reactor.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 99), 0.0)
    reactor.step(ev.ShutdownBegan(), 1.0)
    assert reactor.wound_down
    assert [type(action) for action in reactor.step(ev.Assigned(desired(Phase.RUN)), 1.0)] == [act.SendReport]
    assert isinstance(reactor.workers[KEY].state, Prepared)


def test_the_controllers_own_stop_is_obeyed_with_a_shorter_grace() -> None:
    reactor = running()
    reactor.step(ev.ShutdownBegan(), 2.0)
    told = reactor.step(ev.Assigned(desired(Phase.STOP, grace_s=1.0)), 2.5)
    assert told[0] == act.StopRanks(KEY, 1, 1.0, ExitReason.STOPPED)
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
        assert isinstance(action, act.SendExit)
        reactor.step(ev.ExitAcked(action.report.sequence), 4.0)
    assert not reactor.outbox


def noticed(*, connected: bool = True) -> Reactor:
    """The same worker, whose job wants SIGUSR1 twenty seconds before."""
    reactor = running(connected=connected)
    worker = reactor.workers[KEY]
    assert worker.desired is not None
    worker.desired = replace(worker.desired, notice_signal=10, notice_s=20.0)
    return reactor


@pytest.mark.parametrize("connected", [True, False])
def test_ranks_that_are_to_be_warned_are_and_stopped_only_after_their_notice(connected: bool) -> None:
    reactor = noticed(connected=connected)
    told = reactor.step(ev.ShutdownAhead(), 2.0)
    assert told == [*([act.SendGoingDown()] if connected else []), act.SignalRanks(KEY, 1, 10)]
    assert reactor.notice_s == 20.0
    stop, *_ = reactor.step(ev.ShutdownBegan(), 22.0)
    assert stop == act.StopRanks(KEY, 1, 7.0, ExitReason.STOPPED)
    assert reactor.notice_s == 0.0


def test_notice_is_over_once_the_ranks_have_ended() -> None:
    reactor = noticed()
    reactor.step(ev.ShutdownAhead(), 2.0)
    for rank in (0, 1):
        reactor.step(ended(rank), 3.0)
    reactor.step(ev.WorkerEmptied(KEY, 1), 3.0)
    assert reactor.notice_s == 0.0


def test_ranks_that_were_warned_before_are_not_warned_again() -> None:
    reactor = noticed()
    worker = reactor.workers[KEY]
    assert worker.desired is not None
    reactor.step(ev.Assigned(replace(worker.desired, warn_signal=10)), 1.5)
    told = reactor.step(ev.ShutdownAhead(), 2.0)
    assert [type(action) for action in told] == [act.SendGoingDown, act.StopRanks, act.SendReport]


def test_ranks_without_a_warning_are_stopped_at_once() -> None:
    told = running().step(ev.ShutdownAhead(), 2.0)
    assert [type(action) for action in told] == [act.SendGoingDown, act.StopRanks, act.SendReport]
