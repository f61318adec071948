"""Hosts are drained, and jobs are warned before they are stopped for time's sake: by drains, timeouts, pauses."""

from __future__ import annotations

import pytest
from tests.scenarios.training import Training
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.warning import WarningSignal

ALL = ("host-0", "host-1", "host-2")
USR1 = WarningSignal(10, 60.0)


def made(**rules: object) -> World:
    """Three hosts, and job ``a`` of two workers running on two of them."""
    world = World(hosts=3)
    world.submit("a", gang(**rules))  # type: ignore[arg-type]
    world.run("a")
    return world


@pytest.fixture
def world() -> World:
    return made()


@pytest.fixture
def warned() -> World:
    """As ``world``; the job wants SIGUSR1 a minute ahead."""
    return made(warning=USR1)


def job_of(world: World) -> Job:
    return world.cluster.jobs["a"]


def leave(world: World) -> list[str]:
    """What was told to stop is gone."""
    told = []
    for rank in (0, 1):
        told += world.exit("a", rank, "STOPPED:15")
    for worker in (1, 0):
        told += world.report("a", worker, "EMPTY")
    return told


# --- Drains ------------------------------------------------------------------------------------------------------


def test_without_a_deadline_the_work_is_waited_for_and_then_the_host_is_drained(world: World) -> None:
    world.drain("host-1")
    assert not world.wait(7200, beating=ALL)
    assert not world.cluster.hosts["host-1"].drained
    for rank in (0, 1):
        world.exit("a", rank, 0)
    world.report("a", 0, "EMPTY")
    assert "host-1 drained" in world.report("a", 1, "EMPTY")
    assert job_of(world).state is JobState.SUCCEEDED


def test_an_idle_host_is_drained_at_once(world: World) -> None:
    assert world.drain("host-2", 60.0) == ["host-2 draining", "host-2 drained", "> reply host-2"]
    assert not world.wait(120, beating=ALL)


def test_a_drained_host_takes_no_work_until_it_is_uncordoned(world: World) -> None:
    world.drain("host-2")
    assert "needs 4 GPUs" in " ".join(world.submit("b", gang(1)))
    told = world.uncordon("host-2")
    assert told[:2] == ["host-2 uncordoned", "b placed g1 on host-2"]
    host = world.cluster.hosts["host-2"]
    assert (host.draining, host.drained, host.drain_deadline) == (False, False, None)


def test_uncordoning_calls_the_deadline_off(world: World) -> None:
    world.drain("host-1", 600.0)
    world.uncordon("host-1")
    assert not world.wait(1200, beating=ALL)


def test_the_last_drain_counts(world: World) -> None:
    world.drain("host-1", 600.0)
    world.drain("host-1")
    assert not world.wait(1200, beating=ALL)
    world.drain("host-1", 30.0)
    assert world.wait(31, beating=ALL)[0].startswith("a leaves to RETRY: DRAINED")


def test_what_moved_off_leaves_the_host_drained(world: World) -> None:
    world.drain("host-1", 600.0)
    world.wait(601, beating=ALL)
    assert not world.cluster.hosts["host-1"].drained
    told = leave(world)
    assert "host-1 drained" in told
    assert "a placed g2 on host-0 host-2" in told


def test_a_drain_and_its_deadline_survive_the_controller(world: World) -> None:
    world.drain("host-1", 600.0)
    world.wait(300, beating=ALL)
    world.restart_controller(down_s=100)
    for number, host in enumerate(ALL):
        places = [world.place("a", number, "RUNNING")] if number < 2 else []
        world.join(host, places=places)
    assert not world.wait(195, beating=ALL)
    assert world.wait(10, beating=ALL)[0].startswith("a leaves to RETRY: DRAINED")


def test_at_checkpoint_the_job_moves_with_the_first_that_is_newer_than_the_drain(world: World) -> None:
    training = Training(world, beating=ALL, checkpoint_s=world.mono)
    training.trains(60)
    world.drain("host-1", 1800.0, at_checkpoint=True)
    assert not training.trains(60)
    training.checkpoint_s = world.mono
    told = training.trains(5)
    assert told[0] == "a leaves to RETRY: DRAINED of host host-1, keeps w0, not on host-1"


def test_without_any_checkpoint_it_moves_at_the_deadline(world: World) -> None:
    training = Training(world, beating=ALL)
    world.drain("host-1", 300.0, at_checkpoint=True)
    assert not training.trains(295)
    assert training.trains(10)[0].startswith("a leaves to RETRY: DRAINED")


def test_a_plain_drain_minds_no_checkpoint(world: World) -> None:
    training = Training(world, beating=ALL)
    world.drain("host-1", 1800.0)
    training.checkpoint_s = world.mono + 1
    assert not training.trains(60)


# --- Warnings ahead of a drain -----------------------------------------------------------------------------------


