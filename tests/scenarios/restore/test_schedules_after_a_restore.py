"""Schedules after a restore: a run that was made since the backup is neither repeated under its id nor stopped."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast_controller.core.model.schedules import JobPlan, Overlap
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.schedule_commands import ScheduleAsked, SchedulePauseAsked
from holdfast_controller.core.step.step import Policies

HOUR = 3600.0
HOSTS = ("host-0", "host-1")
LOST = "tick-197001121400"


def lost_run(overlap: Overlap) -> tuple[World, str, WorkerReport]:
    """A world restored from before a run that one of its hosts still has; that host, and what it reports."""
    on = World(2, Policies(secret_key=b"k", admins=frozenset({"ann"})))
    plan = JobPlan(display_name="tick", gang=gang(1), spec_json="{}")
    on.step(ScheduleAsked(7, "ann", "tick", "0 * * * *", "UTC", overlap, 0.0, plan))
    backup = on.back_up()
    on.wait(HOUR, beating=HOSTS)
    job = on.cluster.jobs[LOST]
    worker = WorkerId(LOST, job.gang.members[0].name)
    place = job.places[0]
    report = WorkerReport(worker, attempt=1, generation=1, state=ReportedState.RUNNING, gpus=place.gpus)
    on.restore(backup, down_s=60.0)
    return on, place.host, report


def come_back(on: World, host: str, report: WorkerReport) -> None:
    for each in HOSTS:
        on.join(each, places=[report] if each == host else [])
    on.wait(30.0, beating=HOSTS)


def runs(on: World) -> list[str]:
    return [name for name in on.cluster.jobs if name.startswith("tick-")]


def stopped(on: World) -> list[act.Action]:
    return [each for each in on.sent if isinstance(each, act.StopOrphan)]


def test_no_run_is_made_before_the_hosts_have_told_and_none_has_the_id_of_work_that_goes_on() -> None:
    on, host, report = lost_run(Overlap.ALLOW)
    on.wait(1.0)
    assert runs(on) == []
    on.wait(5 * 60.0, beating=())
    assert runs(on) == [], "not as long as a host of the log has not called"
    come_back(on, host, report)
    assert runs(on) == [f"{LOST}r1"]
    on.join(host, places=[report])
    assert not stopped(on)
    assert [each.job for each in on.cluster.hosts[host].orphans.values()] == [LOST]


@pytest.mark.parametrize("overlap", [Overlap.FORBID, Overlap.REPLACE])
def test_work_that_only_a_host_knows_of_counts_as_an_earlier_run(overlap: Overlap) -> None:
    on, host, report = lost_run(overlap)
    come_back(on, host, report)
    why = f"{LOST} on {host} of an earlier run was found after the restore and has not ended"
    assert (runs(on), on.cluster.schedules["default/tick"].left_out) == ([], why)
    on.join(host)
    on.wait(HOUR, beating=HOSTS)
    assert runs(on) == ["tick-197001121500"]
    assert not stopped(on)


def test_a_run_that_was_made_and_ended_since_the_backup_keeps_its_id_to_itself() -> None:
    on, _, _ = lost_run(Overlap.FORBID)
    for each in HOSTS:
        on.join(each)
    on.wait(30.0, beating=HOSTS)
    assert runs(on) == [f"{LOST}r1"]
    on.wait(HOUR, beating=HOSTS)
    assert on.cluster.schedules["default/tick"].left_out.startswith(f"{LOST}r1 of an earlier run")


def test_pausing_makes_no_run_either_while_hosts_are_still_to_tell() -> None:
    on, _, _ = lost_run(Overlap.ALLOW)
    on.step(SchedulePauseAsked(7, "ann", "default", "tick"))
    assert runs(on) == []


def test_a_log_without_hosts_waits_for_those_that_joined_after_the_backup() -> None:
    on = World(0, Policies(secret_key=b"k", admins=frozenset({"ann"})))
    plan = JobPlan(display_name="tick", gang=gang(1), spec_json="{}")
    on.step(ScheduleAsked(7, "ann", "tick", "0 * * * *", "UTC", Overlap.FORBID, 0.0, plan))
    backup = on.back_up()
    on.restore(backup, down_s=HOUR)
    worker = WorkerReport(
        WorkerId(LOST, "w0"), attempt=1, generation=1, state=ReportedState.RUNNING, gpus=("GPU-host-0-0",)
    )
    on.wait(1.0)
    on.join("host-0", places=[worker])
    on.wait(60.0, beating=("host-0",))
    assert runs(on) == []
    assert LOST in on.cluster.schedules["default/tick"].left_out
