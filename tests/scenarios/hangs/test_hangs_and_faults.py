"""Hangs while other things go wrong: evidence, ranks, jobs and controllers that end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.hang_stories import DUMPS, NOTICED, RESTARTED, comes_back, hangs_until_restart, job_of, newest
from tests.scenarios.training import IN_LOADER, Training, training

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast._session.reports import ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.timers import JobTimer

# --- Evidence that doesn't come as it should ----------------------------------------------------------------------


def test_evidence_that_never_comes_delays_the_act_and_no_more(program: Training) -> None:
    assert program.stands_still(35) == NOTICED
    told = program.stands_still(60)
    assert told == RESTARTED
    assert newest(program).stacks == ""


def test_hosts_that_can_give_no_evidence_say_so(program: Training) -> None:
    program.stands_still(35)
    for _ in range(2):  # They are asked once more.
        for worker in (0, 1):
            assert program.world.evidence("a", worker, problem="no such worker here") == []
        told = program.stands_still(9)
    assert "a stacks: none" in told
    assert program.stands_still(40) == RESTARTED


def test_hosts_that_went_away_midway_are_asked_again_when_they_are_back(program: Training) -> None:
    program.stands_still(35)
    for worker in (0, 1):
        assert program.world.evidence("a", worker, problem="the host went away") == []
    assert newest(program).stacks == ""
    program.stands_still(9)
    for worker in (0, 1):
        program.world.evidence("a", worker, program.dumps(worker, IN_LOADER))
    assert program.stands_still(40)
    assert newest(program).outcome is HangOutcome.RESTARTED
    assert newest(program).stacks


def test_host_that_goes_away_midway_leaves_the_others_evidence(program: Training) -> None:
    program.stands_still(35)
    program.world.evidence("a", 0, program.dumps(0))
    program.world.hang_up("host-1")
    program.beating = ("host-0",)
    assert program.world.evidence("a", 1, problem="the host went away") == []
    assert program.world.wait(0) == ["a stacks: workerpool0-0 rank 0 waits in all_reduce"]
    assert not any("RESTARTED" in line for line in program.stands_still(600))


@pytest.mark.parametrize(
    "late",
    [
        lambda p: p.world.evidence("a", 0, p.dumps(0), generation=1),
        lambda p: p.world.evidence("a", 0, p.dumps(0), host="host-1"),
        lambda p: p.world.evidence("a", 0, p.dumps(0), dump=7),
    ],
)
def test_evidence_of_something_else_is_not_believed(
    program: Training, late: Callable[[Training], list[str]]
) -> None:
    hangs_until_restart(program)
    program.restarts()
    program.trains(300)
    program.stands_still(35)
    assert late(program) == []
    assert program.world.wait(0) == []


def test_answer_to_an_earlier_suspicion_is_no_answer_to_this_one(program: Training) -> None:
    program.stands_still(35)
    program.trains(60)
    told = program.stands_still(200)
    assert "> host-0 dump 2 of a workerpool0-0 g1" in told
    program.world.evidence("a", 0, program.dumps(0), dump=1)
    program.world.evidence("a", 1, program.dumps(1), dump=1)
    assert newest(program).stacks == ""


def test_evidence_counts_once(program: Training) -> None:
    program.stands_still(35)
    program.world.evidence("a", 0, program.dumps(0))
    assert program.world.evidence("a", 0, program.dumps(0)) == []
    assert program.world.wait(0) == []


@pytest.mark.parametrize("how", ["cancel", "fail"])
def test_job_that_ends_while_suspect_ends_as_ever(program: Training, how: str) -> None:
    program.stands_still(35)
    if how == "cancel":
        told = program.world.cancel("a")
        assert told == [
            "a cancelled by ann",
            "a ending CANCELLED",
            "> reply a",
            "> host-0 STOP a w0 g1",
            "> host-1 STOP a w1 g1",
        ]
        orders = [a.assignment for a in program.world.sent if isinstance(a, act.Assign)][-2:]
        assert [(o.stop_reason, o.grace_s) for o in orders] == [(ExitReason.STOPPED, 10.0)] * 2
    else:
        assert "a restarts as g2: NONZERO_EXIT of workerpool0-0 rank 0, w0 pays" in program.world.exit("a", 0, 7)
        assert not any(hang.open and hang.generation == 2 for hang in job_of(program).hangs)
        program.world.cancel("a")
    assert program.world.evidence("a", 0, program.dumps(0), generation=1) == []
    assert program.stands_still(100) == []
    program.world.empty("a")
    assert job_of(program).state is JobState.CANCELLED
    assert program.world.evidence("a", 1, program.dumps(1), generation=1) == []
    assert program.stands_still(100) == []
    assert not program.world.cluster.watches
    assert not program.world.cluster.runtime


# --- Ranks that end -----------------------------------------------------------------------------------------------


def test_rank_that_ends_with_success_while_its_peers_wait_is_suspect(program: Training) -> None:
    """Its host tells nothing more of it; its end is known all the same."""
    program.world.exit("a", 1, 0)
    program.mute = {1}
    told = program.stands_still(20)
    assert told == ["a hangs g1 since 10 s: STUCK_RANK of workerpool1-0 rank 1", DUMPS[0]]
    program.world.evidence("a", 0, program.dumps(0))
    told = program.stands_still(60)
    assert told == [
        "a stacks: workerpool0-0 rank 0 waits in all_reduce",
        "a hang RESTARTED",
        "a restarts as g2: HANG of workerpool1-0 rank 1, free",
        "> host-0 PREPARE a w0 g2",
        "> host-1 PREPARE a w1 g2",
    ]


def test_rank_that_ended_is_known_after_a_restart_of_the_controller_too(program: Training) -> None:
    program.world.exit("a", 1, 0)
    comes_back(program, states=("RUNNING", "EMPTY"))
    program.mute = {1}
    assert program.trains(60) == []
    told = program.stands_still(20)
    assert told[0] == "a hangs g1 since 10 s: STUCK_RANK of workerpool1-0 rank 1", "since its peers miss it"


def test_others_may_stand_still_once_the_primary_is_done() -> None:
    program = training(success=SuccessPolicy.PRIMARY, end_grace_s=900.0)
    assert "a primary completed" in program.world.exit("a", 0, 0)
    program.mute = {0}
    assert program.stands_still(800) == []
    assert "a ending SUCCEEDED" in program.stands_still(200)


def test_looks_stop_when_the_job_ends(program: Training) -> None:
    program.world.cancel("a")
    program.world.empty("a")
    program.world.wait(10, beating=program.beating)
    assert not [key for key in program.world.reactor.timers.due if key[0] is JobTimer.HANG]
    assert [e for e in program.world.log if isinstance(e, ev.HangNoticed)] == []
