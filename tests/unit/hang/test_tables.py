"""The two state tables: every state is reachable, and ends where it should."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.hang.judge import stages
from holdfast.hang.judge.stages import Rung, climb
from holdfast.hang.pipeline import phase
from holdfast.hang.pipeline.phase import Facts, Phase, next_phase
from holdfast.hang.thresholds import Tuning

State = TypeVar("State", bound=enum.Enum)


def reachable(table: Mapping[State, Iterable[State]], start: State) -> set[State]:
    found, todo = {start}, [start]
    while todo:
        for state in table[todo.pop()]:
            if state not in found:
                found.add(state)
                todo.append(state)
    return found


def test_every_phase_and_rung_is_listed_and_reachable() -> None:
    assert reachable(phase.TRANSITIONS, Phase.STARTUP) == set(Phase) == set(phase.TRANSITIONS)
    assert reachable(stages.TRANSITIONS, Rung.HEALTHY) == set(Rung) == set(stages.TRANSITIONS)


def test_only_a_stuck_place_has_no_way_out() -> None:
    assert [rung for rung in Rung if not stages.TRANSITIONS[rung]] == [Rung.STUCK]


def test_a_kill_is_never_taken_back_nor_given_without_confirmation() -> None:
    assert Rung.HEALTHY not in stages.TRANSITIONS[Rung.ACTED]
    assert {rung for rung in Rung if Rung.ACTED in stages.TRANSITIONS[rung]} == {Rung.CONFIRMED, Rung.SUPPRESSED}


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


def test_the_page_draws_the_ladder_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs/internals/hang-evaluation.md").read_text()
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", page, re.MULTILINE))
    assert drawn == {(rung.name, to.name) for rung, following in stages.TRANSITIONS.items() for to in following}


def test_every_constant_of_log_silence_is_on_the_page_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs/internals/hang-evaluation.md").read_text()
    tuning = Tuning()
    assert f"| `silence_floor_s` | {tuning.silence_floor_s:.0f} s |" in page
    assert f"| `silence_factor` | {tuning.silence_factor:.0f} × longest gap of the stretch |" in page
    assert f"| `gap_spread` | {tuning.gap_spread} × |" in page
    assert f"| `stretch_gap_min_s` | {tuning.stretch_gap_min_s:.0f} s |" in page
    assert f"({tuning.settle_gap_min_s:.0f} s or more) over {tuning.settle_span_s:.0f} s of a stretch" in page
    assert f"| `startup_s` | {tuning.startup_s / 60:.0f} min |" in page
    assert f"or {tuning.settle_age_s:.0f} s of progress, a quarter" in page
    assert f"| `ceiling_factor` | {tuning.ceiling_factor:.0f} × longest gap survived |" in page
    assert f"| `ceiling_s` | {tuning.ceiling_s / 60:.0f} min |" in page
    assert f"| `startup_ceiling_s` | {tuning.startup_ceiling_s / 60:.0f} min |" in page
