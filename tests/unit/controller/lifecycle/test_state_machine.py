"""The job's transition table, walked."""

from __future__ import annotations

import itertools

import pytest

from holdfast_controller.core.model.job_state import TERMINAL, TRANSITIONS, IllegalTransition, JobState, checked


def test_table_has_a_row_for_every_state() -> None:
    assert set(TRANSITIONS) == set(JobState)


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, found = set(), {JobState.QUEUED}
    while found:
        reached |= found
        found = set().union(*(TRANSITIONS[state] for state in found)) - reached
    assert reached == set(JobState)


def test_terminal_states_are_the_four_ends_and_have_no_way_out() -> None:
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED} == TERMINAL
    assert all(not TRANSITIONS[state] for state in TERMINAL)


def test_an_end_can_be_reached_from_every_state() -> None:
    for state in set(JobState) - TERMINAL:
        reached, found = set(), {state}
        while found:
            reached |= found
            found = set().union(*(TRANSITIONS[s] for s in found)) - reached
        assert reached & TERMINAL


@pytest.mark.parametrize(("now", "following"), list(itertools.product(JobState, JobState)))
def test_only_listed_pairs_pass(now: JobState, following: JobState) -> None:
    if following in TRANSITIONS[now]:
        assert checked(now, following) is following
    else:
        with pytest.raises(IllegalTransition, match=f"{now.name} -> {following.name}"):
            checked(now, following)
