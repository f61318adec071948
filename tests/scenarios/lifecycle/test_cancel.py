"""Cancelling a job, whatever it is doing."""

from __future__ import annotations

from tests.scenarios.world import World, gang

from holdfast_controller.core.model.job_state import JobState

STOPS = ["> host-0 STOP a w0 g1", "> host-1 STOP a w1 g1"]
FORGETS = ["> host-0 FORGET a w0 g1", "> host-1 FORGET a w1 g1"]


def test_queued_job_is_over_at_once_and_the_next_moves_up() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1))
    world.submit("b", gang(2))
    world.submit("c", gang(1))
    assert world.cancel("b", by="bob") == [
        "b cancelled by bob",
        "b ending CANCELLED",
        "b ended CANCELLED",
        "c placed g1 on host-1",
        "> reply b",
        "> host-1 PREPARE c w0 g1",
    ]
    assert world.cancel("b") == ["> reply b"]


def test_pending_job_is_stopped_where_it_is_being_prepared() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.report("a", 0, "PREPARED")
    assert world.cancel("a") == ["a cancelled by ann", "a ending CANCELLED", "> reply a", *STOPS]
    assert world.cluster.jobs["a"].state is JobState.CANCELLING
    # What crosses on the way is answered with what is wanted now.
    assert world.report("a", 1, "PREPARED") == ["> host-1 STOP a w1 g1"]
    assert world.report("a", 0, "EMPTY") == ["a emptied w0"]
    assert world.report("a", 1, "EMPTY") == ["a emptied w1", "a ended CANCELLED", *FORGETS]
    assert world.cluster.jobs["a"].exits == {}


def test_job_whose_ranks_were_never_started_accounts_for_them() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.launch("a")
    world.report("a", 0, "RUNNING")
    world.cancel("a")
    world.exit("a", 0, "STOPPED:15")
    assert world.report("a", 0, "EMPTY") == ["a emptied w0"]
    # The order to stop overtook the order to start.
    assert world.report("a", 1, "EMPTY")[:3] == ["a exit g1 r1 NOT_STARTED", "a emptied w1", "a ended CANCELLED"]


def test_running_job_is_stopped_and_each_exit_recorded() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.run("a")
    assert world.cancel("a") == ["a cancelled by ann", "a ending CANCELLED", "> reply a", *STOPS]
    assert world.cancel("a") == ["> reply a"]
    assert world.report("a", 0, "STOPPING") == []
    assert world.exit("a", 0, "STOPPED:15") == ["a exit g1 r0 STOPPED signal 15", "> host-0 ack"]
    assert world.exit("a", 1, "STOPPED:9") == ["a exit g1 r1 STOPPED signal 9", "> host-1 ack"]
    world.report("a", 1, "EMPTY")
    assert world.report("a", 0, "EMPTY") == ["a emptied w0", "a ended CANCELLED", *FORGETS]
    assert world.cancel("a") == ["> reply a"]
    error = world.cluster.jobs["a"].error
    assert error is not None
    assert (error.code, error.message, error.exit_code) == (1, "The job was cancelled by ann.", None)


def test_start_that_is_seen_after_the_cancel_is_no_start() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.launch("a")
    world.cancel("a")
    assert world.report("a", 0, "RUNNING") == []
    assert world.wait(10_000_000, beating=[]) != []
    assert world.cluster.jobs["a"].outcome is JobState.CANCELLED


def test_restarting_job_is_stopped() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.run("a")
    world.exit("a", 1, 7)
    assert world.cancel("a")[2:] == ["> reply a", "> host-0 STOP a w0 g2", "> host-1 STOP a w1 g2"]
    assert world.exit("a", 0, "STOPPED:15", 1) == ["a exit g1 r0 STOPPED signal 15", "> host-0 ack"]
    world.report("a", 0, "EMPTY")
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a ended CANCELLED"]


def test_job_that_is_ending_already_ends_as_decided() -> None:
    world = World(hosts=2)
    world.submit("a", gang(max_worker_restarts=0))
    world.run("a")
    world.exit("a", 1, 7)
    assert world.cancel("a") == ["> reply a"]
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    assert world.cluster.jobs["a"].state is JobState.FAILED


def test_failures_after_the_cancel_do_not_change_the_outcome() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.run("a")
    world.cancel("a")
    assert world.exit("a", 0, 1) == ["a exit g1 r0 NONZERO_EXIT 1", "> host-0 ack"]
    assert world.exit("a", 1) == ["a exit g1 r1 COMPLETED 0", "> host-1 ack"]
    world.empty("a")
    assert world.cluster.jobs["a"].state is JobState.CANCELLED


def test_unknown_job_is_refused() -> None:
    assert World().cancel("nowhere") == ["> refuse NOT_FOUND"]


def test_stuck_place_keeps_the_job_ending_and_its_share_withheld() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    world.cancel("a")
    world.report("a", 0, "STUCK", message="host-0: pid 5 is in D state")
    world.submit("b", gang(1))
    assert world.wait(80_000, beating=["host-0"]) == []
    assert world.cluster.jobs["a"].state is JobState.CANCELLING
    world.exit("a", 0, "STOPPED:9")
    assert world.report("a", 0, "EMPTY")[:3] == ["a emptied w0", "a ended CANCELLED", "b placed g1 on host-0"]


def test_exit_that_is_heard_after_the_end_is_kept_beside() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.run("a")
    world.cancel("a")
    assert world.report("a", 0, "EMPTY")[:2] == ["a exit g1 r0 LOST_SHIM_DIED", "a emptied w0"]
    assert world.exit("a", 0, "STOPPED:15") == ["a late exit g1 r0 STOPPED signal 15", "> host-0 ack"]
    assert world.cluster.jobs["a"].state is JobState.CANCELLED
