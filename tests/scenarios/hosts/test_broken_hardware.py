"""A GPU that needs repair: its host takes no more work, and the job goes on elsewhere."""

from __future__ import annotations

from tests.scenarios.training import Training, training

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import Recover

LOST = {"hardware": "its GPU is lost", "broken": True}


def job_of(program: Training) -> Job:
    return program.world.cluster.jobs["a"]


def test_rank_that_fails_beside_a_broken_gpu_moves_and_its_host_is_cordoned() -> None:
    program = training(workers=2, hosts=3)
    program.changes[1] = LOST
    program.trains(5)
    told = program.world.exit("a", 1, 1)
    assert told[1:3] == [
        "host-1 cordoned",
        "a leaves to RETRY: HARDWARE_FAULT of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
    ]
    assert program.world.cluster.hosts["host-1"].cordon_reason == "a: rank 1: its GPU is lost"
    program.world.exit("a", 0, "STOPPED:15")
    program.world.empty("a")
    assert [place.host for place in job_of(program).places] == ["host-0", "host-2"]
    assert job_of(program).recoveries[-1].recover is Recover.WORKER_RESCHEDULE


def test_gang_that_hangs_on_a_broken_gpu_is_not_relaunched_there() -> None:
    program = training(workers=2, hosts=3)
    program.changes[1] = LOST
    told = program.stands_still(120)
    assert "host-1 cordoned" in told
    assert "a leaves to RETRY: HANG of workerpool1-0 rank 1, keeps w0, not on host-1" in told
    program.world.empty("a")
    assert [place.host for place in job_of(program).places] == ["host-0", "host-2"]


def test_xid_that_is_the_program_s_restarts_it_in_place() -> None:
    program = training(workers=2, hosts=3)
    program.changes[1] = {"hardware": "its GPU reported Xid 31"}
    program.trains(5)
    assert program.world.exit("a", 1, 1)[1] == "a restarts as g2: NONZERO_EXIT of workerpool1-0 rank 1, w1 pays"
    assert not program.world.cluster.hosts["host-1"].cordoned
