"""A controller that restarts while gangs hang, or before they do: nothing learned is lost, nothing is rash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.hang_stories import NOTICED, answer, comes_back, hangs_until_restart, job_of
from tests.scenarios.training import Training

from holdfast.hang.pipeline.features import Motion
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.step.commands import StoodStill, TimePassed

# --- While a gang hangs -------------------------------------------------------------------------------------------


def suspect(program: Training) -> None:
    program.changes[0] = {"motion": Motion.BURNING}
    program.stands_still(35)


def noticed(program: Training) -> None:
    program.stands_still(35)


def half_diagnosed(program: Training) -> None:
    noticed(program)
    program.world.evidence("a", 0, program.dumps(0))


def diagnosed(program: Training) -> None:
    noticed(program)
    answer(program)
    program.world.wait(0)


def withheld(program: Training) -> None:
    program.world.hold("a", 100)
    program.stands_still(90)


RUNGS = [suspect, noticed, half_diagnosed, diagnosed, withheld]


@pytest.mark.parametrize("down_s", [1.0, 300.0])
@pytest.mark.parametrize("rung", RUNGS)
def test_restart_of_the_controller_leads_to_no_rash_verdict(
    program: Training, rung: Callable[[Training], None], down_s: float
) -> None:
    """The evidence is taken anew first. What was told stays told, and is over once the gang moves."""
    rung(program)
    hangs = len(job_of(program).hangs)
    comes_back(program, down_s=down_s)
    told = program.stands_still(25)
    assert [line for line in told if " dump " not in line] == []
    assert len(job_of(program).hangs) == hangs
    program.changes = {}
    told = program.trains(60)
    assert told == (["a moves again"] if hangs else [])
    assert program.trains(300) == []


@pytest.mark.parametrize("rung", RUNGS)
def test_hang_is_still_found_after_a_restart_of_the_controller(
    program: Training, rung: Callable[[Training], None]
) -> None:
    """What was learned is remembered, so it is found as fast as ever; nobody is told twice."""
    rung(program)
    hangs = len(job_of(program).hangs)
    comes_back(program)
    program.changes = {}
    told = program.stands_still(120)
    assert len([line for line in told if " hangs " in line]) == 1 - hangs
    assert "a hang RESTARTED" in told
    assert len(job_of(program).hangs) == 1


def test_restart_between_the_verdict_and_the_launch_goes_on_with_it(program: Training) -> None:
    hangs_until_restart(program)
    comes_back(program)
    assert "a launched g2" in program.restarts()
    program.trains(60)
    assert (job_of(program).budgets.hang_restarts, job_of(program).last_end) == (1, EndReason.HANG)


def test_wait_for_the_ceiling_goes_on_after_a_restart_of_the_controller(program: Training) -> None:
    """Silence alone is acted on after 30 min in all, of which no more than a minute is lost by the restart."""
    program.changes = {rank: {"motion": Motion.BURNING} for rank in (0, 1)}
    program.stands_still(1200)
    comes_back(program, down_s=600)
    assert not any("RESTARTED" in line for line in program.stands_still(540))
    assert any("RESTARTED" in line for line in program.stands_still(150))


# --- Before it does -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down_s", [1.0, 300.0, 86_400.0])
def test_steady_job_is_known_as_steady_after_a_restart_of_the_controller(program: Training, down_s: float) -> None:
    comes_back(program, down_s=down_s)
    assert program.trains(20) == []
    assert program.stands_still(30) == []
    assert program.stands_still(5) == NOTICED
    answer(program)
    assert "a hang RESTARTED" in program.stands_still(35)


def test_pause_that_was_survived_before_a_restart_is_no_hang_after_it(program: Training) -> None:
    program.stands_still(55)
    program.trains(30)
    comes_back(program)
    program.trains(20)
    assert program.stands_still(150) == []


def test_wall_clock_that_jumps_while_the_controller_is_down_changes_nothing(program: Training) -> None:
    for jump in (90_000.0, -200_000.0):
        program.world.jumped += jump
        comes_back(program)
        assert program.trains(60) == []
    assert program.stands_still(35) == NOTICED


def test_watch_of_another_generation_tells_only_how_long_the_start_took(program: Training) -> None:
    hangs_until_restart(program)
    program.wait = None
    comes_back(program)
    program.restarts()
    assert program.stands_still(180) == []
    generation, watch = program.world.cluster.watches["a"]
    assert (generation, watch.started_s) == (2, None)
    assert watch.earlier_start_s == pytest.approx(40, abs=1)
    assert program.stands_still(15)[:1] == ["a hangs g2 since 180 s: GPUS_IDLE"]


@pytest.mark.parametrize("down_s", [1.0, 3600.0])
def test_checkpoint_from_before_the_controller_was_away_is_this_generations(
    program: Training, down_s: float
) -> None:
    program.checkpoint_s = program.world.mono
    program.trains(60)
    comes_back(program, down_s=down_s)
    program.trains(20)
    program.world.exit("a", 1, 1)
    program.world.wait(2.0, beating=program.beating)
    assert job_of(program).generation == 2
    assert job_of(program).budgets.checkpointed


def test_lost_watch_begins_anew(program: Training) -> None:
    program.world.kept.clear()
    comes_back(program)
    program.trains(20)
    program.wait = None
    assert program.stands_still(1500) == []


# --- What is written ----------------------------------------------------------------------------------------------


def test_steady_job_is_hardly_ever_written_down(program: Training) -> None:
    before = dict(program.world.kept)
    program.trains(3600)
    assert program.world.kept == before
    assert len(before["a"]) < 1000


def test_nothing_is_kept_of_a_job_that_ends(program: Training) -> None:
    assert set(program.world.kept) == {"a"}
    program.world.cancel("a")
    assert program.world.kept == {}


# --- A controller that stands still -------------------------------------------------------------------------------


@pytest.mark.parametrize("still_s", [10.0, 60.0, 300.0])
def test_a_controller_that_stood_still_finds_no_hang_for_it(program: Training, still_s: float) -> None:
    """Looks that were due are made before what agents have said meanwhile is read."""
    program.trains(300)
    program.world.mono += still_s
    told = program.world.step(StoodStill(still_s)) + program.world.step(TimePassed())
    assert told == []
    assert program.trains(300) == []
    assert job_of(program).hangs == []
