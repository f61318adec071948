"""A gang that stands still: noticed, looked into, and acted on as its job asks."""

from __future__ import annotations

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
from tests.scenarios.training import IN_LOADER, Training, training

from holdfast.hang.features import Motion
from holdfast.hang.tuning import Action
from holdfast_controller.core import actions as act
from holdfast_controller.core.job import JobState
from holdfast_controller.core.model import ExitReason

# --- The ladder, as it should be ----------------------------------------------------------------------------------


def test_gang_that_goes_still_is_noticed_looked_into_and_relaunched_in_place(program: Training) -> None:
    assert program.stands_still(30) == []
    assert program.stands_still(5) == NOTICED
    assert program.world.evidence("a", 0, program.dumps(0)) == ["> keep a hang 1 workerpool0-0"]
    assert program.world.evidence("a", 1, program.dumps(1)) == ["> keep a hang 1 workerpool1-0"]
    assert program.world.wait(0) == [STACKS]
    assert program.stands_still(25) == []
    assert program.stands_still(5) == RESTARTED
    job, world = job_of(program), program.world
    assert (job.generation, job.attempt, job.worker_restarts, job.hang_restarts) == (2, 1, {}, 1)
    orders = [a.assignment for a in world.sent if isinstance(a, act.Assign)][-2:]
    assert [(o.stop_reason, o.grace_s, o.last_end) for o in orders] == [(ExitReason.HANG_KILLED, 5.0, "HANG")] * 2
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
    recovery = job.recoveries[0]
    assert (recovery.end_reason, recovery.charged, recovery.recover) == ("HANG", None, "PROC_RESTART")
    assert recovery.detect_s == pytest.approx(30, abs=1)
    assert recovery.diagnose_s == pytest.approx(30, abs=1)
    assert recovery.ended_at is not None
    assert program.trains(100) == []


def test_evidence_that_is_in_before_the_notice_is_told_with_it() -> None:
    """A rank burns CPU: its stacks are looked at before anybody hears of it."""
    program = training()
    program.changes[0] = {"motion": Motion.BURNING}
    assert program.stands_still(35) == [f"{DUMPS[0]} closer [0]", DUMPS[1]]
    assert answer(program) == []
    assert program.world.wait(0) == [
        "a hangs g1 since 35 s: R4 of workerpool0-0 rank 0",
        STACKS,
        "> keep a hang 1 workerpool0-0",
        "> keep a hang 1 workerpool1-0",
    ]
    assert program.stands_still(300) == []


def test_suspect_that_only_the_stacks_name_is_named_in_the_end() -> None:
    program = training(workers=3, hosts=3)
    told = program.stands_still(35)
    assert told[0] == "a hangs g1 since 30 s: R3"
    for worker in (0, 1):
        program.world.evidence("a", worker, program.dumps(worker))
    program.world.evidence("a", 2, program.dumps(2, IN_LOADER))
    assert program.world.wait(0) == [
        "a stacks: workerpool1-1 rank 2 is in data_loader.py:212 `queue.get`;"
        " workerpool0-0 rank 0 and workerpool1-0 rank 1 wait in all_reduce"
    ]
    assert (newest(program).suspects, newest(program).hosts) == (("workerpool1-1 rank 2",), ("host-2",))
    assert program.stands_still(40)[:2] == [
        "a hang RESTARTED",
        "a restarts as g2: HANG of workerpool1-1 rank 2, free",
    ]


