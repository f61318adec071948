"""A hang that was acted on, and a host that can't get rid of what hung there."""

from __future__ import annotations

import pytest
from tests.scenarios.hang_stories import comes_back, hangs_until_restart, job_of, newest
from tests.scenarios.training import Training, training
from tests.scenarios.world import gang

from holdfast.hang.judge.stages import Rung
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.job_state import JobState

WHY = "pid 1001 is in uninterruptible sleep"


def test_host_that_cannot_be_emptied_is_told_cordoned_and_waited_for(program: Training) -> None:
    hangs_until_restart(program)
    world = program.world
    assert world.report("a", 1, "STUCK", message=WHY) == [f"a stuck on host-1: {WHY}", "host-1 cordoned"]
    hang = newest(program)
    assert (hang.outcome, hang.note) == (HangOutcome.RESTARTED, f"host-1 could not be emptied: {WHY}")
    host = world.cluster.hosts["host-1"]
    assert (host.cordoned, host.cordon_reason) == (True, f"workerpool1-0 of a outlives KILL after a hang: {WHY}")
    assert world.cluster.watches["a"][1].rung is Rung.STUCK
    assert world.report("a", 1, "STUCK", message=WHY) == []
    assert world.exit("a", 0, "HANG_KILLED:9", 1)
    assert world.report("a", 0, "PREPARED") == []
    assert world.wait(4000, beating=program.beating) == []
    assert job_of(program).generation == 2


def test_host_that_gets_unstuck_lets_the_restart_go_on_and_stays_cordoned(program: Training) -> None:
    hangs_until_restart(program)
    program.world.report("a", 1, "STUCK", message=WHY)
    program.world.wait(600, beating=program.beating)
    assert "a launched g2" in program.restarts()
    assert program.trains(120) == []
    assert program.world.cluster.hosts["host-1"].cordoned
    assert program.world.uncordon("host-1") == ["host-1 uncordoned", "> reply host-1"]


def test_stuck_host_is_told_once_across_a_restart_of_the_controller(program: Training) -> None:
    hangs_until_restart(program)
    program.world.report("a", 1, "STUCK", message=WHY)
    before = len(program.world.log)
    comes_back(program, states=("PREPARING", "STUCK"))
    assert len(program.world.log) == before


def test_stuck_host_that_an_admin_uncordons_is_not_cordoned_again(program: Training) -> None:
    hangs_until_restart(program)
    program.world.report("a", 1, "STUCK", message=WHY)
    program.world.uncordon("host-1")
    assert program.world.report("a", 1, "STUCK", message="still") == []


def test_host_that_was_cordoned_before_keeps_its_reason(program: Training) -> None:
    hangs_until_restart(program)
    program.world.cordon("host-1", "disk")
    assert program.world.report("a", 1, "STUCK", message=WHY) == [f"a stuck on host-1: {WHY}"]
    assert program.world.cluster.hosts["host-1"].cordon_reason == "disk"


def test_cordoned_host_gets_no_other_work() -> None:
    program = training(hosts=2)
    hangs_until_restart(program)
    program.world.report("a", 1, "STUCK", message=WHY)
    program.world.cancel("a")
    program.world.report("a", 0, "EMPTY")
    program.world.report("a", 1, "EMPTY")
    told = program.world.submit("b", gang(2))
    assert any("b queued" in line for line in told)


def test_last_hang_of_a_job_escalates_too() -> None:
    program = training(max_hang_restarts=0)
    told = hangs_until_restart(program)
    assert "a hang BUDGET_SPENT" in told
    assert program.world.report("a", 1, "STUCK", message=WHY) == [f"a stuck on host-1: {WHY}", "host-1 cordoned"]
    program.world.empty("a")
    assert job_of(program).state is JobState.FAILED


@pytest.mark.parametrize("how", ["cancel", "restart"])
def test_place_that_is_stuck_for_another_reason_is_no_matter_of_the_hang(program: Training, how: str) -> None:
    program.stands_still(35)
    getattr(program.world, how)("a")
    assert program.world.report("a", 1, "STUCK", message=WHY) == []
    assert newest(program).stuck_hosts == ()
