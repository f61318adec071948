"""The table of a place's standings, and that nothing but the table is possible."""

from __future__ import annotations

import pytest
from tests.unit.agent.desired import KEY

from holdfast._session.reports import ReportedState
from holdfast_agent.core.worker.worker import (
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
    Place,
    Prepared,
    Preparing,
    Running,
    Standing,
    State,
    Stopping,
    Stuck,
    Withheld,
)

STANDINGS: dict[State, Standing] = {
    standing.state: standing
    for standing in (
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
        Withheld(1, "GPU 0 holds 90 MiB"),
        Closing(1),
        Forgetting(1),
        Forgotten(1),
    )
}


def test_table_has_every_state() -> None:
    assert set(TRANSITIONS) == set(State) == set(STANDINGS)


def test_every_state_is_reachable_from_an_empty_place() -> None:
    reached = {State.EMPTY}
    while fresh := {after for state in reached for after in TRANSITIONS[state]} - reached:
        reached |= fresh
    assert reached == set(State)


def test_only_a_forgotten_place_has_no_way_out() -> None:
    assert [state for state, after in TRANSITIONS.items() if not after] == [State.FORGOTTEN]


def test_every_other_state_leads_back_to_empty() -> None:
    for start in set(State) - {State.FORGETTING, State.FORGOTTEN}:
        reached = {start}
        while fresh := {after for state in reached for after in TRANSITIONS[state]} - reached:
            reached |= fresh
        assert State.EMPTY in reached, start


def test_nothing_is_launched_but_from_prepared() -> None:
    assert [state for state, after in TRANSITIONS.items() if State.LAUNCHING in after] == [State.PREPARED]


def test_what_may_have_processes_gets_ready_again_only_through_empty() -> None:
    live = {State.LAUNCHING, State.RUNNING, State.STOPPING, State.STUCK, State.LOST}
    live |= {State.FREEING, State.WITHHELD}
    for state in live:
        assert not TRANSITIONS[state] & {State.PREPARING, State.PREPARED, State.LAUNCHING, State.FORGETTING}, state


def test_place_is_found_where_files_can_tell() -> None:
    assert {State.EMPTY, State.RUNNING, State.STOPPING, State.LOST, State.FREEING} == FOUND


def test_gpus_that_are_not_free_keep_a_place_from_everything_but_being_looked_at() -> None:
    assert TRANSITIONS[State.FREEING] == {State.FREEING, State.WITHHELD, State.EMPTY}
    assert TRANSITIONS[State.WITHHELD] == {State.WITHHELD, State.EMPTY}


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_moves_follow_the_table(before: State, after: State) -> None:
    place = Place(KEY, standing=STANDINGS[before])
    if after in TRANSITIONS[before]:
        place.move(STANDINGS[after])
        assert place.standing is STANDINGS[after]
    else:
        with pytest.raises(IllegalTransition):
            place.move(STANDINGS[after])


def test_every_state_is_reported_and_every_reported_state_occurs() -> None:
    assert {state.reported for state in State} == set(ReportedState)