def test_suspect_ranks_are_looked_at_more_closely() -> None:
    program = training(processes=2)
    program.changes[3] = {"motion": Motion.STOPPED}
    told = program.stands_still(20)
    assert told == [
        "a hangs g1 since 10 s: R1 of workerpool1-0 rank 3",
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
    program = training(action=Action.NOTIFY)
    assert program.stands_still(35) == NOTICED
    answer(program)
    assert program.stands_still(600) == [STACKS, "a hang WOULD_RESTART"]
    assert program.trains(10) == ["a moves again"]
    hang = newest(program)
    assert (hang.outcome, hang.open) == ("WOULD_RESTART", False)
    assert job_of(program).generation == 1


def test_detection_that_is_off_judges_nothing() -> None:
    program = training(action=Action.OFF)
    assert program.stands_still(4000) == []
    assert program.world.cluster.runtime["a"].health == ""
    assert ("hang", "a") not in program.world.reactor.timers.due


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
    assert (job.state, job.worker_restarts) == (JobState.FAILED, {})
    assert job.error is not None
    assert job.error.message.startswith(
        "The job hangs again after 3 restarts in a row without progress past step 700: no rank of 2 has moved"
    )
    assert job.error.details == (STACKS.removeprefix("a stacks: "),)
    assert job.error.exit_code is None


def test_higher_step_resets_the_budget(program: Training) -> None:
    program.step = 100
    hangs_until_restart(program)
    for step in (100, 100, 101, 101, 101):
        told = hang_again(program, step=step)
        assert any("hang RESTARTED" in line for line in told)
    assert job_of(program).hang_restarts == 3
    assert any("BUDGET_SPENT" in line for line in hang_again(program, step=101))


def test_step_that_was_reached_before_is_no_progress(program: Training) -> None:
    program.step = 100
    hangs_until_restart(program)
    for step in (60, 80):
        assert any("hang RESTARTED" in line for line in hang_again(program, step=step))
    assert job_of(program).hang_step == 100
    assert any("BUDGET_SPENT" in line for line in hang_again(program, step=99))


def test_newer_checkpoint_resets_the_budget_where_no_step_is_told(program: Training) -> None:
    hangs_until_restart(program)
    for _ in range(4):
        assert any("hang RESTARTED" in line for line in hang_again(program, step=None, checkpoint=True))
    assert job_of(program).hang_restarts == 1


def test_job_that_allows_no_hang_restart_says_so() -> None:
    program = training(max_hang_restarts=0)
    told = hangs_until_restart(program)
    assert "a hang BUDGET_SPENT" in told
    error = job_of(program).error
    assert error is not None
    assert error.message.startswith("The job hangs, and no restart upon a hang is allowed: no rank of 2")


def test_second_hang_with_the_same_suspect_host_asks_for_its_replacement(program: Training) -> None:
    program = training(workers=3, hosts=3)
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
    words = "host-2 was suspect in hang 1 too and should be replaced, which is not done by itself yet"
    assert f"a hang RESTARTED: {words}" in told
    assert newest(program).note == words
<<<<<<< HEAD
=======


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
    assert newest(program).outcome == "RESTARTED"
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


# --- Vectors that don't come as they should -----------------------------------------------------------------------


def test_nothing_is_judged_before_every_worker_was_heard_of() -> None:
    world = World(hosts=2)
    world.submit("a", hanging_gang(timeout_s=1e9))
    world.run("a")
    program = Training(world, "a", ("host-0", "host-1"), mute={1})
    assert program.stands_still(5000) == []
    assert world.cluster.runtime["a"].health == "nothing was heard of workerpool1-0 yet: blind, not hung"


def test_worker_whose_vectors_stop_makes_the_job_blind(program: Training) -> None:
    program.mute = {1}
    assert program.stands_still(6000) == []
    assert "nothing is heard of workerpool1-0" in program.world.cluster.runtime["a"].health


def test_vector_that_leaves_ranks_out_says_nothing_of_those() -> None:
    """Silence of the output alone is told in time, and acted on at the ceiling only."""
    program = training(processes=2)
    world = program.world
    told: list[str] = []
    for _ in range(100):
        told += world.wait(5, beating=program.beating)
        for vector in _vectors_of_still(program):
            told += world.features("a", replace(vector, ranks=vector.ranks[:1]))
    assert [line for line in told if not line.startswith(">")] == ["a hangs g1 since 180 s: R4"]


@pytest.mark.parametrize("wrong", [{"host": "host-1"}, {"generation": 0}, {"generation": 2}, {"session": 99}])
def test_vectors_of_somebody_else_are_not_believed(program: Training, wrong: dict[str, object]) -> None:
    before = dict(program.world.cluster.runtime["a"].features)
    vector = program.vectors()[0]
    assert program.world.features("a", vector, **wrong) == []  # type: ignore[arg-type]
    assert program.world.cluster.runtime["a"].features == before


def test_vectors_of_unknown_jobs_and_workers_are_nothing(program: Training) -> None:
    vector = program.vectors()[0]
    assert program.world.features("b", vector, generation=1) == []
    assert program.world.features("a", replace(vector, worker="workerpool9-9")) == []


def test_hosts_clocks_may_read_anything() -> None:
    world = World(hosts=2)
    world.clocks = {"host-0": 5_000_000.0, "host-1": -80.0}
    program = training(world=world)
    assert program.stands_still(35) == NOTICED
    answer(program)
    assert program.stands_still(40)[-4:] == RESTARTED


def test_wall_clock_that_jumps_changes_no_verdict(program: Training) -> None:
    for jump in (90_000.0, -200_000.0):
        program.world.jumped += jump
        assert program.trains(60) == []
    program.stands_still(35)
    program.world.jumped += 100_000.0
    assert newest(program).open
    answer(program)
    assert program.stands_still(40)[-4:] == RESTARTED


def test_gang_that_was_never_launched_is_not_judged() -> None:
    world = World(hosts=2)
    world.submit("a", hanging_gang(timeout_s=1e9))
    world.report("a", 0, "PREPARED")
    program = Training(world, "a", ("host-0", "host-1"))
    assert program.stands_still(5000) == []
    assert world.cluster.runtime["a"].features == {}


def test_worker_that_was_never_started_is_not_judged() -> None:
    world = World(hosts=2)
    world.submit("a", hanging_gang(timeout_s=1e9))
    world.launch("a")
    world.report("a", 0, "RUNNING")
    program = Training(world, "a", ("host-0", "host-1"), mute={1})
    assert program.stands_still(5000) == []


# --- Ranks that end -----------------------------------------------------------------------------------------------


def test_rank_that_ends_with_success_while_its_peers_wait_is_suspect(program: Training) -> None:
    """Its host tells nothing more of it; its end is known all the same."""
    program.world.exit("a", 1, 0)
    program.mute = {1}
    told = program.stands_still(20)
    assert told == ["a hangs g1 since 10 s: R1 of workerpool1-0 rank 1", DUMPS[0]]
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
    assert told[0] == "a hangs g1 since 85 s: R1 of workerpool1-0 rank 1"


def test_others_may_stand_still_once_the_primary_is_done() -> None:
    program = training(success=Success.PRIMARY, end_grace_s=900.0)
    assert "a primary completed" in program.world.exit("a", 0, 0)
    program.mute = {0}
    assert program.stands_still(800) == []
    assert "a ending SUCCEEDED" in program.stands_still(200)


# --- The controller restarts --------------------------------------------------------------------------------------


def comes_back(
    program: Training, *, down_s: float = 20.0, states: tuple[str, ...] = ("RUNNING", "RUNNING")
) -> None:
    """The controller restarts and all hosts are there again."""
    program.world.restart_controller(down_s=down_s)
    for number, state in enumerate(states):
        program.world.join(f"host-{number}", places=[program.world.place("a", number, state)])


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
    """What was told stays told, and is over once the gang moves."""
    rung(program)
    hangs = len(job_of(program).hangs)
    comes_back(program, down_s=down_s)
    assert [line for line in program.stands_still(600) if " dump " not in line] == []
    assert len(job_of(program).hangs) == hangs
    program.changes = {}
    told = program.trains(60)
    assert told == (["a moves again"] if hangs else [])
    assert program.trains(300) == []


@pytest.mark.parametrize("rung", RUNGS)
def test_hang_is_still_found_after_a_restart_of_the_controller(
    program: Training, rung: Callable[[Training], None]
) -> None:
    """Its past is forgotten, so start-up's limit counts anew; nobody is told twice."""
    rung(program)
    hangs = len(job_of(program).hangs)
    comes_back(program)
    program.changes = {}
    told = program.stands_still(2000)
    assert len([line for line in told if " hangs " in line]) == 1 - hangs
    assert "a hang RESTARTED" in told
    assert len(job_of(program).hangs) == 1


def test_restart_between_the_verdict_and_the_launch_goes_on_with_it(program: Training) -> None:
    hangs_until_restart(program)
    comes_back(program)
    assert "a launched g2" in program.restarts()
    program.trains(60)
    assert (job_of(program).hang_restarts, job_of(program).last_end) == (1, "HANG")


def test_looks_stop_when_the_job_ends(program: Training) -> None:
    program.world.cancel("a")
    program.world.empty("a")
    program.world.wait(10, beating=program.beating)
    assert not [key for key in program.world.reactor.timers.due if key[0] == "hang"]
    assert [e for e in program.world.log if isinstance(e, ev.HangNoticed)] == []
>>>>>>> hange2e
