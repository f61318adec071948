"""Hangs that are not acted on: held, of a common cause, over by themselves, or not to be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.hang_stories import NOTICED, RESTARTED, answer, comes_back, newest, vectors_of_still
from tests.scenarios.training import Training, hanging_gang, training
from tests.scenarios.world import World

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.pipeline.features import Motion
from holdfast_controller.core.model.hang import HangOutcome

# --- Hands off ----------------------------------------------------------------------------------------------------


def test_held_job_is_not_acted_on_until_the_hold_is_over(program: Training) -> None:
    assert program.world.hold("a", 200) == ["a held by ann", "> reply a"]
    told = program.stands_still(195)
    assert told[:3] == NOTICED
    assert [line for line in told if "WITHHELD" in line] == ["a hang WITHHELD: the job is held for 140 s more"]
    assert newest(program).note == "the job is held for 140 s more"
    told = program.stands_still(10)
    assert told == RESTARTED


def test_hold_that_is_ended_lets_go_at_once(program: Training) -> None:
    program.world.hold("a", 3600)
    program.stands_still(100)
    assert newest(program).outcome is HangOutcome.SUPPRESSED
    assert program.world.hold("a", 0, by="bob") == ["a hold ended by bob", "> reply a"]
    assert program.stands_still(5) == RESTARTED


def test_other_finding_than_the_one_that_was_held_has_to_wait_for_its_own_time(program: Training) -> None:
    """Nobody moved; then one rank burns CPU, which alone may be work and is acted on at the ceiling only."""
    program.world.hold("a", 100)
    program.stands_still(90)
    assert newest(program).outcome is HangOutcome.SUPPRESSED
    program.changes[0] = {"motion": Motion.BURNING}
    assert not any("RESTARTED" in line for line in program.stands_still(600))
    program.changes = {}
    # The stillness of 90 s was survived: three times that, and half a minute more.
    assert "a hang RESTARTED" in program.stands_still(310)


def test_hold_survives_a_restart_of_the_controller(program: Training) -> None:
    program.world.hold("a", 7200)
    comes_back(program)
    program.trains(60)
    told = program.stands_still(4000)
    assert any("WITHHELD" in line for line in told)
    assert not any("RESTARTED" in line for line in told)


def test_hold_of_no_job_is_refused_and_of_an_ended_one_means_nothing(program: Training) -> None:
    assert program.world.hold("b", 10) == ["> refuse NOT_FOUND"]
    assert program.world.hold("a", 0) == ["> reply a"]
    program.world.cancel("a")
    program.world.empty("a")
    assert program.world.hold("a", 10) == ["> reply a"]


def test_held_job_that_asks_to_be_notified_is_told_so_first() -> None:
    program = training(action=HangAction.NOTIFY)
    program.world.hold("a", 100)
    told = program.stands_still(120)
    judged = [line for line in told if line.startswith("a hang ")]
    assert judged == ["a hang WITHHELD: the job is held for 40 s more", "a hang WOULD_RESTART"]


# --- Moving again -------------------------------------------------------------------------------------------------


def test_gang_that_moves_again_before_the_act_is_left_alone(program: Training) -> None:
    program.stands_still(50)
    assert program.trains(10) == []
    assert program.trains(5) == ["a moves again"]
    assert newest(program).outcome is HangOutcome.OVER
    assert answer(program) == []
    assert program.trains(300) == []


def test_stacks_that_move_are_no_hang(program: Training) -> None:
    program.changes[0] = {"motion": Motion.BURNING}
    program.stands_still(35)
    for worker in (0, 1):
        program.world.evidence("a", worker, program.dumps(worker, moved=True))
    assert program.stands_still(50) == []
    assert "its stack changes" in program.world.cluster.runtime["a"].health


def test_worker_that_falls_silent_midway_makes_it_blind_not_over(program: Training) -> None:
    program.stands_still(45)
    program.mute = {1}
    assert program.stands_still(600) == []
    assert "blind" in program.world.cluster.runtime["a"].health
    assert newest(program).open
    program.mute = set()
    told = program.stands_still(120)
    assert [line for line in told if " hangs " in line] == []
    assert "a hang RESTARTED" in told


def test_debugger_that_is_attached_to_a_hanging_rank_is_respected(program: Training) -> None:
    program.stands_still(45)
    program.changes[1] = {"traced": True}
    assert program.stands_still(3000) == []
    assert newest(program).open
    assert "tracer" in program.world.cluster.runtime["a"].health


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
        for vector in vectors_of_still(program):
            told += world.features("a", replace(vector, ranks=vector.ranks[:1]))
    assert [line for line in told if not line.startswith(">")] == ["a hangs g1 since 180 s: SILENCE"]


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


def test_a_world_apart_is_told_once_for_each_launch(program: Training) -> None:
    vectors = [replace(vector, own_world=8) for vector in program.vectors()]
    told = [line for vector in vectors for line in program.world.features("a", vector)]
    assert told == [f"a has a world apart: 8 of {vectors[0].worker}"]
    comes_back(program, down_s=1.0)
    assert [line for vector in vectors for line in program.world.features("a", vector)] == []


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
        assert program.trains(60) == [f"clock leapt by {jump:.0f} s"]
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
