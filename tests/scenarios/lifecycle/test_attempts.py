"""An attempt is given up and the job goes on: retried, moved off a host, paused and resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.training import Training
from tests.scenarios.world import World, gang, launch_of

from holdfast import spec
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.gang import Retries
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import Recover, StartType
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason
from holdfast_controller.core.step.assignment import desired
from holdfast_controller.core.step.commands import WorkerReported
from holdfast_controller.shell.convert.gang_from_spec import gang_of


@pytest.fixture
def world() -> World:
    """Three hosts, and job ``a`` of two workers running on two of them; it may be retried once."""
    made = World(hosts=3)
    made.submit("a", gang(retries=1, max_worker_restarts=1))
    made.run("a")
    return made


def job_of(world: World) -> Job:
    return world.cluster.jobs["a"]


def fail_once(world: World, rank: int, how: str | int = 7, **more: object) -> list[str]:
    """A rank fails; the other one is stopped for it."""
    generation = job_of(world).generation
    told = world.exit("a", rank, how, **more)  # type: ignore[arg-type]
    if not job_of(world).terminal:
        world.exit("a", 1 - rank, "STOPPED:15", generation)
    return told


def test_failure_past_the_worker_s_budget_retries_the_job_away_from_that_host(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    assert world.exit("a", 1, 7) == [
        "a exit g2 r1 NONZERO_EXIT 7",
        "a leaves to RETRY: NONZERO_EXIT of workerpool1-0 rank 1, not on host-1, JOB pays",
        "> host-1 ack",
        "> host-0 STOP a w0 g2",
    ]
    job = job_of(world)
    assert job.state is JobState.QUEUED
    words = "being placed again; waits for its workers to be gone from host-0, host-1"
    assert wait_reason(world.cluster, job, []) == words
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 1, "EMPTY") == ["a emptied w1"]
    assert world.report("a", 0, "EMPTY") == [
        "a emptied w0",
        "a placed g3 on host-0 host-2",
        "> host-1 FORGET a w1 g3",
        "> host-0 PREPARE a w0 g3",
        "> host-2 PREPARE a w1 g3",
    ]
    world.run("a")
    assert (job.state, job.attempt, job.budgets.spent.job_retries) == (JobState.RUNNING, 2, 1)
    assert [(r.recover, r.start_type, r.attempt, r.generation) for r in job.recoveries] == [
        (Recover.PROC_RESTART, StartType.RESTARTED, 1, 2),
        (Recover.JOB_RESCHEDULE, StartType.INIT_OR_RESCHEDULED, 2, 3),
    ]
    assert all(recovery.ended_at is not None for recovery in job.recoveries)
    wanted = [desired(world.cluster, job, index, 60.0) for index in (0, 1)]
    assert [launch_of(order).process_starts for order in wanted] == [1, 1], "of this attempt"


def test_when_its_retries_are_spent_too_the_job_fails(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    fail_once(world, 1)
    world.empty("a")
    world.launch("a")
    assert world.exit("a", 1, 7)[1] == "a ending FAILED"
    # Its last recovery was never seen through, and goes on no longer.
    assert all(recovery.ended_at is not None for recovery in job_of(world).recoveries)


def test_progress_refills_every_budget(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    Training(world, "a", beating=("host-0", "host-1", "host-2"), step=10.0).trains(10)
    assert "restarts as g3" in fail_once(world, 1)[1]
    assert (job_of(world).budgets.spent.worker_restarts, job_of(world).budgets.best_step) == ({1: 1}, 10.0)
    world.run("a")
    Training(world, "a", beating=("host-0", "host-1", "host-2"), step=9.0).trains(10)
    assert "leaves to RETRY" in fail_once(world, 1)[1], "step 9 was reached before"


def test_record_says_how_long_it_took_to_be_back_where_it_was(world: World) -> None:
    program = Training(world, "a", beating=("host-0", "host-1", "host-2"), step=40.0)
    program.trains(10)
    fail_once(world, 1)
    world.run("a")
    program.step = 30.0
    assert program.trains(10) == []
    program.step = 41.0
    assert program.trains(10) == ["a back at step 41"]
    recovery = job_of(world).recoveries[-1]
    assert recovery.caught_up_at is not None and recovery.ended_at is not None
    assert recovery.caught_up_at - recovery.ended_at == 15.0


@pytest.mark.parametrize("spare_comes", [True, False])
def test_retry_after_a_restart_of_the_controller_waits_for_the_spare_host_to_say_hello(spare_comes: bool) -> None:
    world = World(hosts=3)
    world.submit("a", gang(retries=1, max_worker_restarts=0))
    world.run("a")
    fail_once(world, 1)
    world.restart_controller()
    for number in (0, 1):
        world.join(f"host-{number}", places=[world.place("a", number, "STOPPING")])
    world.report("a", 0, "EMPTY")
    assert world.report("a", 1, "EMPTY") == ["a emptied w1"]
    if spare_comes:
        assert world.join("host-2")[0] == "a placed g2 on host-0 host-2"
    else:
        assert "a placed g2 on host-0 host-1" in world.wait(20, beating=["host-0", "host-1"])


def test_without_another_host_the_retry_takes_the_same_ones() -> None:
    world = World(hosts=2)
    world.submit("a", gang(retries=1, max_worker_restarts=0))
    world.run("a")
    fail_once(world, 1)
    world.report("a", 0, "EMPTY")
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a placed g2 on host-0 host-1"]


def test_what_stays_of_a_gang_is_given_to_nobody_else_meanwhile(world: World) -> None:
    world.submit("b", gang(1))
    world.submit("c", gang(1))
    fail_once(world, 1, "SIGNALED:11")
    world.run("a")
    told = fail_once(world, 1, "SIGNALED:11")
    assert told[1] == (
        "a leaves to RETRY: SIGNALED of workerpool1-0 rank 1, keeps w0, not on host-1, TRANSIENT pays"
    )
    assert world.report("a", 0, "EMPTY") == ["a emptied w0"], "c waits, and doesn't get host-0"
    placed = world.report("a", 1, "EMPTY")
    assert placed[:2] == ["a emptied w1", "a placed g3 on host-0 host-1"], "no other host is free"


def test_transient_failures_are_tried_three_times_and_no_more() -> None:
    world = World(hosts=2)
    world.submit("a", gang())
    world.run("a")
    for number in range(3):
        fail_once(world, number % 2, "SIGNALED:6")
        if job_of(world).state is JobState.QUEUED:
            world.empty("a")
        world.run("a")
    assert job_of(world).budgets.spent.transient_restarts == 3
    assert world.exit("a", 0, "SIGNALED:6")[1] == "a ending FAILED"


def test_shims_that_die_again_and_again_end_the_job_as_our_error() -> None:
    world = World(hosts=2)
    world.submit("a", gang())
    world.run("a")
    for rank in (0, 1):
        fail_once(world, rank, "LOST_SHIM_DIED")
        world.run("a")
    world.exit("a", 0, "LOST_SHIM_DIED", message="its shim died")
    world.empty("a")
    error = job_of(world).error
    assert error is not None
    assert (error.code, error.message) == (13, "Internal error occurred for the current attempt.")
    assert error.details[0] == "The replica workerpool0-0 was lost: its shim died."


def test_back_off_delays_each_restart_the_first_too_and_doubles() -> None:
    world = World(hosts=2)
    world.submit("a", replace(gang(), retries=Retries(job_retries=0, backoff_s=10.0, backoff_limit_s=15.0)))
    world.run("a")
    waits = []
    for _ in range(4):
        fail_once(world, 1)
        world.launch("a")
        began = world.mono
        while not job_of(world).launched:
            world.wait(1, beating=["host-0", "host-1"])
        waits.append(round(world.mono - began))
        for worker in (0, 1):
            world.report("a", worker, "RUNNING")
    assert waits == [10, 15, 15, 15]


def test_a_job_file_without_a_word_of_pauses_is_not_relaunched_in_a_tight_loop() -> None:
    task = {"processSpec": {"command": ["false"]}}
    pools = [{"replicaCount": 1, **task}, {"replicaCount": 1, **task}]
    written = {"jobSpec": {"workerPoolSpecs": pools, "faultTolerance": {"noProgressLimit": 0}}}
    world = World(hosts=2)
    world.submit("a", gang_of(spec.parse(written).job_spec))
    world.run("a")
    waits, said = [], []
    for _ in range(5):
        before = len(world.log)
        fail_once(world, 1)
        said += [
            message_of(each, job_of(world)) for each in world.log[before:] if isinstance(each, ev.RestartDecided)
        ]
        world.launch("a")
        began = world.mono
        while not job_of(world).launched:
            world.wait(1, beating=["host-0", "host-1"])
        waits.append(round(world.mono - began))
        for worker in (0, 1):
            world.report("a", worker, "RUNNING")
    assert waits == [0, 1, 2, 4, 8]
    assert "as generation 2: workerpool1-0 rank 1" in said[0]
    assert "as generation 5 after a pause of 4 s: workerpool1-0 rank 1" in said[3]


def test_host_that_fails_its_checks_is_cordoned_and_the_job_goes_elsewhere() -> None:
    world = World(hosts=3)
    world.submit("a", gang())
    told = world.place("a", 1, "CANNOT_PREPARE", message="host-1: /dev/shm has 12 MiB left")
    world.report("a", 0, "PREPARED")
    assert world.step(WorkerReported("host-1", world.sessions["host-1"], replace(told, host_fault=True))) == [
        "a exit g1 r1 CANNOT_START",
        "host-1 cordoned",
        "a leaves to RETRY: HOST_UNFIT of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
        "> host-0 STOP a w0 g1",
        "> host-1 STOP a w1 g1",
    ]
    assert world.cluster.hosts["host-1"].cordon_reason == "a: host-1: /dev/shm has 12 MiB left"
    world.report("a", 1, "EMPTY")
    assert world.report("a", 0, "EMPTY")[:2] == ["a emptied w0", "a placed g2 on host-0 host-2"]
    world.run("a")
    assert job_of(world).recoveries[-1].recover is Recover.WORKER_RESCHEDULE
    # The generation that was given up before its launch owes no ends.
    world.cancel("a")
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.empty("a")
    assert sorted((g, r) for g, ends in job_of(world).exits.items() for r in ends) == [(1, 1), (2, 0), (2, 1)]


def test_fault_that_all_hosts_share_cordons_no_more_than_half_of_them_and_ends_the_job() -> None:
    world = World(hosts=3)
    world.submit("a", gang(1))
    told: list[str] = []
    for _ in range(4):
        host = job_of(world).places[0].host
        unfit = replace(world.place("a", 0, "CANNOT_PREPARE", message="prolog: no such file"), host_fault=True)
        told += world.step(WorkerReported(host, world.sessions[host], unfit))
        world.report("a", 0, "EMPTY")
    assert [line for line in told if "cordoned" in line or "host.mass_fault" in line] == [
        "host-0 cordoned",
        "> note host.mass_fault host-1 1 a: prolog: no such file",
        "> note host.mass_fault host-2 1 a: prolog: no such file",
    ]
    assert job_of(world).state is JobState.FAILED
    error = job_of(world).error
    assert error is not None and "prolog: no such file" in error.message


# --- Who failed first ---------------------------------------------------------------------------------------------

LOST_PEER = ("Traceback (most recent call last):", "ConnectionError: lost rank 1: the connection was closed")
RAISED = ("Traceback (most recent call last):", '  File "train.py", line 3, in step', "ValueError: bad batch")


def test_victim_that_is_heard_first_waits_for_the_guilty_to_leave(world: World) -> None:
    assert world.exit("a", 0, 1, said=LOST_PEER) == ["a exit g1 r0 NONZERO_EXIT 1", "> host-0 ack"]
    assert world.exit("a", 1, 1, said=RAISED, end_time=world.wall + 0.3)[:2] == [
        "a exit g1 r1 NONZERO_EXIT 1",
        "a restarts as g2: NONZERO_EXIT of workerpool1-0 rank 1, w1 pays",
    ]


def test_victim_is_answered_alone_when_nobody_else_leaves(world: World) -> None:
    world.exit("a", 0, 1, said=LOST_PEER)
    assert world.wait(0.9) == []
    assert world.wait(0.2)[0] == "a restarts as g2: NONZERO_EXIT of workerpool0-0 rank 0, w0 pays"


def test_rank_that_raised_as_our_order_came_is_named_afterwards(world: World) -> None:
    world.exit("a", 0, 1, said=LOST_PEER)
    world.wait(1.1)
    told = world.exit("a", 1, "STOPPED:code1", 1, said=RAISED)
    assert told[:2] == [
        "a exit g1 r1 STOPPED 1",
        "a cause g2: STOPPED of workerpool1-0 rank 1, w1 pays",
    ]
    assert job_of(world).budgets.spent.worker_restarts == {0: 0, 1: 1}


def test_settling_survives_a_restart_of_the_controller(world: World) -> None:
    world.exit("a", 0, 1, said=LOST_PEER)
    world.restart_controller()
    for number in range(3):
        world.join(f"host-{number}", places=[world.place("a", number, "RUNNING")] if number < 2 else ())
    assert world.wait(1.1)[0] == "a restarts as g2: NONZERO_EXIT of workerpool0-0 rank 0, w0 pays"
