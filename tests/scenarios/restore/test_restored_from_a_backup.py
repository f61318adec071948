"""The controller's disk is lost, and it goes on from a backup that is older than what its hosts saw."""

from __future__ import annotations

import dataclasses

import pytest
from tests.scenarios.checked_core import GAP
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import RestartScope
from holdfast._session.reports import Exit, ExitReason, ExitReport, ReportedState, WorkerId, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Retries, Strategy
from holdfast_controller.core.model.job import Unreconciled
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell.store import codec


def running(hosts: int = 2, workers: int = 2) -> World:
    world = World(hosts=hosts)
    world.submit("a", gang(workers))
    world.run("a")
    return world


def seen(world: World, job: str, *workers: int, state: str = "RUNNING", generation: int) -> list[WorkerReport]:
    return [world.place(job, worker, state, generation) for worker in workers]


def test_a_job_that_did_not_change_goes_on_untouched() -> None:
    world = running()
    world.restore(world.back_up())
    assert world.cluster.jobs["a"].unreconciled is Unreconciled.OPEN
    first = world.join("host-0", places=seen(world, "a", 0, generation=1))
    assert first == ["> host-0 welcome 0"], "nothing is ordered before all of it was heard of"
    told = world.join("host-1", places=seen(world, "a", 1, generation=1))
    assert told == ["a cleared", "> host-1 welcome 1", "> host-0 RUN a w0 g1", "> host-1 RUN a w1 g1"]
    assert world.wait(30, beating=["host-0", "host-1"]) == ["reconciliation ended"]
    assert world.state("a") is JobState.RUNNING


def test_a_job_that_was_relaunched_after_the_backup_is_taken_up_as_found() -> None:
    world = running()
    backup = world.back_up()
    world.exit("a", 1, 7)
    world.wait(2, beating=["host-0", "host-1"])
    world.run("a")
    assert world.cluster.jobs["a"].generation == 2
    world.restore(backup)
    world.join("host-0", places=seen(world, "a", 0, generation=2))
    told = world.join("host-1", places=seen(world, "a", 1, generation=2))
    assert told[0] == "a found g2 on host-0 host-1"
    assert not any("STOP" in line or "PREPARE" in line for line in told)
    world.wait(30, beating=["host-0", "host-1"])
    # Whatever fails from now on is answered by a generation that was never given out.
    world.exit("a", 0, 9)
    world.wait(2, beating=["host-0", "host-1"])
    assert world.cluster.jobs["a"].generation == 3
    world.run("a")
    world.exit("a", 0)
    assert world.exit("a", 1)[-1] != "" and world.cluster.jobs["a"].outcome is JobState.SUCCEEDED


def test_a_job_that_was_found_is_the_same_in_whatever_order_the_hosts_are_known() -> None:
    world = running()
    backup = world.back_up()
    world.exit("a", 1, 7)
    world.wait(2, beating=["host-0", "host-1"])
    world.run("a")
    world.restore(backup)
    for worker in (0, 1):
        world.join(f"host-{worker}", places=seen(world, "a", worker, generation=2))
    read = Cluster(epoch=world.cluster.epoch)
    for event in world.log:
        if isinstance(event, ev.JobFound):
            read.hosts = dict(reversed(read.hosts.items()))
        fold(read, event)
    assert codec.dump_entity(read.jobs["a"]) == codec.dump_entity(world.cluster.jobs["a"])


def test_a_job_that_the_backup_knows_to_have_left_is_not_found_in_what_is_left_of_it() -> None:
    world = World(hosts=1)
    world.submit("a", dataclasses.replace(gang(1), strategy=Strategy.SPOT))
    world.run("a")
    world.submit("b", gang(1))
    world.exit("a", 0, "STOPPED")
    world.report("a", 0, "EMPTY")
    world.run("b")
    assert world.state("a") is JobState.QUEUED
    world.restore(world.back_up())
    left = WorkerReport(WorkerId("a", "workerpool0-0"), 1, 1, ReportedState.EMPTY)
    told = world.join("host-0", places=[left, *seen(world, "b", 0, generation=1)])
    assert "b cleared" in told and not any("a found" in line for line in told)
    assert world.wait(30, beating=["host-0"])[0] == "a unsure, beyond g1001", "it may have run and ended since"
    assert (world.state("a"), world.state("b")) == (JobState.PAUSED, JobState.RUNNING)
    assert world.cluster.hosts["host-0"].allocations.keys() == {"b/0"}


