"""An attempt is given up and the job goes on: retried, moved off a host, paused and resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.training import Training
from tests.scenarios.world import World, gang

from holdfast_controller.core.assignments import desired
from holdfast_controller.core.explain import wait_reason
from holdfast_controller.core.gang import Retries
from holdfast_controller.core.job import JobState
from holdfast_controller.core.model import Job
from holdfast_controller.core.stimuli import PlaceReported


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
        "> host-1 STOP a w1 g2",
    ]
    job = job_of(world)
    assert job.state is JobState.QUEUED
    words = "being placed anew; waits for its workers to be gone from host-0, host-1"
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
    assert (job.state, job.attempt, job.job_retries) == (JobState.RUNNING, 2, 1)
    assert [(r.recover, r.start_type, r.attempt, r.generation) for r in job.recoveries] == [
        ("PROC_RESTART", "RESTARTED", 1, 2),
        ("JOB_RESCHEDULE", "INIT_OR_RESCHEDULED", 2, 3),
    ]
    assert all(recovery.ended_at is not None for recovery in job.recoveries)
    assert [desired(world.cluster, job, index).process_starts for index in (0, 1)] == [1, 1], "of this attempt"


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
    assert (job_of(world).worker_restarts, job_of(world).best_step) == ({1: 1}, 10.0)
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
    assert job_of(world).transient_restarts == 3
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


def test_back_off_delays_each_launch_in_a_row_but_the_first_and_doubles() -> None:
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
    assert waits == [0, 10, 15, 15]


def test_host_that_fails_its_checks_is_cordoned_and_the_job_goes_elsewhere() -> None:
    world = World(hosts=3)
    world.submit("a", gang())
    told = world.place("a", 1, "CANNOT_PREPARE", message="host-1: /dev/shm has 12 MiB left")
    world.report("a", 0, "PREPARED")
    assert world.step(PlaceReported("host-1", world.sessions["host-1"], replace(told, host_fault=True))) == [
        "a exit g1 r1 CANNOT_START",
        "host-1 cordoned",
        "a leaves to RETRY: HOST_UNFIT of workerpool1-0 rank 1, keeps w0, not on host-1",
        "> host-0 STOP a w0 g1",
        "> host-1 STOP a w1 g1",
    ]
    assert world.cluster.hosts["host-1"].cordon_reason == "a: host-1: /dev/shm has 12 MiB left"
    world.report("a", 1, "EMPTY")
    assert world.report("a", 0, "EMPTY")[:2] == ["a emptied w0", "a placed g2 on host-0 host-2"]
    world.run("a")
    assert job_of(world).recoveries[-1].recover == "WORKER_RESCHEDULE"
    # The generation that was given up before its launch owes no ends.
    world.cancel("a")
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.empty("a")
    assert sorted((g, r) for g, ends in job_of(world).exits.items() for r in ends) == [(1, 1), (2, 0), (2, 1)]


# --- Pause and resume ---------------------------------------------------------------------------------------------


def test_pause_stops_the_work_gives_the_hosts_up_and_resume_places_it_anew(world: World) -> None:
    assert world.pause("a") == [
        "a to pause",
        "a leaves to PAUSE: PAUSED",
        "> reply a",
        "> host-0 STOP a w0 g1",
        "> host-1 STOP a w1 g1",
    ]
    assert world.pause("a") == ["> reply a"]
    world.submit("b")
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    told = world.report("a", 1, "EMPTY")
    assert told[:3] == ["a emptied w1", "a paused", "b placed g1 on host-0 host-1"] or told[:2] == [
        "a emptied w1",
        "a paused",
    ]
    assert job_of(world).state is JobState.PAUSED
    assert wait_reason(world.cluster, job_of(world), []) == "paused; go on with: holdfast job resume a"
    assert world.resume("a")[0] == "a resumed"
    world.cancel("b")
    world.empty("b")
    job = job_of(world)
    assert (job.state, job.attempt, job.generation) == (JobState.PENDING, 2, 2)
    world.run("a")
    assert job.state is JobState.RUNNING
    assert not job.recoveries, "nobody failed"
    assert job.last_end == "PAUSED"


def test_pause_of_a_waiting_job_takes_it_out_of_the_queue() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1))
    assert world.pause("b") == ["b to pause", "b paused", "> reply b"]
    assert list(world.cluster.queue) == []
    world.cancel("a")
    world.empty("a")
    assert world.cluster.jobs["b"].state is JobState.PAUSED
    assert world.resume("b")[:2] == ["b resumed", "b placed g1 on host-0"]


def test_pause_while_a_retry_is_under_way_waits_for_the_same_stops(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    world.exit("a", 1, 7)
    assert world.pause("a") == ["a to pause", "> reply a"]
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a paused"]
    assert not any(host.allocations for host in world.cluster.hosts.values())


def test_paused_job_can_be_cancelled_and_not_restarted(world: World) -> None:
    world.pause("a")
    world.empty("a")
    assert world.restart("a") == ["> refuse WRONG_STATE"]
    assert world.cancel("a")[:3] == ["a cancelled by ann", "a ending CANCELLED", "a ended CANCELLED"]
    assert world.resume("a") == ["> refuse WRONG_STATE"]
    assert world.pause("a") == ["> refuse WRONG_STATE"]


def test_cancel_while_an_attempt_is_given_up_ends_the_job_once_it_is_gone(world: World) -> None:
    fail_once(world, 1)
    world.run("a")
    world.exit("a", 1, 7)
    assert world.cancel("a")[:2] == ["a cancelled by ann", "a ending CANCELLED"]
    assert job_of(world).state is JobState.CANCELLING
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    assert job_of(world).state is JobState.CANCELLED
    assert not any(host.allocations for host in world.cluster.hosts.values())


def test_time_paused_is_not_run_time() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100.0))
    world.run("a")
    world.wait(60, beating=["host-0"])
    world.pause("a")
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    world.wait(1000, beating=["host-0"])
    world.resume("a")
    world.run("a")
    assert world.wait(39, beating=["host-0"]) == []
    assert "a ending FAILED" in world.wait(2, beating=["host-0"])
    assert job_of(world).error is not None


# --- Hosts that are gone ------------------------------------------------------------------------------------------


def test_lost_host_is_waited_for_unless_the_job_asks_to_go_on_without_it(world: World) -> None:
    world.hang_up("host-1")
    assert "host-1 lost" in world.wait(80, beating=["host-0", "host-2"])
    assert job_of(world).state is JobState.RUNNING


def test_job_that_asked_for_it_goes_on_without_a_lost_host() -> None:
    world = World(hosts=3)
    world.submit("a", gang(retries=3, replace_when_lost=True))
    world.run("a")
    world.hang_up("host-1")
    told = world.wait(80, beating=["host-0", "host-2"])
    assert [words for words in told if not words.startswith("> note")][-4:] == [
        "a exit g1 r1 LOST_HOST",
        "a leaves to RETRY: LOST_HOST of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
        "a fenced w1",
        "> host-0 STOP a w0 g1",
    ]
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"
    # What it held stays withheld until the host has proven it empty.
    assert list(world.cluster.hosts["host-1"].allocations) == ["a/1"]
    told = world.join("host-1", places=[world.place("a", 1, "RUNNING", 1)])
    assert "> host-1 FORGET a w1 g2" in told
    late = world.exit("a", 1, 9, 1, host="host-1")
    assert late[0] == "a late exit g1 r1 NONZERO_EXIT 9"
    assert world.report("a", 1, "EMPTY", 2, host="host-1") == ["host-1 freed a/1"]
    assert not world.cluster.hosts["host-1"].allocations


def test_admin_s_word_fences_a_host_and_frees_what_it_held() -> None:
    world = World(hosts=3)
    world.submit("a", gang(retries=3))
    world.run("a")
    assert world.fence("host-1") == ["> refuse WRONG_STATE"], "it answers"
    world.hang_up("host-1")
    told = world.fence("host-1")
    assert told[:4] == [
        "host-1 fenced",
        "a exit g1 r1 LOST_HOST",
        "a leaves to RETRY: LOST_HOST of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays",
        "a fenced w1",
    ]
    assert not world.cluster.hosts["host-1"].allocations


def test_drained_host_loses_its_work_at_the_deadline_and_not_before(world: World) -> None:
    assert world.drain("host-1", 600.0) == ["host-1 draining", "> reply host-1"]
    assert world.wait(590, beating=["host-0", "host-1", "host-2"]) == []
    told = world.wait(20, beating=["host-0", "host-1", "host-2"])
    assert told[0] == "a leaves to RETRY: DRAINED of host host-1, keeps w0, not on host-1"
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert world.report("a", 0, "EMPTY")[1] == "a placed g2 on host-0 host-2"


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
    assert job_of(world).worker_restarts == {0: 0, 1: 1}


def test_settling_survives_a_restart_of_the_controller(world: World) -> None:
    world.exit("a", 0, 1, said=LOST_PEER)
    world.restart_controller()
    for number in range(3):
        world.join(f"host-{number}", places=[world.place("a", number, "RUNNING")] if number < 2 else ())
    assert world.wait(1.1)[0] == "a restarts as g2: NONZERO_EXIT of workerpool0-0 rank 0, w0 pays"
