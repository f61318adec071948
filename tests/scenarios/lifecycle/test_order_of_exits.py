"""Exits of one moment that arrive in every order: the same rank is called the cause, and pays, whichever is first."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.gang import Retries
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, of_rank

ENDS = {
    0: ("RuntimeError: Connection closed by peer [127.0.0.1]:4711", 0.3),
    1: ("RuntimeError: the loss is nan", 0.2),
    2: ("ValueError: no shard 7", 0.0),
}
"""By rank: the last word, and seconds after the first of the gang ended. Rank 1 doesn't say that a peer was lost."""
CAUSE = of_rank("workerpool1-1", 2)


def fail(world: World, order: tuple[int, ...]) -> list[str]:
    """All ranks of the newest generation end within a moment; what the user reads of it."""
    began, generation = world.wall, world.cluster.jobs["a"].generation
    world.wait(1.0, beating=tuple(world.sessions))
    seen = len(world.sentences)
    for rank in order:
        said, after_s = ENDS[rank]
        world.exit("a", rank, 1, generation, end_time=began + after_s, said=(said,))
    world.wait(2.0, beating=tuple(world.sessions))
    return [line for line in world.sentences[seen:] if line.startswith(("restarting", "first to fail"))]


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS)))
def test_the_cause_and_the_number_of_its_restart_are_the_same_in_every_order(order: tuple[int, ...]) -> None:
    world = World(hosts=3)
    world.submit("a", replace(gang(3, max_worker_restarts=5), retries=Retries(no_progress_limit=0)))
    world.run("a")
    job = world.cluster.jobs["a"]
    for number in (1, 2):
        last = fail(world, order)[-1]
        assert "workerpool1-1 rank 2 (NONZERO_EXIT)" in last
        assert last.endswith(f", restart {number} of 5")
        assert job.recoveries[-1].related == CAUSE
        assert {worker: n for worker, n in job.budgets.spent.worker_restarts.items() if n} == {2: number}
        world.run("a")


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS)))
def test_a_job_that_ends_by_it_names_the_cause_in_every_order(order: tuple[int, ...]) -> None:
    world = World(hosts=3)
    world.submit("a", gang(3, max_worker_restarts=0))
    world.run("a")
    fail(world, order)
    world.empty("a")
    job = world.cluster.jobs["a"]
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert (job.error.rank, job.error.raised) == (2, "ValueError: no shard 7")


GAVE_UP = "[rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=451)"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ranks_that_gave_up_waiting_tell_of_a_hang_in_every_order(order: tuple[int, int]) -> None:
    world = World(hosts=2)
    world.submit("a", gang(2))
    world.run("a")
    job, began = world.cluster.jobs["a"], world.wall
    world.wait(1.0, beating=tuple(world.sessions))
    for rank in order:
        world.exit("a", rank, "SIGNALED:6", 1, end_time=began + (0.3, 0.1)[rank], said=(GAVE_UP,))
    recovery = job.recoveries[-1]
    assert (recovery.end_reason, recovery.related) == (EndReason.HANG, of_rank("workerpool1-0", 1))
    assert job.last_end is EndReason.HANG
