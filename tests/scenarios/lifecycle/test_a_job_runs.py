"""From the submission to the end of a job in which nothing goes wrong."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang, inventory

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast._session.assignment import WarmStart
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts import host
from holdfast_controller.core.model.job_state import JobState


def test_gang_goes_from_submission_to_success_when_all_ranks_complete() -> None:
    world = World(hosts=2)
    assert world.submit("a") == [
        "a submitted",
        "a placed g1 on host-0 host-1",
        "> reply a",
        "> host-0 PREPARE a w0 g1",
        "> host-1 PREPARE a w1 g1",
    ]
    assert world.report("a", 0, "PREPARING") == []
    assert world.report("a", 0, "PREPARED") == []
    assert world.report("a", 1, "PREPARED") == ["a launched g1", "> host-0 RUN a w0 g1", "> host-1 RUN a w1 g1"]
    assert world.report("a", 1, "RUNNING") == []
    assert world.report("a", 0, "RUNNING") == ["a started g1"]
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert world.exit("a", 1) == ["a exit g1 r1 COMPLETED 0", "> host-1 ack"]
    assert world.report("a", 1, "EMPTY") == []
    assert world.exit("a", 0) == [
        "a exit g1 r0 COMPLETED 0",
        "a ending SUCCEEDED",
        "> host-0 ack",
        "> host-1 STOP a w1 g1",
    ], "the other's host is asked for what it said before it counted; this one will say it by itself"
    assert world.report("a", 1, "EMPTY") == ["a emptied w1"]
    assert world.report("a", 0, "EMPTY") == [
        "a emptied w0",
        "a ended SUCCEEDED",
        "> host-0 FORGET a w0 g1",
        "> host-1 FORGET a w1 g1",
    ]
    assert world.report("a", 0, "EMPTY") == []
    assert not world.cluster.hosts["host-0"].allocations
    assert world.cluster.jobs["a"].error is None


def test_ranks_that_ended_by_themselves_are_not_ordered_to_stop_but_what_is_parked_beside_them_is() -> None:
    world = World(hosts=1)
    for name, warm in (("cold", None), ("warm", WarmStart())):
        world.submit(name, gang(workers=1, warm=warm))
        world.run(name)
        said = world.exit(name, 0)
        assert (f"> host-0 STOP {name} w0 g1" in said) is (warm is not None)
        assert world.report(name, 0, "EMPTY")[-1] == f"> host-0 FORGET {name} w0 g1"


def test_each_worker_is_ordered_once_in_a_session_to_be_forgotten_whatever_is_still_said_of_it() -> None:
    """The answer to its stop may come after the order, and agents of release 0.1 answer the order itself, too."""
    world = World(hosts=1)
    for name in ("a", "b", "c"):
        world.submit(name, gang(workers=1))
        world.run(name)
        assert world.cancel(name)[-1] == f"> host-0 STOP {name} w0 g1"
        world.exit(name, 0)
        assert world.report(name, 0, "EMPTY")[-1] == f"> host-0 FORGET {name} w0 g1"
        assert world.report(name, 0, "EMPTY") == world.report(name, 0, "EMPTY") == []
    world.hang_up("host-0")
    assert world.join("host-0", places=[world.place("b", 0, "EMPTY")])[-1] == "> host-0 FORGET b w0 g1"


def test_what_is_remembered_of_orders_to_forget_does_not_grow_with_the_jobs_of_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "FORGETTING", 3)
    world = World(hosts=1)
    for name in ("a", "b", "c", "d"):
        world.submit(name, gang(workers=1))
        world.run(name)
        world.exit(name, 0)
        world.report(name, 0, "EMPTY")
    assert list(world.cluster.presence_of("host-0").forgetting) == ["b/0", "c/0", "d/0"]


def test_others_are_stopped_as_soon_as_the_primary_has_completed() -> None:
    world = World(hosts=2)
    world.submit("a", gang(success=SuccessPolicy.PRIMARY))
    world.run("a")
    assert world.exit("a", 0) == [
        "a exit g1 r0 COMPLETED 0",
        "a primary completed",
        "a ending SUCCEEDED",
        "> host-0 ack",
        "> host-1 STOP a w1 g1",
    ]


def test_primary_gives_the_others_their_end_grace() -> None:
    world = World(hosts=2)
    world.submit("a", gang(success=SuccessPolicy.PRIMARY, end_grace_s=60.0))
    world.run("a")
    assert world.exit("a", 0) == ["a exit g1 r0 COMPLETED 0", "a primary completed", "> host-0 ack"]
    assert world.wait(59, beating=["host-0", "host-1"]) == []
    assert world.wait(1, beating=["host-0", "host-1"]) == [
        "a ending SUCCEEDED",
        "> host-1 STOP a w1 g1",
    ]
    assert world.exit("a", 1, "STOPPED:15") == ["a exit g1 r1 STOPPED signal 15", "> host-1 ack"]
    assert world.report("a", 0, "EMPTY") == ["a emptied w0"]
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a ended SUCCEEDED"]


def test_others_that_fail_after_the_primary_are_recorded_and_restart_nothing() -> None:
    world = World(hosts=2)
    world.submit("a", gang(success=SuccessPolicy.PRIMARY, end_grace_s=60.0))
    world.run("a")
    world.exit("a", 0)
    assert world.exit("a", 1, 3) == [
        "a exit g1 r1 NONZERO_EXIT 3",
        "a ending SUCCEEDED",
        "> host-1 ack",
    ]


def test_others_that_complete_first_do_not_end_a_job_whose_primary_runs() -> None:
    world = World(hosts=2)
    world.submit("a", gang(success=SuccessPolicy.PRIMARY))
    world.run("a")
    assert world.exit("a", 1) == ["a exit g1 r1 COMPLETED 0", "> host-1 ack"]
    assert "a ending SUCCEEDED" in world.exit("a", 0)


def test_primary_with_two_processes_is_done_when_both_are() -> None:
    world = World(hosts=2)
    world.submit("a", gang(processes=2, success=SuccessPolicy.PRIMARY))
    world.run("a")
    assert world.exit("a", 1) == ["a exit g1 r1 COMPLETED 0", "> host-0 ack"]
    assert world.exit("a", 0)[:3] == ["a exit g1 r0 COMPLETED 0", "a primary completed", "a ending SUCCEEDED"]


def test_exits_may_arrive_before_the_start_was_seen() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.launch("a")
    assert world.exit("a", 1) == ["a exit g1 r1 COMPLETED 0", "> host-1 ack"]
    # The report that it ran is never sent, since it was over before the agent came back.
    assert world.report("a", 0, "RUNNING") == ["a started g1"]
    assert world.cluster.jobs["a"].state is JobState.RUNNING


def test_a_worker_that_ends_unseen_counts_as_started_when_the_others_run() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.launch("a")
    world.report("a", 0, "RUNNING")
    assert world.exit("a", 1) == ["a exit g1 r1 COMPLETED 0", "a started g1", "> host-1 ack"]


def test_job_that_ends_before_it_was_seen_running_succeeds() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.launch("a")
    assert world.exit("a", 0) == [
        "a exit g1 r0 COMPLETED 0",
        "a ending SUCCEEDED",
        "> host-0 ack",
    ]
    world.empty("a")
    assert world.cluster.jobs["a"].state is JobState.SUCCEEDED


def test_job_that_runs_too_long_is_stopped_and_fails() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100.0))
    world.wait(50, beating=["host-0"])
    world.run("a")
    assert world.wait(99, beating=["host-0"]) == []
    assert world.wait(1, beating=["host-0"]) == ["a ending FAILED", "> host-0 STOP a w0 g1"]
    job = world.cluster.jobs["a"]
    assert job.error is not None
    assert (job.error.code, job.error.message) == (4, "The job ran longer than its timeout of 100s.")
    assert world.exit("a", 0, "STOPPED:15") == ["a exit g1 r0 STOPPED signal 15", "> host-0 ack"]
    world.empty("a")
    assert job.state is JobState.FAILED


def test_in_place_restarts_do_not_prolong_the_timeout() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, timeout_s=100.0))
    world.run("a")
    world.wait(60, beating=["host-0"])
    world.exit("a", 0, 1)
    world.run("a")
    assert world.wait(40, beating=["host-0"]) == ["a ending FAILED", "> host-0 STOP a w0 g2"]


def test_several_workers_share_a_host() -> None:
    world = World()
    world.join("host-0", inventory(4))
    assert world.submit("a", gang(4, gpus=1))[1] == "a placed g1 on host-0 host-0 host-0 host-0"
    places = world.cluster.jobs["a"].places
    assert sorted(gpu for place in places for gpu in place.gpus) == [f"GPU--{i}" for i in range(4)]
    world.run("a")
    for rank in range(4):
        world.exit("a", rank)
    world.empty("a")
    assert world.cluster.jobs["a"].state is JobState.SUCCEEDED


def test_queue_is_first_come_first_served_and_says_why_jobs_wait() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    assert world.submit("b", gang(1)) == [
        "b submitted",
        "b queued: needs 4 GPUs on one host (0 free on the best)",
        "> reply b",
    ]
    small = Gang((Pool(1, Task(("x",)), gpus=1),), success=SuccessPolicy.ALL)
    lacks = "which needs 4 GPUs on one host (0 free on the best)"
    assert world.submit("c", small)[1] == f"c queued: behind b in the queue, {lacks}"
    assert world.submit("d", small)[1] == f"d queued: behind 2 jobs in the queue, first b, {lacks}"
    world.run("a")
    world.exit("a", 0)
    assert world.report("a", 0, "EMPTY") == [
        "a emptied w0",
        "a ended SUCCEEDED",
        "b placed g1 on host-0",
        "> host-0 FORGET a w0 g1",
        "> host-0 PREPARE b w0 g1",
    ]
    assert world.cancel("b")[:2] == ["b cancelled by ann", "b ending CANCELLED"]
    assert world.report("b", 0, "EMPTY")[:4] == [
        "b emptied w0",
        "b ended CANCELLED",
        "c placed g1 on host-0",
        "d placed g1 on host-0",
    ]


def test_jobs_wait_for_hosts_that_have_not_joined() -> None:
    world = World()
    assert world.submit("a", gang(1)) == ["a submitted", "a queued: no host has joined yet", "> reply a"]
    assert world.join("host-0") == [
        "host-0 joined",
        "a placed g1 on host-0",
        "> host-0 welcome 0",
        "> host-0 PREPARE a w0 g1",
    ]


def test_job_that_can_never_fit_is_refused() -> None:
    world = World(hosts=2)
    assert world.submit("a", gang(3)) == ["> refuse NEVER_FITS"]
    assert world.submit("b", gang(1, gpus=5)) == ["> refuse NEVER_FITS"]
    assert world.cluster.jobs == {}


def test_same_request_twice_makes_one_job() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1), request="r1")
    assert world.submit("b", gang(1), request="r1") == ["> reply a"]
    assert world.submit("c", gang(1), request="r1", owner="bob")[0] == "c submitted"
    world.restart_controller()
    assert world.submit("d", gang(1), request="r1") == ["> reply a"]
    world.cluster.answers.clear()
    assert world.submit("e", gang(1), request="r1") == ["> reply a"], "the job itself remembers"


def test_job_id_is_taken_once() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    assert world.submit("a", gang(1)) == ["> refuse INVALID_INPUT"]


def test_cordoned_host_takes_nothing_new_and_keeps_what_it_has() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1))
    assert world.cordon("host-1") == ["host-1 cordoned", "> reply host-1"]
    assert world.cordon("host-1") == ["> reply host-1"]
    assert world.cordon("host-0") == ["host-0 cordoned", "> reply host-0"]
    assert world.submit("b", gang(1))[1] == "b queued: no host takes work at present"
    world.run("a")
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert world.uncordon("host-1") == [
        "host-1 uncordoned",
        "b placed g1 on host-1",
        "> reply host-1",
        "> host-1 PREPARE b w0 g1",
    ]
    assert world.uncordon("host-1") == ["> reply host-1"]
    assert world.cordon("nowhere") == ["> refuse NOT_FOUND"]
    assert world.uncordon("nowhere") == ["> refuse NOT_FOUND"]


def test_new_gpus_in_a_heartbeat_give_a_waiting_job_its_place() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.join("host-1", inventory(0, name="host-1"))
    world.submit("b", gang(1))
    assert world.beat("host-1", inventory(4, name="host-1")) == [
        "host-1 joined",
        "b placed g1 on host-1",
        "> host-1 PREPARE b w0 g1",
    ]