def test_a_job_is_warned_ahead_of_the_deadline_and_moved_at_it(warned: World) -> None:
    warned.drain("host-1", 600.0)
    assert not warned.wait(539, beating=ALL)
    assert warned.wait(2, beating=ALL) == [
        "a warned g1 of the drain of host-1",
        "> host-0 RUN a w0 g1 warned by 10",
        "> host-1 RUN a w1 g1 warned by 10",
    ]
    assert not warned.wait(57, beating=ALL)
    assert warned.wait(2, beating=ALL)[0].startswith("a leaves to RETRY: DRAINED")
    leave(warned)
    assert "warned" not in " ".join(map(str, warned.sent[-2:]))


def test_a_deadline_that_is_too_near_warns_at_once(warned: World) -> None:
    assert "a warned g1 of the drain of host-1" in warned.drain("host-1", 30.0)


def test_a_job_without_the_wish_is_not_warned(world: World) -> None:
    world.drain("host-1", 600.0)
    assert not world.wait(599, beating=ALL)


@pytest.mark.parametrize("code", [0, 1])
def test_warned_ranks_that_end_by_themselves_move_before_the_deadline(warned: World, code: int) -> None:
    warned.drain("host-1", 600.0)
    warned.wait(545, beating=ALL)
    assert warned.exit("a", 0, code)[1:] == ["> host-0 ack"]
    told = warned.exit("a", 1, code)
    assert told[1] == "a leaves to RETRY: DRAINED of host host-1, keeps w0, not on host-1"
    job = job_of(warned)
    assert (job.budgets.spent.worker_restarts, job.budgets.spent.job_retries, job.budgets.spent.failures) == (
        {},
        0,
        0,
    )
    warned.report("a", 1, "EMPTY")
    assert "a placed g2 on host-0 host-2" in warned.report("a", 0, "EMPTY")


def test_long_before_the_deadline_an_end_is_an_end(warned: World) -> None:
    warned.drain("host-1", 600.0)
    warned.exit("a", 0, 0)
    assert "a ending SUCCEEDED" in warned.exit("a", 1, 0)


def test_the_next_generation_may_be_warned_again(warned: World) -> None:
    warned.drain("host-1", 600.0)
    warned.wait(545, beating=ALL)
    warned.restart("a")
    warned.exit("a", 0, "STOPPED:15", 1)
    warned.exit("a", 1, "STOPPED:15", 1)
    warned.launch("a")
    warned.report("a", 0, "RUNNING")
    assert "a warned g2 of the drain of host-1" in warned.report("a", 1, "RUNNING")


def test_a_warning_is_said_again_to_a_host_that_comes_back(warned: World) -> None:
    warned.drain("host-1", 600.0)
    warned.wait(545, beating=ALL)
    assert "> host-1 RUN a w1 g1 warned by 10" in warned.join("host-1", places=[warned.place("a", 1, "RUNNING")])


# --- Warnings ahead of the timeout -------------------------------------------------------------------------------


def test_a_job_is_warned_ahead_of_its_timeout_though_the_controller_restarts() -> None:
    world = made(warning=USR1, timeout_s=1000.0)
    world.wait(500, beating=ALL)
    world.restart_controller(down_s=10)
    for number, host in enumerate(ALL):
        world.join(host, places=[world.place("a", number, "RUNNING")] if number < 2 else [])
    assert not world.wait(428, beating=ALL)
    assert world.wait(4, beating=ALL)[0] == "a warned g1 of the job's timeout"
    assert "a ending FAILED" in world.wait(62, beating=ALL)


def test_a_warned_job_that_finishes_before_its_timeout_has_succeeded() -> None:
    world = made(warning=USR1, timeout_s=1000.0)
    world.wait(950, beating=ALL)
    world.exit("a", 0, 0)
    assert "a ending SUCCEEDED" in world.exit("a", 1, 0)


# --- Pauses ------------------------------------------------------------------------------------------------------


def test_a_pause_warns_and_waits_and_then_stops(warned: World) -> None:
    assert warned.pause("a") == [
        "a to pause",
        "a warned g1 of the pause",
        "> reply a",
        "> host-0 RUN a w0 g1 warned by 10",
        "> host-1 RUN a w1 g1 warned by 10",
    ]
    assert warned.pause("a") == ["> reply a"]
    assert not warned.wait(59, beating=ALL)
    assert warned.wait(2, beating=ALL)[0] == "a leaves to PAUSE: PAUSED"
    leave(warned)
    assert job_of(warned).state is JobState.PAUSED


@pytest.mark.parametrize("code", [0, 1])
def test_ranks_that_save_and_exit_bring_the_pause_about(warned: World, code: int) -> None:
    warned.pause("a")
    warned.exit("a", 0, code)
    assert warned.exit("a", 1, code)[1] == "a leaves to PAUSE: PAUSED"
    warned.report("a", 0, "EMPTY")
    assert "a paused" in warned.report("a", 1, "EMPTY")
    job = job_of(warned)
    assert (job.budgets.spent.failures, job.budgets.spent.worker_restarts, job.pause_due) == (0, {}, None)
    assert "a placed g2 on host-0 host-1" in warned.resume("a")


def test_a_pause_that_waits_survives_the_controller(warned: World) -> None:
    warned.pause("a")
    warned.restart_controller(down_s=20)
    for number, host in enumerate(ALL):
        warned.join(host, places=[warned.place("a", number, "RUNNING")] if number < 2 else [])
    assert not warned.wait(37, beating=ALL)
    assert "a leaves to PAUSE: PAUSED" in warned.wait(5, beating=ALL)


