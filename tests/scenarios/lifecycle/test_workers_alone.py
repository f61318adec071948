"""Jobs whose workers restart by themselves: the others run on, under the addresses that they know."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.training import Training
from tests.scenarios.world import World, gang, launch_of

from holdfast._base.job_file.choices import RestartScope, SuccessPolicy
from holdfast._session.assignment import Assignment
from holdfast_controller.core.model.gang import Gang, Retries
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import Recover
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason
from holdfast_controller.core.step.assignment import desired


def alone(workers: int = 3, **rules: object) -> Gang:
    retries = Retries(scope=RestartScope.WORKER, job_retries=rules.pop("retries", 0), **rules)  # type: ignore[arg-type]
    return replace(gang(workers), retries=retries, success=SuccessPolicy.PRIMARY, end_grace_s=60.0)


@pytest.fixture
def world() -> World:
    """Three hosts, and job ``a`` of three workers running on them."""
    made = World(hosts=3)
    made.submit("a", alone())
    made.run("a")
    return made


def job_of(world: World) -> Job:
    return world.cluster.jobs["a"]


def wanted(world: World, index: int) -> Assignment:
    return desired(world.cluster, job_of(world), index, 60.0)


def test_worker_that_fails_is_relaunched_alone_under_its_own_address(world: World) -> None:
    before = wanted(world, 1).launch
    assert world.exit("a", 1, 7) == [
        "a exit g1 r1 NONZERO_EXIT 7",
        "a restarts w1 as g2: NONZERO_EXIT of workerpool1-0 rank 1, w1 pays",
        "> host-1 ack",
        "> host-1 RUN a w1 g2",
    ]
    job = job_of(world)
    after = wanted(world, 1).launch
    assert before is not None and after is not None and before.rendezvous == after.rendezvous is not None
    assert [wanted(world, index).generation for index in range(3)] == [1, 2, 1]
    world.report("a", 1, "PREPARED")
    assert world.report("a", 1, "RUNNING") == ["a started w1 g2"]
    assert (job.state, job.attempt, job.generation) == (JobState.RUNNING, 1, 2)
    assert [(r.generation, r.recover, r.ended_at is not None) for r in job.recoveries] == [
        (2, Recover.PROC_RESTART, True)
    ]


def test_two_workers_restart_side_by_side_and_each_pays_for_itself(world: World) -> None:
    world.exit("a", 1, 7)
    assert wait_reason(world.cluster, job_of(world), []) == "workerpool1-0 alone: restarting in place"
    assert world.exit("a", 2, 9)[1] == "a restarts w2 as g3: NONZERO_EXIT of workerpool1-1 rank 2, w2 pays"
    assert world.report("a", 2, "RUNNING") == ["a started w2 g3"]
    assert world.report("a", 1, "RUNNING") == ["a started w1 g2"]
    assert world.exit("a", 1, 7)[1] == "a restarts w1 as g4: NONZERO_EXIT of workerpool1-0 rank 1, w1 pays"
    assert job_of(world).budgets.spent.worker_restarts == {1: 2, 2: 1}
    assert [launch_of(wanted(world, index)).process_starts for index in range(3)] == [1, 3, 2]


def test_recovery_that_fails_before_it_was_seen_through_is_over_and_the_other_goes_on(world: World) -> None:
    world.exit("a", 1, 7)
    world.exit("a", 2, 7)
    world.exit("a", 1, 7)
    assert [(r.generation, r.ended_at is not None) for r in job_of(world).recoveries] == [
        (2, True),
        (3, False),
        (4, False),
    ]


def test_ends_are_those_of_each_worker_s_own_generations_and_none_is_owed(world: World) -> None:
    world.exit("a", 1, 7)
    world.report("a", 1, "RUNNING")
    assert world.exit("a", 0, 9, 2) == ["> note worker.unknown_exit host-0 a/workerpool0-0"]
    assert world.exit("a", 0)[1] == "a primary completed"
    world.exit("a", 2)
    assert world.exit("a", 1)[1] == "a ending SUCCEEDED"
    world.empty("a")
    ended = {(g, r) for g, ends in job_of(world).exits.items() for r in ends}
    assert ended == {(1, 0), (1, 1), (1, 2), (2, 1)}
    assert job_of(world).state is JobState.SUCCEEDED


def test_all_ranks_of_a_worker_that_restarts_are_stopped_first() -> None:
    world = World(hosts=2)
    world.submit("a", replace(alone(2), pools=gang(2, processes=2).pools))
    world.run("a")
    assert world.exit("a", 2, 7)[1] == "a restarts w1 as g2: NONZERO_EXIT of workerpool1-0 rank 2, w1 pays"
    assert world.exit("a", 3, "STOPPED:15", 1) == ["a exit g1 r3 STOPPED signal 15", "> host-1 ack"]
    assert world.report("a", 1, "RUNNING") == ["a started w1 g2"]


def test_back_off_holds_only_that_worker_back() -> None:
    world = World(hosts=3)
    world.submit("a", alone(backoff_s=10.0))
    world.run("a")
    assert world.exit("a", 1, 7)[-1] == "> host-1 PREPARE a w1 g2"
    assert world.report("a", 1, "PREPARED") == []
    reason = "workerpool1-0 alone: backs off after a failure until 13:48:30 UTC; at once by: holdfast job restart a"
    assert wait_reason(world.cluster, job_of(world), []) == reason
    assert world.wait(9, beating=["host-0", "host-1", "host-2"]) == []
    told = world.wait(2, beating=["host-0", "host-1", "host-2"])
    assert told == ["a launched w1 g2", "> host-1 RUN a w1 g2"]
    assert world.report("a", 1, "RUNNING") == ["a started w1 g2"]


def test_back_off_of_one_worker_ends_when_a_user_says_so() -> None:
    world = World(hosts=3)
    world.submit("a", alone(backoff_s=10.0))
    world.run("a")
    world.exit("a", 1, 7)
    world.report("a", 1, "PREPARED")
    assert world.restart("a") == ["a launched w1 g2", "> reply a", "> host-1 RUN a w1 g2"]
    assert world.report("a", 1, "RUNNING") == ["a started w1 g2"]
    assert world.wait(11, beating=["host-0", "host-1", "host-2"]) == [], "its time comes to nothing"


def test_port_that_is_gone_takes_a_restart_of_the_gang(world: World) -> None:
    world.exit("a", 1, 7)
    told = world.report("a", 1, "CANNOT_PREPARE", message="port 20001 is taken")
    assert told[1] == "a restarts as g3: PORT_TAKEN of workerpool1-0 rank 1, port"
    world.exit("a", 0, "STOPPED:15", 1)
    world.exit("a", 2, "STOPPED:15", 1)
    world.run("a")
    assert [wanted(world, index).generation for index in range(3)] == [3, 3, 3]


def test_restart_past_the_budget_retries_the_whole_job() -> None:
    world = World(hosts=4)
    world.submit("a", replace(alone(retries=1), max_worker_restarts=1))
    world.run("a")
    world.exit("a", 2, 7)
    world.report("a", 2, "RUNNING")
    assert world.exit("a", 2, 7)[1] == (
        "a leaves to RETRY: NONZERO_EXIT of workerpool1-1 rank 2, not on host-2, JOB pays"
    )
    for rank, generation in ((0, 1), (1, 1)):
        world.exit("a", rank, "STOPPED:15", generation)
    world.empty("a")
    world.run("a")
    job = job_of(world)
    assert (job.attempt, job.generation, {job.generation_of(i) for i in range(3)}) == (2, 3, {3})


def test_it_survives_a_restart_of_the_controller(world: World) -> None:
    world.exit("a", 1, 7)
    world.restart_controller()
    assert world.join("host-1", places=[world.place("a", 1, "STOPPING", 1)])[-1] == "> host-1 RUN a w1 g2"
    assert world.join("host-0", places=[world.place("a", 0, "RUNNING", 1)])[-1] == "> host-0 RUN a w0 g1"
    assert world.report("a", 1, "RUNNING") == ["a started w1 g2"]


def test_one_that_is_held_back_is_launched_though_another_fails_and_the_controller_starts_again() -> None:
    """The failure of the other one is its first, so that it is launched at once."""
    world = World(hosts=3)
    world.submit("a", replace(alone(3), retries=Retries(RestartScope.WORKER, backoff_s=None)))
    world.run("a")
    for _ in range(2):
        world.exit("a", 1, 1)
        world.report("a", 1, "PREPARED")
        world.report("a", 1, "RUNNING")
    assert job_of(world).launch.deferred == {1}
    for vector in Training(world, step=50.0).vectors():
        world.features("a", vector)
    assert "> host-2 RUN a w2 g4" in world.exit("a", 2, 1)
    world.restart_controller()
    for worker in range(3):
        state = "PREPARED" if worker == 1 else "RUNNING"
        world.join(f"host-{worker}", places=[world.place("a", worker, state)])
    world.report("a", 1, "PREPARED")
    assert "a launched w1 g3" in world.wait(10, beating=world.sessions)
    assert not job_of(world).launch.deferred