def test_ends_that_were_reported_before_all_hosts_had_called_are_not_lost() -> None:
    world = running()
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    assert world.exit("a", 0, 0, 1, host="host-0") == [], "kept, and not yet acknowledged"
    told = world.join("host-1", places=seen(world, "a", 1, generation=1))
    assert "a exit g1 r0 COMPLETED 0" in told and "> host-0 ack" in told
    told = world.exit("a", 1)
    assert "a ending SUCCEEDED" in told


def test_hosts_in_doubt_are_asked_for_what_they_were_acknowledged() -> None:
    world = running()
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    world.join("host-7", places=())
    told = {a.host: a.tell_all for a in world.sent if isinstance(a, act.Welcome)}
    assert told["host-0"] and told["host-7"], "one that joined after the backup, too"
    world.join("host-1", places=seen(world, "a", 1, generation=1))
    world.wait(30, beating=["host-0", "host-1", "host-7"])
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    assert [a.tell_all for a in world.sent if isinstance(a, act.Welcome)][-1] is False


def test_a_job_that_no_host_knows_is_paused_and_its_owner_decides() -> None:
    world = running()
    world.restore(world.back_up())
    world.join("host-0")
    assert not world.cluster.hosts["host-0"].allocations, "what it held there is free"
    world.join("host-1")
    told = world.wait(30, beating=["host-0", "host-1"])
    job = world.cluster.jobs["a"]
    assert told[0] == "a unsure, beyond g1001" and "reconciliation ended" in told
    assert world.state("a") is JobState.PAUSED
    ends = [e.exit.reason for e in world.log if isinstance(e, ev.RankExited)]
    assert ends == [ExitReason.LOST_RECORD, ExitReason.LOST_RECORD], "no code is invented"
    world.resume("a")
    assert job.generation == 1002, "far beyond whatever the lost controller may have launched"
    world.run("a")
    assert job.state is JobState.RUNNING


def test_a_job_that_waited_may_have_run_since_and_is_paused() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1))
    world.run("a")
    assert world.state("b") is JobState.QUEUED
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    world.exit("a", 0)
    world.wait(30, beating=["host-0"])
    world.empty("a")
    assert world.state("b") is JobState.PAUSED
    world.resume("b")
    assert world.cluster.jobs["b"].generation == 1001


def test_a_job_that_waited_and_was_placed_since_is_taken_up_where_it_runs() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, gpus=2))
    world.cordon("host-0")
    world.submit("b", gang(1, gpus=2))
    backup = world.back_up()
    assert world.state("b") is JobState.QUEUED
    world.restore(backup)
    uuids = ("GPU-host-0-2", "GPU-host-0-3")
    found = [dataclasses.replace(report, gpus=uuids) for report in seen(world, "b", 0, generation=1)]
    told = world.join("host-0", places=[*seen(world, "a", 0, state="PREPARING", generation=1), *found])
    assert "b found g1 on host-0" in told and "a cleared" in told
    assert world.state("b") is JobState.RUNNING
    assert world.cluster.hosts["host-0"].allocations["b/0"].gpus == uuids
    assert not world.cluster.hosts["host-0"].orphans


def test_parts_of_a_gang_are_stopped_and_it_starts_anew_beyond_what_they_were() -> None:
    world = running()
    backup = world.back_up()
    world.restore(backup)
    world.join("host-0", places=seen(world, "a", 0, generation=3))
    world.join("host-1", places=seen(world, "a", 1, state="PREPARED", generation=4))
    told = world.wait(30, beating=["host-0", "host-1"])
    assert told[:2] == ["a unsure, beyond g1004", "a leaves to RETRY: CONTROLLER_RESTORED of the controller"]
    assert {"> host-0 STOP a w0 g1004", "> host-1 STOP a w1 g1004"} <= set(told)
    assert world.cluster.jobs["a"].unreconciled is None and world.cluster.jobs["a"].awaited
    world.exit("a", 0, "STOPPED:15", 3, host="host-0")
    world.report("a", 0, "EMPTY")
    assert "a placed g1005 on host-0 host-1" in world.report("a", 1, "EMPTY")