def test_a_job_that_is_about_to_pause_pauses_whatever_else_would_move_it(warned: World) -> None:
    warned.drain("host-1", 30.0)
    warned.pause("a")
    assert warned.wait(31, beating=ALL)[0] == "a leaves to PAUSE: PAUSED"


def test_a_cancel_ends_a_pause_that_waits(warned: World) -> None:
    warned.pause("a")
    warned.cancel("a")
    leave(warned)
    assert job_of(warned).state is JobState.CANCELLED
    assert not warned.wait(120, beating=ALL)


def test_a_job_that_does_not_run_yet_pauses_without_a_warning() -> None:
    world = World(hosts=2)
    world.submit("a", gang(warning=USR1))
    assert "a leaves to PAUSE: PAUSED" in world.pause("a")


# --- Hosts that fail their checks --------------------------------------------------------------------------------


def test_a_host_that_fails_its_checks_is_cordoned_and_the_worker_goes_elsewhere() -> None:
    world = World(hosts=3)
    world.submit("a", gang())
    world.report("a", 0, "PREPARED")
    told = world.report("a", 1, "CANNOT_PREPARE", message="host-1: /logs is full.", host_fault=True)
    assert "host-1 cordoned" in told
    assert world.cluster.hosts["host-1"].cordon_reason == "a: host-1: /logs is full."
    world.report("a", 0, "EMPTY")
    assert "a placed g2 on host-0 host-2" in world.report("a", 1, "EMPTY")


def test_a_host_that_can_not_name_its_peers_after_the_launch_is_cordoned_too() -> None:
    world = World(hosts=3)
    world.submit("a", gang())
    world.launch("a")
    told = world.report("a", 1, "CANNOT_PREPARE", message="host-1: no such name", host_fault=True)
    assert "host-1 cordoned" in told
    assert any(line.startswith("a leaves to RETRY: HOST_UNFIT") for line in told)


def test_what_a_program_can_not_start_with_fails_the_job_and_leaves_the_host_alone() -> None:
    world = World(hosts=3)
    world.submit("a", gang())
    told = world.report("a", 1, "CANNOT_PREPARE", message="host-1: no such command")
    assert "a ending FAILED" in told
    assert not world.cluster.hosts["host-1"].cordoned


def test_a_failed_epilog_cordons_the_host_and_changes_nothing_else(world: World) -> None:
    for rank in (0, 1):
        world.exit("a", rank, 0)
    told = world.report("a", 1, "EMPTY", message="host-1: the epilog failed", host_fault=True)
    assert told[:2] == ["host-1 cordoned", "a emptied w1"]
    world.report("a", 0, "EMPTY")
    assert job_of(world).state is JobState.SUCCEEDED


# --- Jobs that are replaced when a host is lost -------------------------------------------------------------------


def test_work_that_ended_by_itself_restarts_in_place_first_and_elsewhere_the_second_time() -> None:
    world = made(replace_when_lost=True)
    told = world.exit("a", 1, "STOPPED:15", message="stopped by itself: no word from the controller for 60 s")
    assert told[1].startswith("a restarts as g2: CUT_OFF of workerpool1-0 rank 1")
    world.exit("a", 0, "STOPPED:15", 1)
    world.run("a")
    told = world.exit("a", 1, "STOPPED:15", message="stopped by itself: no word from the controller for 60 s")
    assert told[1].startswith("a leaves to RETRY: CUT_OFF of workerpool1-0 rank 1, keeps w0, not on host-1")


def test_a_lost_host_is_replaced_and_what_it_tells_later_is_kept_as_late() -> None:
    world = made(replace_when_lost=True)
    told = world.wait(80, beating=("host-0", "host-2"))
    assert any(line.startswith("a leaves to RETRY: LOST_HOST") for line in told)
    world.exit("a", 0, "STOPPED:15")
    assert "a placed g2 on host-0 host-2" in world.report("a", 0, "EMPTY")
    world.run("a")
    world.join("host-1", places=[world.place("a", 1, "EMPTY", 1)])
    told = world.exit("a", 1, "STOPPED:15", 1, host="host-1")
    assert "a late exit g1 r1 STOPPED signal 15" in told
    assert job_of(world).state is JobState.RUNNING


# --- Hosts that a job avoids -------------------------------------------------------------------------------------


def test_a_job_does_not_get_the_host_it_failed_on_while_another_is_free() -> None:
    world = made(retries=1, max_worker_restarts=0)
    world.exit("a", 1, 7)
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert "a placed g2 on host-0 host-2" in world.report("a", 0, "EMPTY")


def test_the_host_it_failed_on_is_better_than_none() -> None:
    world = World(hosts=2)
    world.submit("a", gang(retries=1, max_worker_restarts=0))
    world.run("a")
    world.exit("a", 1, 7)
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert any(line.startswith("a placed g2 on host-") for line in world.report("a", 0, "EMPTY"))
