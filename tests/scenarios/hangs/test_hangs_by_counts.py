"""NCCL's counts, where it tells them: frozen and different, they are evidence of their own and name the laggard."""

from __future__ import annotations

from dataclasses import replace

from tests.scenarios.training import Training, training
from tests.unit.hang.test_nccl_ras import ALONE

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