def test_a_gang_that_moved_is_waited_for_until_its_last_worker_is_gone() -> None:
    world = World(hosts=3)
    world.submit("a", gang(2))
    world.run("a")
    backup = world.back_up()
    world.restore(backup)
    gpus = tuple(f"GPU-host-2-{i}" for i in range(4))
    away = dataclasses.replace(world.place("a", 1, "RUNNING", 2), attempt=2, gpus=gpus)
    assert "host-2 orphan a 0 found" in world.join("host-2", places=[away])
    world.join("host-0")
    world.join("host-1")
    told = world.wait(30, beating=["host-0", "host-1", "host-2"])
    assert "> host-2 dismiss a workerpool1-0 g1002" in told
    job = world.cluster.jobs["a"]
    assert job.unreconciled is Unreconciled.CLEARING and job.state is JobState.QUEUED
    told = world.report("a", 1, "EMPTY", 1002, host="host-2")
    assert told[:2] == ["host-2 orphan a 0 gone", "a cleared"] and "a placed g1003 on host-0 host-1" in told


def test_work_that_nobody_knows_runs_on_and_its_gpus_are_withheld() -> None:
    world = World(hosts=1)
    backup = world.back_up()
    world.restore(backup)
    gpus = tuple(f"GPU-host-0-{i}" for i in range(3))
    report = dataclasses.replace(world.place("b", 0, "RUNNING", 1), gpus=gpus)
    assert world.join("host-0", places=[report])[0] == "host-0 orphan b 0 found"
    world.submit("small", gang(1, gpus=1))
    assert world.state("small") is JobState.PENDING
    world.submit("big", gang(1, gpus=2))
    assert world.state("big") is JobState.QUEUED
    assert not any(isinstance(a, act.StopOrphan) for a in world.sent), "it is not stopped"
    # It ends by itself: that is on record, and its place is forgotten.
    told = world.step(_orphan_exits(world))
    assert told == ["host-0 orphan b exited", "> host-0 ack"]
    told = world.report("b", 0, "EMPTY", 1, host="host-0")
    assert told[0] == "host-0 orphan b 0 gone" and "> host-0 dismiss b workerpool0-0 g1" in told
    assert world.state("big") is JobState.PENDING


def test_a_host_on_which_unknown_work_has_ended_is_welcomed_before_it_is_told_to_forget_it() -> None:
    world = World(hosts=1)
    world.restore(world.back_up())
    told = world.join("host-0", places=[world.place("b", 0, "EMPTY", 1)])
    assert told[0] == "> host-0 welcome 0" and "> host-0 dismiss b workerpool0-0 g1" in told


def _orphan_exits(world: World) -> st.ExitsReported:
    ended = Exit(1, 1, 0, ExitReason.COMPLETED, 0)
    report = ExitReport(1, WorkerId("b", "workerpool0-0"), ended)
    return st.ExitsReported("host-0", world.sessions["host-0"], (report,))


def test_an_admin_has_unknown_work_stopped() -> None:
    world = World(hosts=1)
    world.restore(world.back_up())
    assert world.dismiss("host-0", "b") == ["> refuse WRONG_STATE"]
    world.join("host-0", places=[world.place("b", 0, "RUNNING", 4)])
    told = world.dismiss("host-0", "b")
    assert told == ["host-0 orphan b stop requested", "> host-0 dismiss b workerpool0-0 g4", "> reply host-0"]
    # Level, not edge: said again at the next hello.
    assert "> host-0 dismiss b workerpool0-0 g4" in world.join(
        "host-0", places=[world.place("b", 0, "STOPPING", 4)]
    )


