"""What NCCL and torch's flight recorder count: where it stands still and differs, it names the laggard by itself."""

from __future__ import annotations

from dataclasses import replace

from tests.scenarios.training import Training, training
from tests.unit.hang.evidence.test_flight_recorder import group, record, waits
from tests.unit.hang.pipeline.test_nccl_ras import ALONE

from holdfast.hang.evidence.flight_recorder import FlightRecord
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import RankName

OF_FOUR = ALONE.replace("7 ranks", "3 ranks").replace("Rank 5", "Rank 3")


def job_of(program: Training) -> Job:
    return program.world.cluster.jobs["a"]


def hung(before: str, after: str) -> Training:
    """Four ranks that stand still, and whose dumps come with these answers of RAS."""
    program = training(workers=2, processes=2)
    program.stands_still(35)
    for worker in (0, 1):
        program.world.evidence("a", worker, replace(program.dumps(worker), ras=before, ras_after=after))
    return program


def test_same_mismatch_in_two_answers_names_the_rank_that_lags() -> None:
    program = hung(OF_FOUR, OF_FOUR)
    runtime = program.world.cluster.runtime_of("a")
    assert runtime.counts is not None and runtime.counts.found.laggards == {3}
    told = program.stands_still(120)
    assert any("RESTARTED" in line for line in told)
    assert job_of(program).hangs[-1].suspects == (RankName("workerpool1-0", 3),)


def test_counts_that_move_are_no_evidence() -> None:
    moved = OF_FOUR.replace("operation 60", "operation 62")
    assert hung(OF_FOUR, moved).world.cluster.runtime_of("a").counts is None
    assert hung(OF_FOUR, "").world.cluster.runtime_of("a").counts is None
    assert hung("", "").world.cluster.runtime_of("a").counts is None


def test_counts_go_with_their_generation() -> None:
    program = hung(OF_FOUR, OF_FOUR)
    program.stands_still(120)
    program.restarts()
    assert job_of(program).generation == 2
    assert program.world.cluster.runtime_of("a").counts is None


# --- Flight recorders ---------------------------------------------------------------------------------------------


def recorded(*flights: FlightRecord) -> Training:
    """Three ranks in the same stacks, with these dumps of theirs."""
    program = training(workers=3, hosts=3)
    program.stands_still(35)
    for worker, flight in enumerate(flights):
        program.world.evidence("a", worker, program.dumps(worker, flight=flight))
    return program


def test_rank_that_has_not_joined_its_peers_collective_is_named_although_all_stacks_are_alike() -> None:
    """As where the collective is in a `backward` that all of them are in."""
    members = ((0, 2),)
    waiting = waits(ranks=members, age_s=35.0)
    program = recorded(waiting, waiting, record(group(450, op="broadcast", ranks=members)))
    (told,) = program.world.wait(0)
    assert told.startswith("a stacks: 3 ranks wait in all_reduce; rank 2 has not joined all_reduce #451")
    assert told.endswith("which ranks 0, 1 are in for 35 s; its last was broadcast #450")
    after = program.stands_still(120)
    assert "a restarts as g2: HANG of workerpool1-1 rank 2, free" in after
    assert job_of(program).hangs[-1].suspects == (RankName("workerpool1-1", 2),)


def test_recorders_that_blame_none_change_nothing() -> None:
    program = recorded(*[waits(ranks=((0, 2),))] * 3)
    assert program.world.wait(0) == ["a stacks: 3 ranks wait in all_reduce"]
    assert program.world.cluster.runtime_of("a").counts is None


def test_blame_goes_with_the_suspicion() -> None:
    members = ((0, 2),)
    program = recorded(*[waits(ranks=members, age_s=35.0)] * 2, record(group(450, ranks=members)))
    assert program.world.cluster.runtime_of("a").counts is not None
    assert program.trains(120)[-1] == "a moves again"
    assert program.world.cluster.runtime_of("a").counts is None
