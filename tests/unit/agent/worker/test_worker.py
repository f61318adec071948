"""The table of a place's standings, and that nothing but the table is possible."""

from __future__ import annotations

import pytest
from tests.unit.agent.desired import KEY

from holdfast._session.reports import ReportedState
from holdfast_agent.core.worker.states import (
    FOUND,
    TRANSITIONS,
    CannotPrepare,
    Closing,
    Empty,
    Forgetting,
    Forgotten,
    Freeing,
    IllegalTransition,
    Launching,
    Lost,
    Prepared,
    Preparing,
    Quarantined,
    Running,
    State,
    StateKind,
    Stopping,
    Stuck,
)
from holdfast_agent.core.worker.worker import Worker

STATES: dict[StateKind, State] = {
    state.kind: state
    for state in (
        Empty(1),
        Preparing(1),
        Prepared(1, 2, 3),
        CannotPrepare(1, "no"),
        Launching(1, 2, 3),
        Running(1),
        Stopping(1),
        Stuck(1, "7 (D)"),
        Lost(1),
        Freeing(1, 100.0, 0.05),
        Quarantined(1, "GPU 0 holds 90 MiB"),
        Closing(1),
        Forgetting(1),
        Forgotten(1),
    )
}


def test_table_has_every_state() -> None:
    assert set(TRANSITIONS) == set(StateKind) == set(STATES)


def test_every_state_is_reachable_from_an_empty_place() -> None:
    reached = {StateKind.EMPTY}
    while fresh := {after for state in reached for after in TRANSITIONS[state]} - reached:
        reached |= fresh
    assert reached == set(StateKind)


def test_only_a_forgotten_place_has_no_way_out() -> None:
    assert [state for state, after in TRANSITIONS.items() if not after] == [StateKind.FORGOTTEN]


def test_every_other_state_leads_back_to_empty() -> None:
    for start in set(StateKind) - {StateKind.FORGETTING, StateKind.FORGOTTEN}:
        reached = {start}
        while fresh := {after for state in reached for after in TRANSITIONS[state]} - reached:
            reached |= fresh
        assert StateKind.EMPTY in reached, start


def test_nothing_is_launched_but_from_prepared() -> None:
    assert [state for state, after in TRANSITIONS.items() if StateKind.LAUNCHING in after] == [StateKind.PREPARED]


def test_what_may_have_processes_gets_ready_again_only_through_empty() -> None:
    live = {StateKind.LAUNCHING, StateKind.RUNNING, StateKind.STOPPING, StateKind.STUCK, StateKind.LOST}
    live |= {StateKind.FREEING, StateKind.QUARANTINED}
    for state in live:
        assert not TRANSITIONS[state] & {
            StateKind.PREPARING,
            StateKind.PREPARED,
            StateKind.LAUNCHING,
            StateKind.FORGETTING,
        }, state


def test_place_is_found_where_files_can_tell() -> None:
    assert {StateKind.EMPTY, StateKind.RUNNING, StateKind.STOPPING, StateKind.LOST, StateKind.FREEING} == FOUND


def test_gpus_that_are_not_free_keep_a_place_from_everything_but_being_looked_at() -> None:
    assert TRANSITIONS[StateKind.FREEING] == {StateKind.FREEING, StateKind.QUARANTINED, StateKind.EMPTY}
    assert TRANSITIONS[StateKind.QUARANTINED] == {StateKind.QUARANTINED, StateKind.EMPTY}


@pytest.mark.parametrize("before", StateKind)
@pytest.mark.parametrize("after", StateKind)
def test_moves_follow_the_table(before: StateKind, after: StateKind) -> None:
    worker = Worker(KEY, state=STATES[before])
    if after in TRANSITIONS[before]:
        worker.move(STATES[after])
        assert worker.state is STATES[after]
    else:
        with pytest.raises(IllegalTransition):
            worker.move(STATES[after])


def test_every_state_is_reported_and_every_reported_state_occurs() -> None:
    assert {state.reported for state in StateKind} == set(ReportedState)