def test_nothing_is_decided_while_a_host_is_silent_until_an_admin_vouches() -> None:
    world = running(hosts=3)
    world.submit("q", gang(1))
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    world.join("host-2")
    world.wait(600, beating=["host-0", "host-2"])
    job = world.cluster.jobs["a"]
    assert job.unreconciled is Unreconciled.OPEN and world.cluster.jobs["q"].unreconciled is Unreconciled.OPEN
    assert world.cancel("a") == ["> refuse WRONG_STATE"]
    # New work is not held up.
    world.submit("n", gang(1))
    assert world.state("n") is JobState.PENDING
    told = world.fence("host-1")
    assert "a unsure, beyond g1001" in told and "reconciliation ended" in told
    assert "> host-0 STOP a w0 g1001" in told


def test_a_controller_that_dies_while_in_doubt_asks_again() -> None:
    world = running()
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    world.restart_controller()
    assert world.join("host-1", places=seen(world, "a", 1, generation=1)) == ["> host-1 welcome 0"]
    assert "a cleared" in world.join("host-0", places=seen(world, "a", 0, generation=1))


def test_an_end_that_is_nowhere_any_more_pauses_the_job() -> None:
    world = running()
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, state="EMPTY", generation=1))
    world.join("host-1", places=seen(world, "a", 1, generation=1))
    assert world.cluster.jobs["a"].unreconciled is None
    told = world.report("a", 0, "EMPTY")
    assert told[:2] == ["a exit g1 r0 LOST_RECORD", "a to pause"]
    world.exit("a", 1, "STOPPED:15")
    assert "a paused" in world.report("a", 1, "EMPTY")


def test_jobs_that_were_ending_end_and_terminal_ones_stay_so() -> None:
    world = running()
    world.cancel("a")
    world.restore(world.back_up())
    assert world.cluster.jobs["a"].unreconciled is None
    world.join("host-0", places=seen(world, "a", 0, state="STOPPING", generation=1))
    world.join("host-1")
    reasons = {e.exit.reason for e in world.log if isinstance(e, ev.RankExited)}
    assert reasons == {ExitReason.LOST_RECORD}, "it may have ended, and been forgotten, since"
    world.report("a", 1, "EMPTY")
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    assert world.state("a") is JobState.CANCELLED


def test_workers_relaunched_alone_are_found_at_their_own_generations() -> None:
    world = World(hosts=2)
    world.submit("a", dataclasses.replace(gang(2), retries=Retries(scope=RestartScope.WORKER, job_retries=0)))
    world.run("a")
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "a", 0, generation=1))
    told = world.join("host-1", places=seen(world, "a", 1, generation=3))
    assert told[0] == "a found g1,3 on host-0 host-1"
    job = world.cluster.jobs["a"]
    assert job.generation_of(0) == 1 and job.generation_of(1) == 3


def test_no_spot_job_gives_way_while_it_is_in_doubt() -> None:
    world = World(hosts=2)
    world.submit("s", gang(2, strategy=Strategy.SPOT))
    world.run("s")
    world.restore(world.back_up())
    world.join("host-0", places=seen(world, "s", 0, generation=1))
    world.submit("n", gang(1))
    assert world.cluster.jobs["s"].unreconciled is Unreconciled.OPEN and not world.cluster.jobs["s"].stopping


def test_events_go_on_past_every_number_that_was_given_out() -> None:
    world = running()
    backup = world.back_up()
    world.submit("later", gang(1))
    world.restore(backup)
    assert world.cluster.sequence == len(backup) + 1 + GAP - 1
    assert world.cluster.gaps == [(len(backup), world.cluster.sequence)]


@pytest.mark.parametrize("moment", ["placed", "prepared", "running"])
def test_a_gang_that_the_backup_saw_on_its_way_up(moment: str) -> None:
    world = World(hosts=2)
    world.submit("a")
    if moment != "placed":
        world.report("a", 0, "PREPARED")
    backup = world.back_up()
    world.run("a") if moment == "running" else None
    world.restore(backup)
    state = "RUNNING" if moment == "running" else "PREPARED"
    for number in (0, 1):
        world.join(f"host-{number}", places=seen(world, "a", number, state=state, generation=1))
    job = world.cluster.jobs["a"]
    assert job.unreconciled is None
    if moment == "running":
        assert job.state is JobState.RUNNING and job.launched
    else:
        world.run("a")
        assert job.state is JobState.RUNNING
