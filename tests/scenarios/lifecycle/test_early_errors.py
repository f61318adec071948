"""Programs that die soon after their start, in virtual time: how often each is launched, by what it has printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang

from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.worker_watch import WorkerWatch
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views.job_summary import summary_of

Program = Callable[[int], list[str]]
"""The lines of one launch, by its number; the last one is what it dies with."""

JAX = (
    "E0000 00:00:17323147{n:02}.123456   {pid} cuda_dnn.cc:8310] Unable to register cuDNN factory",
    "W{n:04} 00:12:{n:02}.1   {pid} gpu_device.cc:2344] Cannot dlopen some GPU libraries {word}",
    "/venv/jax/_src/xla_bridge.py:87: UserWarning: os.fork() was called in process {pid} {word}",
    "ValueError: Incompatible shapes for broadcasting: (8, {pid}) and (8, 4).",
)
IMPORT = (
    "*** trainer, built {n}, process {pid} ***",
    "reading {word}",
    "ModuleNotFoundError: No module named 'zarr'",
)
PDB = ("> /jobs/train.py(3)<module>()", "bdb.BdbQuit")
OOM = (
    "world of 8, pid {pid}",
    "step 0",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.50 GiB. Process {pid} has {pid} MiB in use.",
)
PORT = ("store on port 29400, pid {pid}", "OSError: [Errno 98] Address already in use")
DATA = (
    *(f"step {step} loss {5 - step / 200:.2f}" for step in range(0, 501, 50)),
    "RuntimeError: cannot identify image file {pid}",
)
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet")


def printed(lines: tuple[str, ...]) -> Program:
    """The program that prints these, with other numbers and words at each launch."""

    def program(n: int) -> list[str]:
        values = {"n": n, "pid": 4711 + 37 * n, "word": WORDS[n % len(WORDS)]}
        return [line.format(**values) for line in lines]

    return program


def launches(
    program: Program, *, heals_at: int | None = None, every_s: float = 4.0, old_agent: bool = False
) -> int:
    """How often the program is launched until its job is over, or until it would run on."""
    world = World(hosts=1)
    world.submit("a", gang(1, max_worker_restarts=5))
    for n in range(1, 30):
        world.run("a")
        if heals_at == n:
            return n
        watch = WorkerWatch("host-0", n)
        *lines, last = program(n)
        for line in lines:
            world.wait(every_s, beating=("host-0",))
            sample = WorkerSample("a", "workerpool0-0", n, world.mono, lines=(LogLine(0, "out", line),))
            vector = watch.take(sample)
            if old_agent:
                vector = replace(vector, output=replace(vector.output, began_work=None))
            world.features("a", vector)
        world.exit("a", 0, 1, said=("Traceback (most recent call last):", last))
        if world.cluster.jobs["a"].outcome is JobState.FAILED:
            return n
        world.wait(300.0, beating=("host-0",))
    raise AssertionError("launched without end")


@pytest.mark.parametrize(("lines", "most"), [(JAX, 2), (IMPORT, 1), (PDB, 1), (OOM, 2), (DATA, 6), (PORT, 6)])
def test_a_program_that_dies_with_the_same_words_before_any_work_is_launched_twice(
    lines: tuple[str, ...], most: int
) -> None:
    assert launches(printed(lines)) == most


def test_a_port_that_is_free_again_later_is_waited_for() -> None:
    assert launches(printed(PORT), heals_at=4) == 4


def test_a_program_that_has_run_for_long_has_its_whole_budget() -> None:
    assert launches(printed(JAX), every_s=210.0) == 6


def test_the_lines_of_a_program_that_an_older_agent_runs_count_as_before() -> None:
    assert launches(printed(JAX), old_agent=True) == 6


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("bdb.BdbQuit", "breakpoint() takes a terminal, which each rank has by holdfast run --pty"),
        ("ModuleNotFoundError: No module named 'torch'", "nothing of your own environment unless COMMAND is"),
    ],
)
def test_what_a_newcomer_meets_first_is_explained(said: str, advice: str) -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    world.exit("a", 0, 1, said=("Traceback (most recent call last):", said))
    world.empty("a")
    job = world.cluster.jobs["a"]
    assert job.state is JobState.FAILED
    queue = QueueView(world.cluster, schedulable_hosts(world.cluster), world.policies.quotas)
    assert advice in summary_of(world.cluster, job, queue, Now(Mono(world.mono), Wall(world.wall))).advice
