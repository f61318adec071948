"""What a controller hears of work that is there already: in the hello, and right after its welcome."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.agent.desired import KEY, desired
from tests.unit.agent.worker.test_reactor import EXITED_0, EXITED_7, Agent

from holdfast._session.assignment import Phase
from holdfast._session.reports import ExitReport, ReportedState
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev


@pytest.mark.parametrize(
    ("journal", "shim_pid", "state"),
    [
        (ev.Journal(1, (0, 1), started=((0, 8), (1, 9))), 77, "RUNNING"),
        (ev.Journal(1, (0, 1), stopping=True), 77, "STOPPING"),
        (ev.Journal(1, (0, 1), empty=True), 77, "EMPTY"),
        (ev.Journal(1, (0, 1)), 0, "STOPPING"),
    ],
)
def test_place_of_an_earlier_life_is_in_the_hello(journal: ev.Journal, shim_pid: int, state: str) -> None:
    agent = Agent(connected=False)
    actions = agent.on(ev.WorkerFound(KEY, ((1, 4),), (journal,), frozenset(), shim_pid))
    assert actions == ([act.ClearOrphans(KEY, 1)] if not shim_pid else [])
    [hello] = agent.on(ev.Dialled())
    assert isinstance(hello, act.SendHello)
    [said] = hello.reports
    assert (said.state.name, said.attempt, said.generation) == (state, 4, 1)


def test_exits_of_an_earlier_life_are_sent_unless_acknowledged() -> None:
    agent = Agent(connected=False)
    old = ev.Journal(1, (0, 1), exits=(EXITED_0, EXITED_7), empty=True)
    new = ev.Journal(2, (0, 1), exits=(replace(EXITED_0, generation=2),))
    agent.on(ev.WorkerFound(KEY, ((1, 1), (2, 2)), (old, new), frozenset({(1, 0)}), 77))
    assert agent.on(ev.Welcomed(1)) == [
        act.PersistEpoch(1),
        act.SendExit(ExitReport(1, KEY, EXITED_7)),
        act.SendExit(ExitReport(2, KEY, replace(EXITED_0, attempt=2, generation=2))),
    ]


def test_work_that_ends_between_hello_and_welcome_is_said_to_be_gone_unasked() -> None:
    agent = Agent(connected=False)
    agent.on(ev.WorkerFound(KEY, ((1, 1),), (ev.Journal(1, (0,), started=((0, 8),)),), frozenset(), 77))
    [hello] = agent.on(ev.Dialled())
    assert isinstance(hello, act.SendHello) and hello.reports[0].state is ReportedState.RUNNING
    agent.on(ev.RankExited(KEY, EXITED_0))
    assert not any(isinstance(action, act.SendReport) for action in agent.on(ev.WorkerEmptied(KEY, 1)))
    # A controller that doesn't know the job assigns nothing, which would be answered.
    _, exited, gone = agent.on(ev.Welcomed(1))
    assert isinstance(exited, act.SendExit) and isinstance(gone, act.SendReport)
    assert gone.report.state is ReportedState.EMPTY
    agent.on(ev.Disconnected())
    [hello] = agent.on(ev.Dialled())
    assert isinstance(hello, act.SendHello) and hello.reports[0].state is ReportedState.EMPTY
    assert not any(isinstance(action, act.SendReport) for action in agent.on(ev.Welcomed(1)))


def test_place_that_was_prepared_and_never_launched_is_said_to_be_empty_and_then_launched() -> None:
    agent = Agent(connected=False)
    agent.on(ev.WorkerFound(KEY, ((1, 1),), (), frozenset(), 77))
    (hello,) = agent.on(ev.Dialled())
    assert isinstance(hello, act.SendHello)
    assert [(report.key, report.generation, report.state.name) for report in hello.reports] == [(KEY, 0, "EMPTY")]
    agent.on(ev.Welcomed(1))
    assert isinstance(agent.on(ev.Assigned(desired(Phase.RUN)))[0], act.Prepare)


@pytest.mark.parametrize("shim_pid", [77, 0])
def test_such_a_place_is_kept_until_the_controller_has_heard_of_it_and_then_forgotten(shim_pid: int) -> None:
    agent = Agent(connected=False)
    assert agent.on(ev.WorkerFound(KEY, ((1, 1),), (), frozenset(), shim_pid)) == []
    if shim_pid:
        assert agent.on(ev.ShimGreeted(KEY, shim_pid, 0, live=False)) == []
        assert agent.on(ev.ShimLost(KEY)) == []
    for _ in range(2):  # the first controller was cut off before it could answer anything
        (hello,) = agent.on(ev.Dialled())
        assert isinstance(hello, act.SendHello)
        assert [report.key for report in hello.reports] == [KEY]
        agent.on(ev.Welcomed(1))
        assert agent.on(ev.ControllerHeard(5.0)) == []
        agent.on(ev.Disconnected())
    agent.on(ev.Dialled())
    agent.on(ev.Welcomed(1))
    assert agent.on(ev.ControllerHeard(6.0)) == [], "that was the hello's answer, which orders follow"
    assert agent.on(ev.ControllerHeard(8.0)) == [act.Forget(KEY)]
    assert agent.on(ev.ControllerHeard(10.0)) == []
