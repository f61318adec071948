"""Warm starts in virtual time: what recoveries say of them, and after which one there are no more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang

from holdfast._session.assignment import WarmStart
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.worker_watch import WorkerWatch
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.assignment import desired

WARM = WarmStart(never=("pandas",))
STEPS = tuple(f"step {step} loss {5 - step / 200:.2f}" for step in range(0, 501, 50))
WORDS = ("amber", "birch", "cedar", "delta", "ember")
WAITING = "1 rank parked: 73 modules wait in 5 MiB"


def world(*, warm: WarmStart | None = WARM, workers: int = 1) -> World:
    made = World(hosts=workers)
    made.submit("a", gang(workers, max_worker_restarts=5, warm=warm))
    made.run("a")
    return made


def run(made: World, *warm: bool) -> None:
    """The next generation is launched; each of its workers is warm or not."""
    made.launch("a")
    for worker, is_warm in enumerate(warm):
        told = replace(made.place("a", worker, "RUNNING"), warm_ranks=int(is_warm), warm=WAITING)
        host = made.cluster.jobs["a"].places[worker].host
        made.step(st.WorkerReported(host, made.sessions[host], told))


def test_ranks_that_went_on_in_their_process_are_counted_over_all_workers() -> None:
    made = world(workers=2)
    fail(made, *STEPS)
    made.launch("a")
    for worker, in_process in enumerate((1, 0)):
        told = replace(made.place("a", worker, "RUNNING"), warm_ranks=1, in_process_ranks=in_process, warm=WAITING)
        host = made.cluster.jobs["a"].places[worker].host
        made.step(st.WorkerReported(host, made.sessions[host], told))
    (recovery,) = made.cluster.jobs["a"].recoveries
    assert (recovery.warm, recovery.warm_ranks, recovery.in_process_ranks) == (True, 2, 1)
    made.restart_controller()
    assert made.cluster.jobs["a"].recoveries[0].in_process_ranks == 1


def fail(made: World, *lines: str) -> None:
    """Rank 0 prints something for a while and dies."""
    generation = made.cluster.jobs["a"].generation
    hosts = [place.host for place in made.cluster.jobs["a"].places]
    watch = WorkerWatch(hosts[0], generation)
    for line in lines:
        made.wait(4.0, beating=hosts)
        sample = WorkerSample("a", "workerpool0-0", generation, made.mono, lines=(LogLine(0, "out", line),))
        made.features("a", watch.take(sample))
    made.exit("a", 0, 1, said=(f"RuntimeError: {WORDS[generation]}",))
    made.wait(20.0, beating=hosts)


def asks(made: World) -> WarmStart | None:
    """What the order for the next launch says."""
    launch = desired(made.cluster, made.cluster.jobs["a"], 0, 0.0).launch
    assert launch is not None
    return launch.warm


def outcomes(made: World) -> list[bool | None]:
    return [recovery.warm for recovery in made.cluster.jobs["a"].recoveries]


def test_a_job_that_does_not_ask_gets_none() -> None:
    made = world(warm=None)
    fail(made, "reading")
    run(made, False)
    assert (asks(made), outcomes(made)) == (None, [None])


def test_a_recovery_is_warm_if_all_workers_are() -> None:
    made = world(workers=2)
    assert asks(made) == WARM
    fail(made, *STEPS)
    assert outcomes(made) == [None]
    run(made, True, True)
    assert outcomes(made) == [True]
    assert made.cluster.runtime_of("a").warm[1] == WAITING
    fail(made, *STEPS)
    run(made, True, False)
    assert outcomes(made) == [True, False]


@pytest.mark.parametrize(
    ("warm", "lines", "again"),
    [
        (True, ("reading",), None),
        (True, STEPS, WARM),
        (False, ("reading",), WARM),
    ],
)
def test_a_warm_generation_that_fails_before_any_work_is_the_last(
    warm: bool, lines: tuple[str, ...], again: WarmStart | None
) -> None:
    made = world()
    fail(made, *STEPS)
    run(made, warm)
    fail(made, *lines)
    assert asks(made) == again
    made.restart_controller()
    made.join("host-0")
    assert asks(made) == again


def test_one_warm_rank_is_enough_to_make_it_the_last() -> None:
    made = world(workers=2)
    fail(made, *STEPS)
    run(made, True, False)
    fail(made, "reading")
    assert (asks(made), outcomes(made)) == (None, [False, None])


def test_a_warm_generation_that_dies_before_it_was_seen_running_is_the_last() -> None:
    made = world()
    fail(made, *STEPS)
    made.launch("a")
    fail(made, "reading")
    assert asks(made) is None
