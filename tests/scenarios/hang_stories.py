"""What the stories of hangs share: how they begin, and the lines that they tell again and again."""

from __future__ import annotations

from tests.scenarios.training import Training

from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.model.hang import Hang
from holdfast_controller.core.model.job import Job

DUMPS = ["> host-0 dump 1 of a workerpool0-0 g1", "> host-1 dump 1 of a workerpool1-0 g1"]
NOTICED = ["a hangs g1 since 30 s: GPUS_IDLE", *DUMPS]
STACKS = "a stacks: workerpool0-0 rank 0 and workerpool1-0 rank 1 wait in all_reduce"
RESTARTED = [
    "a hang RESTARTED",
    "a restarts as g2: HANG of no rank in particular, free",
    "> host-0 PREPARE a w0 g2",
    "> host-1 PREPARE a w1 g2",
]


def job_of(program: Training) -> Job:
    return program.world.cluster.jobs[program.job]


def newest(program: Training) -> Hang:
    return job_of(program).hangs[-1]


def answer(program: Training, dump: int = 1) -> list[str]:
    """Every host answers the order for dumps."""
    told: list[str] = []
    for worker in range(len(job_of(program).places)):
        told += program.world.evidence(program.job, worker, program.dumps(worker), dump=dump)
    return told


def hangs_until_restart(program: Training) -> list[str]:
    """A whole hang with its dumps; what the acting look has told."""
    told = program.stands_still(35)
    assert f"{program.job} hangs" in told[0]
    answer(program)
    told = program.stands_still(40)
    for _ in range(20):
        if any(f"{program.job} hang " in line for line in told):
            break
        told += program.stands_still(40)
    return told


def comes_back(
    program: Training, *, down_s: float = 20.0, states: tuple[str, ...] = ("RUNNING", "RUNNING")
) -> None:
    """The controller restarts and all hosts are there again."""
    program.world.restart_controller(down_s=down_s)
    for number, state in enumerate(states):
        program.world.join(f"host-{number}", places=[program.world.place("a", number, state)])


def vectors_of_still(program: Training) -> list[WorkerFeatures]:
    program.still_s = program.world.mono if program.still_s is None else program.still_s
    return program.vectors()
