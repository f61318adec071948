"""A gang that stands still: noticed, looked into, and acted on as its job asks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.hang_stories import (
    DUMPS,
    NOTICED,
    RESTARTED,
    STACKS,
    answer,
    hangs_until_restart,
    job_of,
    newest,
)
from tests.scenarios.training import IN_LOADER, IN_LOOP, Training, training
from tests.scenarios.world import launch_of

from holdfast._base.job_file.choices import HangAction
from holdfast._session.assignment import WarmStart
from holdfast._session.reports import ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast.hang.pipeline.features import Motion
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, RankName, Recover, StartType
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.assignment import desired
from holdfast_controller.core.step.timers import JobTimer

# --- The ladder, as it should be ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "held", "follows"),
    [
        (HangAction.RESTART, False, "relaunched in 30 s unless it moves; now by: holdfast job restart a"),
        (HangAction.RESTART, True, "relaunched in 59 min unless it moves; now by: holdfast job restart a"),
        (
            HangAction.NOTIFY,
            False,
            "nothing is done about it without --restart-on-hang; relaunch it with: holdfast job restart a",
        ),
    ],
)
def test_notice_says_when_it_is_acted_on_and_what_does_that_now(
    action: HangAction, held: bool, follows: str
) -> None:
    program = training(action=action)
    if held:
        program.world.hold("a", 3600.0)
    program.stands_still(40)
    (noticed,) = (event for event in program.world.log if isinstance(event, ev.HangNoticed))
    assert message_of(noticed, job_of(program)).endswith(f"; {follows}")


def test_notice_that_is_due_at_once_says_what_comes_before_the_relaunch() -> None:
    program = training(action=HangAction.RESTART)
    program.stands_still(40)
    (noticed,) = (event for event in program.world.log if isinstance(event, ev.HangNoticed))
    said = message_of(replace(noticed, acts_at=noticed.at), job_of(program))
    assert "; relaunched once its stacks are taken unless it moves; now by: holdfast job restart a" in said


def test_notice_promises_no_relaunch_that_is_not_left() -> None:
    program = training(max_hang_restarts=0)
    program.stands_still(40)
    (noticed,) = (event for event in program.world.log if isinstance(event, ev.HangNoticed))
    said = message_of(noticed, job_of(program))
    assert "; no restart in place is left: unless it moves, in 30 s it goes to other hosts" in said
    assert said.endswith("relaunched now by: holdfast job restart a")


def test_gang_that_goes_still_is_noticed_looked_into_and_relaunched_in_place(program: Training) -> None:
    assert program.stands_still(30) == []
    assert program.stands_still(5) == NOTICED
    assert program.world.evidence("a", 0, program.dumps(0)) == ["> keep a hang 1 workerpool0-0"]
    assert program.world.evidence("a", 1, program.dumps(1)) == ["> keep a hang 1 workerpool1-0"]
    assert program.world.wait(0) == [STACKS]
    assert program.stands_still(25) == []
    assert program.stands_still(5) == RESTARTED
    job, world = job_of(program), program.world
    assert (job.generation, job.attempt, job.budgets.spent.worker_restarts, job.budgets.hang_restarts) == (
        2,
        1,
        {},
        1,
    )
    orders = [a.assignment for a in world.sent if isinstance(a, act.Assign)][-2:]
    assert [(o.stop_reason, o.grace_s) for o in orders] == [(ExitReason.HANG_KILLED, 5.0)] * 2
    assert [launch_of(order).last_end for order in orders] == ["HANG"] * 2
    assert [launch_of(order).restart_count for order in orders] == [0, 0], "restarts upon hangs are not counted"
    for rank in (0, 1):
        assert world.exit("a", rank, "HANG_KILLED:9", 1) == [
            f"a exit g1 r{rank} HANG_KILLED signal 9",
            f"> host-{rank} ack",
        ]
    assert program.restarts() == [
        "a launched g2",
        "> host-0 RUN a w0 g2",
        "> host-1 RUN a w1 g2",
        "a started g2",
    ]
    orders = [a.assignment for a in world.sent if isinstance(a, act.Assign)][-2:]
    assert [o.grace_s for o in orders] == [10.0] * 2, "should its host shut down it has the job's grace again"
    recovery = job.recoveries[0]
    assert (recovery.end_reason, recovery.charged, recovery.recover) == (EndReason.HANG, None, Recover.PROC_RESTART)
    assert recovery.detect_s == pytest.approx(30, abs=1)
    assert recovery.diagnose_s == pytest.approx(30, abs=1)
    assert recovery.ended_at is not None
    assert program.trains(100) == []


def test_evidence_that_is_in_before_the_notice_is_told_with_it() -> None:
    """A rank burns CPU: its stacks are looked at before anybody hears of it."""
    program = training()
    program.changes[0] = {"motion": Motion.BURNING}
    assert program.stands_still(35) == [f"{DUMPS[0]} closer [0]", DUMPS[1]]
    program.world.evidence("a", 0, program.dumps(0, IN_LOOP))
    assert program.world.evidence("a", 1, program.dumps(1)) == []
    assert program.world.wait(0) == [
        "a hangs g1 since 35 s: SILENCE of workerpool0-0 rank 0",
        "a stacks: workerpool1-0 rank 1 waits in all_reduce; workerpool0-0 rank 0 is in train.py:57 `retry`",
        "> keep a hang 1 workerpool0-0",
        "> keep a hang 1 workerpool1-0",
    ]
    assert program.stands_still(300) == []


def test_suspect_that_only_the_stacks_name_is_named_in_the_end() -> None:
    program = training(workers=3, hosts=3)
    told = program.stands_still(35)
    assert told[0] == "a hangs g1 since 30 s: GPUS_IDLE"
    for worker in (0, 1):
        program.world.evidence("a", worker, program.dumps(worker))
    program.world.evidence("a", 2, program.dumps(2, IN_LOADER))
    assert program.world.wait(0) == [
        "a stacks: workerpool1-1 rank 2 is in data_loader.py:212 `queue.get`;"
        " workerpool0-0 rank 0 and workerpool1-0 rank 1 wait in all_reduce"
    ]
    assert (newest(program).suspects, newest(program).hosts) == ((RankName("workerpool1-1", 2),), ("host-2",))
    assert program.stands_still(40)[:2] == [
        "a hang RESTARTED",
        "a restarts as g2: HANG of workerpool1-1 rank 2, free",
    ]


@pytest.mark.parametrize(("in_process", "by_user"), [(True, False), (True, True), (False, False)])
def test_ranks_that_hung_do_not_go_on_in_process(in_process: bool, by_user: bool) -> None:
    action = HangAction.NOTIFY if by_user else HangAction.RESTART
    program = training(warm=WarmStart(in_process=in_process), action=action)
    program.stands_still(35)
    for worker, place in enumerate((IN_LOADER, None)):
        program.world.evidence("a", worker, program.dumps(worker, *filter(None, [place])))
    program.stands_still(40)
    if by_user:
        program.world.restart("a")
    orders = [each.assignment for each in program.world.sent if isinstance(each, act.Assign)][-2:]
    assert [(order.generation, order.hung_ranks) for order in orders] == [(2, (0,) if in_process else ()), (2, ())]
    for rank in (0, 1):
        program.world.exit("a", rank, "HANG_KILLED:9", 1)
    program.restarts()
    program.world.restart_controller()
    program.world.join("host-0", places=[program.world.place("a", 0, "RUNNING")])
    assert desired(program.world.cluster, job_of(program), 0, 0.0).hung_ranks == ((0,) if in_process else ())


def test_what_is_acted_on_by_another_rule_is_on_record_by_that_rule(program: Training) -> None:
    """Noticed as a silence of two ranks that burn CPU; then both wait for something outside."""
    for rank in (0, 1):
        program.changes[rank] = {"motion": Motion.BURNING}
    told = program.stands_still(35)
    for worker in (0, 1):
        program.world.evidence("a", worker, program.dumps(worker, IN_LOOP))
    told += program.stands_still(200)
    assert newest(program).rule is Rule.SILENCE
    noticed_at = newest(program).noticed_at
    program.changes.clear()
    program.wait = Wait(WaitKind.OUTSIDE, "10.0.0.7:443", place="train.py:9 `ask`")
    while "a hang RESTARTED" not in told and program.world.mono < 3600:
        told = program.stands_still(20)
    hang = newest(program)
    assert hang.rule is Rule.EXTERNAL_WAIT
    assert "waits for a remote service (10.0.0.7:443)" in hang.sentence
    assert hang.since <= hang.noticed_at == noticed_at
    assert job_of(program).recoveries[-1].related.ranks == hang.suspects


def test_suspect_ranks_are_looked_at_more_closely() -> None:
    program = training(processes=2)
    program.changes[3] = {"motion": Motion.STOPPED}
    told = program.stands_still(20)
    assert told == [
        "a hangs g1 since 10 s: STUCK_RANK of workerpool1-0 rank 3",
        "> host-0 dump 1 of a workerpool0-0 g1",
        "> host-1 dump 1 of a workerpool1-0 g1 closer [3]",
    ]


def test_one_silence_is_told_once_and_a_second_one_again(program: Training) -> None:
    program.world.hold("a", 3600)
    assert program.stands_still(300) == [*NOTICED, "a hang WITHHELD: the job is held for 3540 s more"]
    assert program.trains(5) == []
    assert program.trains(60) == ["a moves again"]
    again = program.stands_still(1200)
    assert [line for line in again if " hangs " in line] == [again[0]]


def test_job_that_asks_to_be_notified_only_is_never_killed() -> None:
    program = training(action=HangAction.NOTIFY)
    assert program.stands_still(35) == NOTICED
    answer(program)
    assert program.stands_still(600) == [STACKS, "a hang WOULD_RESTART"]
    assert program.trains(15) == ["a moves again"]
    hang = newest(program)
    assert (hang.outcome, hang.open) == (HangOutcome.WOULD_RESTART, False)
    assert job_of(program).generation == 1


def test_detection_that_is_off_judges_nothing() -> None:
    program = training(action=HangAction.OFF)
    assert program.stands_still(4000) == []
    assert program.world.cluster.runtime["a"].health == ""
    assert (JobTimer.HANG, "a") not in program.world.reactor.timers.due


# --- The budget ---------------------------------------------------------------------------------------------------


def hang_again(program: Training, *, step: float | None, checkpoint: bool = False) -> list[str]:
    """The next generation trains for a while and hangs."""
    program.restarts()
    program.step = step
    program.trains(150)
    if checkpoint:
        program.checkpoint_s = program.world.mono - 60
    program.trains(150)
    return hangs_until_restart(program)


def test_three_hang_restarts_in_a_row_without_progress_are_the_last(program: Training) -> None:
    program.step = 700
    assert "a hang RESTARTED" in hangs_until_restart(program)
    for _ in range(2):
        assert any("hang RESTARTED" in line for line in hang_again(program, step=700))
    program.restarts()
    program.trains(300)
    told = hangs_until_restart(program)
    assert told == [
        STACKS,
        "a hang BUDGET_SPENT",
        "a ending FAILED",
        "> host-0 STOP a w0 g4",
        "> host-1 STOP a w1 g4",
    ]
    orders = [a.assignment for a in program.world.sent if isinstance(a, act.Assign)][-2:]
    assert [(o.stop_reason, o.grace_s) for o in orders] == [(ExitReason.HANG_KILLED, 5.0)] * 2
    for rank in (0, 1):
        program.world.exit("a", rank, "HANG_KILLED:9")
    program.world.empty("a")
    job = job_of(program)
    assert (job.state, job.budgets.spent.worker_restarts) == (JobState.FAILED, {})
    assert job.error is not None
    assert job.error.message.startswith(
        "The job hangs again after 3 restarts in a row without progress past step 700: no rank of 2 has moved"
    )
    assert job.error.details == (STACKS.removeprefix("a stacks: "),)
    assert job.error.exit_code is None


def test_hang_that_every_restart_leads_back_to_is_given_more_time_and_then_left_as_it_is(program: Training) -> None:
    """It may wait on purpose: to end the job for it would be worse than to say so."""
    program.step, program.comes_back = 700, True
    waited_s = []
    assert "a hang RESTARTED" in hangs_until_restart(program)
    for _ in range(2):
        assert any("hang RESTARTED" in line for line in hang_again(program, step=700))
        hang = newest(program)
        waited_s.append((hang.judged_at or 0.0) - hang.since)
    assert waited_s == [pytest.approx(120, abs=10), pytest.approx(240, abs=20)]
    told = hang_again(program, step=700)
    [said] = [line for line in told if "hang WITHHELD" in line]
    assert "3 restarts in a row led back to the same wait, so it is left as it is: end it with" in said
    assert program.stands_still(7200) == []
    job = job_of(program)
    assert (job.state, job.generation) == (JobState.RUNNING, 4)
    assert "`holdfast job cancel a`" in program.world.cluster.runtime["a"].health
    assert program.trains(15) == ["a moves again"]


def test_higher_step_resets_the_budget(program: Training) -> None:
    program.step = 100
    hangs_until_restart(program)
    for step in (100, 100, 101, 101, 101):
        told = hang_again(program, step=step)
        assert any("hang RESTARTED" in line for line in told)
    assert job_of(program).budgets.hang_restarts == 3
    assert any("BUDGET_SPENT" in line for line in hang_again(program, step=101))


def test_step_that_was_reached_before_is_no_progress(program: Training) -> None:
    program.step = 100
    hangs_until_restart(program)
    for step in (60, 80):
        assert any("hang RESTARTED" in line for line in hang_again(program, step=step))
    assert job_of(program).budgets.hang_step == 100
    assert any("BUDGET_SPENT" in line for line in hang_again(program, step=99))


def test_newer_checkpoint_resets_the_budget_where_no_step_is_told(program: Training) -> None:
    hangs_until_restart(program)
    for _ in range(4):
        assert any("hang RESTARTED" in line for line in hang_again(program, step=None, checkpoint=True))
    assert job_of(program).budgets.hang_restarts == 1


def test_job_that_allows_no_hang_restart_says_so() -> None:
    program = training(max_hang_restarts=0)
    told = hangs_until_restart(program)
    assert "a hang BUDGET_SPENT" in told
    error = job_of(program).error
    assert error is not None
    assert error.message.startswith("The job hangs, and no restart upon a hang is allowed: no rank of 2")


def test_second_hang_with_the_same_suspect_host_moves_its_worker_and_keeps_the_rest() -> None:
    program = training(workers=3, hosts=4)
    before = job_of(program).places
    for number in (1, 2):
        program.stands_still(35)
        for worker in (0, 1):
            program.world.evidence("a", worker, program.dumps(worker))
        program.world.evidence("a", 2, program.dumps(2, IN_LOADER))
        told = program.stands_still(40)
        assert newest(program).number == number
        if number == 1:
            assert "a hang RESTARTED" in told
            program.restarts()
            program.trains(300)
    words = "host-2 was suspect in hang 1 too: its work moves to another host if one is free"
    assert f"a hang RESTARTED: {words}" in told
    assert "a leaves to RETRY: HANG of workerpool1-1 rank 2, keeps w0 w1, not on host-2" in told
    assert newest(program).note == words
    program.world.empty("a")
    job = job_of(program)
    assert [place.host for place in job.places] == ["host-0", "host-1", "host-3"]
    assert job.places[:2] == before[:2]
    program.world.run("a")
    assert (job.state.name, job.attempt, job.generation, job.budgets.spent.job_retries) == ("RUNNING", 2, 3, 0)
    assert [(r.recover, r.start_type) for r in job.recoveries] == [
        (Recover.PROC_RESTART, StartType.RESTARTED),
        (Recover.WORKER_RESCHEDULE, StartType.INIT_OR_RESCHEDULED),
    ]


def test_of_two_ranks_the_one_that_is_in_no_collective_is_named(program: Training) -> None:
    assert program.stands_still(35) == NOTICED
    program.world.evidence("a", 0, program.dumps(0))
    program.world.evidence("a", 1, program.dumps(1, IN_LOADER))
    assert program.stands_still(40)[1:3] == [
        "a hang RESTARTED",
        "a restarts as g2: HANG of workerpool1-0 rank 1, free",
    ]
    assert (newest(program).suspects, newest(program).hosts) == ((RankName("workerpool1-0", 1),), ("host-1",))
