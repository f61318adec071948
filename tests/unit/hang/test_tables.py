"""The two state tables: every state is reachable, and ends where it should."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import pytest

from holdfast.hang import ladder, phase
from holdfast.hang.ladder import Rung, climb
from holdfast.hang.phase import Facts, Phase, next_phase


def reachable(table: Mapping[enum.Enum, Iterable[enum.Enum]], start: enum.Enum) -> set[enum.Enum]:
    found, todo = {start}, [start]
    while todo:
        for state in table[todo.pop()]:
            if state not in found:
                found.add(state)
                todo.append(state)
    return found


def test_every_phase_and_rung_is_listed_and_reachable() -> None:
    assert reachable(phase.TRANSITIONS, Phase.STARTUP) == set(Phase) == set(phase.TRANSITIONS)
    assert reachable(ladder.TRANSITIONS, Rung.HEALTHY) == set(Rung) == set(ladder.TRANSITIONS)


def test_only_a_stuck_place_has_no_way_out() -> None:
    assert [rung for rung in Rung if not ladder.TRANSITIONS[rung]] == [Rung.STUCK]


def test_a_kill_is_never_taken_back_nor_given_without_confirmation() -> None:
    assert Rung.HEALTHY not in ladder.TRANSITIONS[Rung.ACTED]
    assert {rung for rung in Rung if Rung.ACTED in ladder.TRANSITIONS[rung]} == {Rung.CONFIRMED, Rung.WITHHELD}


def test_a_way_that_is_not_listed_is_an_error() -> None:
    with pytest.raises(ValueError, match="no way from HEALTHY to ACTED"):
        climb(Rung.HEALTHY, Rung.ACTED)
    with pytest.raises(ValueError, match="no way from STEADY to STARTUP"):
        next_phase(Phase.STEADY, Facts(started=False))


def test_what_a_person_does_goes_before_what_the_job_does() -> None:
    everything = Facts(True, declared_idle=True, traced=True, checkpoint=True, lone_work=True, host_busy=True)
    assert next_phase(Phase.STEADY, everything) is Phase.DECLARED_IDLE
    assert next_phase(Phase.STEADY, Facts(True, traced=True, checkpoint=True)) is Phase.DEBUGGED
    assert next_phase(Phase.STEADY, Facts(True, checkpoint=True, lone_work=True)) is Phase.CHECKPOINT
    assert next_phase(Phase.STEADY, Facts(True, lone_work=True, host_busy=True)) is Phase.LONE_WORK
    assert next_phase(Phase.CHECKPOINT, Facts(True)) is Phase.STEADY
    assert next_phase(Phase.HOST_BUSY, Facts(False)) is Phase.STARTUP
