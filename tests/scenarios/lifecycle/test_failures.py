"""Ranks that fail, programs that can't start, ports that are taken: the gang restarts in place, or fails."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.lifecycle.failure_policy import PORT_RETRIES
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, of_rank


@pytest.fixture
def world() -> World:
    """Two hosts, and job ``a`` of two workers running on them."""
    made = World(hosts=2)
    made.submit("a")
    made.run("a")
    return made


def test_first_failure_restarts_the_gang_in_place(world: World) -> None:
    assert world.exit("a", 1, 7) == [
        "a exit g1 r1 NONZERO_EXIT 7",
        "a restarts as g2: NONZERO_EXIT of workerpool1-0 rank 1, w1 pays",
        "> host-1 ack",
        "> host-0 PREPARE a w0 g2",
        "> host-1 PREPARE a w1 g2",
    ]
    assert world.exit("a", 0, "STOPPED:15", 1) == ["a exit g1 r0 STOPPED signal 15", "> host-0 ack"]
    assert world.report("a", 1, "PREPARED") == []
    assert world.report("a", 0, "PREPARED") == ["a launched g2", "> host-0 RUN a w0 g2", "> host-1 RUN a w1 g2"]
    assert world.report("a", 0, "RUNNING") == []
    assert world.report("a", 1, "RUNNING") == ["a started g2"]
    job = world.cluster.jobs["a"]
    assert (job.state, job.attempt, job.budgets.spent.worker_restarts, job.last_end) == (
        JobState.RUNNING,
        1,
        {1: 1},
        EndReason.NONZERO_EXIT,
    )
    recovery = job.recoveries[0]
    assert (recovery.generation, recovery.end_reason, recovery.related) == (
        2,
        EndReason.NONZERO_EXIT,
        of_rank("workerpool1-0", 1),
    )
    assert recovery.ended_at is not None


def test_each_generation_has_its_own_port_and_secret(world: World) -> None:
    first = world.cluster.jobs["a"].launch.rendezvous
    world.exit("a", 1, 7)
    world.exit("a", 0, "STOPPED:15", 1)
    world.launch("a")
    second = world.cluster.jobs["a"].launch.rendezvous
    assert first is not None
    assert second is not None
    assert first.secret != second.secret
    assert first.master_port != second.master_port


def test_failures_in_the_wake_of_the_first_are_recorded_and_cost_nothing(world: World) -> None:
    world.wait(1)
    world.exit("a", 1, "SIGNALED:9", end_time=world.wall - 1)
    assert world.exit("a", 0, 1, 1, end_time=world.wall) == ["a exit g1 r0 NONZERO_EXIT 1", "> host-0 ack"]
    world.launch("a")
    assert world.cluster.jobs["a"].budgets.spent.worker_restarts == {1: 1}


def test_the_rank_that_failed_first_pays_even_if_it_was_heard_second(world: World) -> None:
    world.exit("a", 1, 1, end_time=world.wall)
    assert world.exit("a", 0, "SIGNALED:9", 1, end_time=world.wall - 1)[1] == (
        "a cause g2: SIGNALED of workerpool0-0 rank 0, w0 pays"
    )
    world.run("a")
    job = world.cluster.jobs["a"]
    assert job.budgets.spent.worker_restarts == {0: 1, 1: 0}
    assert (job.last_end, job.recoveries[-1].related) == (EndReason.SIGNALED, of_rank("workerpool0-0", 0))


def test_failure_whose_cause_is_known_late_counts_as_the_cause_s_again() -> None:
    """Each time another victim of rank 0 is heard first; what repeats is what rank 0 raised."""
    world = World(hosts=3)
    world.submit("a", gang(3))
    world.run("a")
    for times, victim in ((1, 1), (2, 2), (3, 1)):
        generation = world.cluster.jobs["a"].generation
        world.exit("a", victim, 40 + times, end_time=world.wall)
        raised = (f"ValueError: bad batch {times}",)
        told = world.exit("a", 0, 10 + times, generation, end_time=world.wall - 1, said=raised)
        assert told[1].startswith(f"a cause g{generation + 1}: NONZERO_EXIT of workerpool0-0 rank 0")
        assert world.cluster.jobs["a"].budgets.spent.same_failure == ("ValueError: bad batch #", times)
        for rank in {0, 1, 2} - {0, victim}:
            world.exit("a", rank, "STOPPED:15", generation)
        world.run("a")


def test_the_sixth_failure_of_a_worker_is_the_job_s(world: World) -> None:
    for _ in range(5):
        world.exit("a", 1, 7)
        world.exit("a", 0, "STOPPED:15", world.cluster.jobs["a"].generation - 1)
        world.run("a")
    assert world.exit("a", 1, 7) == [
        "a exit g6 r1 NONZERO_EXIT 7",
        "a ending FAILED",
        "> host-1 ack",
        "> host-0 STOP a w0 g6",
    ]
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.report("a", 1, "EMPTY")[:2] == ["a emptied w1", "a ended FAILED"]
    error = world.cluster.jobs["a"].error
    assert error is not None
    assert (
        error.message == "The replica workerpool1-0 exited with a non-zero status of 7. Termination reason: Error."
    )
    assert error.details == ("workerpool1-0 had been restarted in place 5 times.",)
    assert (error.code, error.exit_code) == (3, 7)


def test_budgets_are_for_each_worker_of_its_own() -> None:
    world = World(hosts=2)
    world.submit("a", gang(max_worker_restarts=1))
    world.run("a")
    for rank in (0, 1):
        world.exit("a", rank, 7)
        world.exit("a", 1 - rank, "STOPPED:15", world.cluster.jobs["a"].generation - 1)
        world.run("a")
    assert world.cluster.jobs["a"].budgets.spent.worker_restarts == {0: 1, 1: 1}
    assert world.exit("a", 0, 7)[1] == "a ending FAILED"


def test_without_a_budget_the_first_failure_is_the_end() -> None:
    world = World(hosts=2)
    world.submit("a", gang(max_worker_restarts=0))
    world.run("a")
    world.wait(10)
    assert world.exit("a", 0, "SIGNALED:9")[1] == "a ending FAILED"
    # Another one failed even earlier, and its news comes late: the job's error is about that one.
    world.exit("a", 1, 3, end_time=world.wall - 5)
    world.empty("a")
    error = world.cluster.jobs["a"].error
    assert error is not None
    assert error.message.startswith("The replica workerpool1-0 exited with a non-zero status of 3")
    assert error.exit_code == 3


def test_program_that_cannot_be_prepared_fails_the_job_and_names_the_host() -> None:
    world = World(hosts=2)
    world.submit("a", gang(processes=2))
    world.report("a", 0, "PREPARED")
    told = world.report("a", 1, "CANNOT_PREPARE", message="host-1: no such directory /data")
    assert told == [
        "a exit g1 r2 CANNOT_START",
        "a exit g1 r3 CANNOT_START",
        "a ending FAILED",
        "> host-0 STOP a w0 g1",
        "> host-1 STOP a w1 g1",
    ]
    world.empty("a")
    job = world.cluster.jobs["a"]
    assert job.error is not None
    assert "host-1: no such directory /data" in job.error.message
    assert job.state is JobState.FAILED
    assert job.started_at is None


def test_program_that_cannot_be_started_is_reported_with_its_host_in_one_sentence(world: World) -> None:
    assert (
        world.exit("a", 1, "CANNOT_START", message="its interpreter /no/such does not exist.")[1]
        == "a ending FAILED"
    )
    assert world.cluster.jobs["a"].exits[1][1].message == "host-1: its interpreter /no/such does not exist."
    error = world.cluster.jobs["a"].error
    assert error is not None
    sentence = "could not be started: host-1: its interpreter /no/such does not exist."
    assert error.message == f"The replica workerpool1-0 {sentence}"


def test_rank_of_a_restart_that_a_dead_file_server_keeps_from_its_start_goes_elsewhere() -> None:
    world = World(hosts=3)
    world.submit("a", gang(workers=2, processes=1))
    world.launch("a")
    world.exit("a", 1, 1)
    world.empty("a")
    world.launch("a")
    told = world.exit("a", 1, "CANNOT_START", host_fault=True)
    assert "a ending FAILED" not in told
    assert not world.cluster.hosts["host-1"].cordoned, "it may be a mount of this job alone"
    world.empty("a")
    assert [place.host for place in world.cluster.jobs["a"].places] == ["host-0", "host-2"]


def test_place_that_can_no_longer_be_made_ready_after_the_launch_starts_the_next_generation() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.launch("a")
    assert world.report("a", 1, "CANNOT_PREPARE", message="port 20001 is taken") == [
        "a exit g1 r1 NOT_STARTED",
        "a restarts as g2: PORT_TAKEN of workerpool1-0 rank 1, port",
        "> host-0 PREPARE a w0 g2",
        "> host-1 PREPARE a w1 g2",
    ]


def test_port_taken_at_the_last_moment_costs_nothing_and_is_bounded() -> None:
    world = World(hosts=2)
    world.submit("a", gang(max_worker_restarts=0))
    for generation in range(1, PORT_RETRIES + 1):
        world.run("a")
        assert world.exit("a", 0, 1, port_taken=True)[1] == (
            f"a restarts as g{generation + 1}: PORT_TAKEN of workerpool0-0 rank 0, port"
        )
        world.exit("a", 1, "STOPPED:15", generation)
    assert world.cluster.jobs["a"].budgets.spent.worker_restarts == {}
    world.run("a")
    assert world.exit("a", 0, 1, port_taken=True)[1] == "a ending FAILED"


def test_rank_that_fails_before_the_gang_is_seen_running_restarts_it() -> None:
    world = World(hosts=2)
    world.submit("a")
    world.launch("a")
    assert world.exit("a", 0, 1)[1] == "a restarts as g2: NONZERO_EXIT of workerpool0-0 rank 0, w0 pays"
    assert world.state("a") is JobState.PENDING
    # The order to start never reached the other one: its place was ready, and is ready again.
    assert world.report("a", 1, "PREPARED") == ["a exit g1 r1 NOT_STARTED"]
    assert world.report("a", 0, "PREPARED")[0] == "a launched g2"
    world.report("a", 0, "RUNNING")
    assert world.report("a", 1, "RUNNING") == ["a started g2"]
    assert world.state("a") is JobState.RUNNING


def test_reports_of_an_older_generation_change_nothing(world: World) -> None:
    world.exit("a", 0, 1)
    for state in ("PREPARED", "RUNNING", "EMPTY", "CANNOT_PREPARE", "STOPPING"):
        assert world.report("a", 0, state, 1) == []
        assert world.report("a", 1, state, 1) == []
    assert world.report("a", 1, "PREPARED", 3) == []
    assert not world.cluster.jobs["a"].launched


def test_place_that_is_empty_while_others_run_takes_part_in_the_next_generation(world: World) -> None:
    world.exit("a", 1)
    assert world.report("a", 1, "EMPTY") == []
    assert world.exit("a", 0, 9)[2:] == ["> host-0 ack", "> host-0 PREPARE a w0 g2", "> host-1 PREPARE a w1 g2"]
    assert world.report("a", 1, "EMPTY", 1) == []
    world.report("a", 1, "PREPARED")
    assert world.report("a", 0, "PREPARED")[0] == "a launched g2"


def test_restart_by_hand_costs_nothing(world: World) -> None:
    assert world.restart("a", by="bob") == [
        "a restarts as g2: RESTART_REQUESTED of asked by bob, free",
        "> reply a",
        "> host-0 PREPARE a w0 g2",
        "> host-1 PREPARE a w1 g2",
    ]
    assert world.restart("a") == ["> refuse WRONG_STATE"]
    world.exit("a", 0, "STOPPED:15", 1)
    world.exit("a", 1, "STOPPED:15", 1)
    world.run("a")
    assert world.cluster.jobs["a"].budgets.spent.worker_restarts == {}


def test_restart_by_hand_needs_a_running_job(world: World) -> None:
    world.submit("b")
    assert world.restart("b") == ["> refuse WRONG_STATE"]
    assert world.restart("nowhere") == ["> refuse NOT_FOUND"]
    world.cancel("a")
    assert world.restart("a") == ["> refuse WRONG_STATE"]
    world.empty("a")
    assert world.restart("a") == ["> refuse WRONG_STATE"]


def test_first_account_of_an_end_stays_and_a_later_one_is_kept_beside(world: World) -> None:
    world.exit("a", 1, "LOST_SHIM_DIED")
    assert world.exit("a", 1, "LOST_SHIM_DIED", 1) == ["> host-1 ack"]
    assert world.exit("a", 1, 42, 1) == ["a late exit g1 r1 NONZERO_EXIT 42", "> host-1 ack"]
    assert world.exit("a", 1, 42, 1) == ["> host-1 ack"]
    job = world.cluster.jobs["a"]
    assert job.exits[1][1].reason.name == "LOST_SHIM_DIED"
    assert [late.exit_code for late in job.late_exits] == [42]


def test_what_a_host_may_not_say_is_neither_believed_nor_acknowledged(world: World) -> None:
    note = "> note worker.unknown_exit"
    assert world.exit("a", 1, 7, host="host-0") == [f"{note} host-0 a/workerpool1-0"]
    assert world.exit("a", 1, 7, 2) == [f"{note} host-1 a/workerpool1-0"]
    assert world.exit("a", 1, 7, 0) == [f"{note} host-1 a/workerpool1-0"]
    assert world.report("a", 1, "STUCK", host="host-0") == []
    world.cluster.jobs["b"] = world.cluster.jobs.pop("a")
    told = world.place("b", 0, "RUNNING")
    world.cluster.jobs["a"] = world.cluster.jobs.pop("b")
    from holdfast_controller.core.step.commands import WorkerReported

    assert world.step(WorkerReported("host-0", world.sessions["host-0"], told)) == [
        "> note worker.unknown host-0 b/workerpool0-0"
    ]


def test_exit_of_a_generation_that_was_not_launched_is_not_believed(world: World) -> None:
    world.exit("a", 1, 7)
    assert world.exit("a", 0, 7) == ["> note worker.unknown_exit host-0 a/workerpool0-0"]


def test_stuck_place_is_the_reason_that_a_job_waits(world: World) -> None:
    from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason

    world.exit("a", 0, 1)
    assert world.report("a", 1, "STUCK", message="host-1: pid 5 is in D state") == []
    assert wait_reason(world.cluster, world.cluster.jobs["a"], []) == (
        "host-1: pid 5 is in D state; it goes on once that is over, or by: holdfast host fence host-1"
    )
    world.report("a", 1, "PREPARED")
    assert wait_reason(world.cluster, world.cluster.jobs["a"], []) == "restarting in place on host-0"


def test_what_is_left_of_the_generation_before_is_the_reason_that_a_job_waits(world: World) -> None:
    from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason

    world.exit("a", 0, 1)
    job, held = world.cluster.jobs["a"], "host-1: GPU 0 holds 900 MiB more than when it was empty"
    assert world.report("a", 1, "STUCK", job.generation - 1, message=held) == []
    assert wait_reason(world.cluster, job, []).startswith(f"{held}; it goes on once that is over, or by: ")
    world.report("a", 1, "PREPARING")
    assert wait_reason(world.cluster, job, []) == "restarting in place on host-0, host-1"
