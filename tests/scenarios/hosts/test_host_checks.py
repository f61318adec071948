"""Active checks: idle hosts are measured by jobs that give way to all others, and slow ones are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import json_format
from tests.scenarios.hosts.checked_fleet import (
    OFF,
    WELL,
    ask,
    beat,
    checks,
    fleet,
    measure_all,
    said,
)
from tests.scenarios.world import World, gang, inventory

from holdfast import spec
from holdfast._base.health import Health
from holdfast.v1 import spec_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.hosts.measurement_jobs import PROJECT
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.caution import LEMON
from holdfast_controller.core.model.hosts.host import CheckStatus, Inventory
from holdfast_controller.core.model.hosts.measurements import Kind, Outcome, Why
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step import actions as act
from holdfast_controller.shell.convert.gang_from_spec import gang_of


def test_a_fleet_is_measured_host_by_host_then_in_pairs_and_left_alone_for_a_week() -> None:
    world = fleet(8)
    done = measure_all(world)
    alone = [event for event in done if event.result.kind is Kind.ALONE]
    pairs = [event for event in done if event.result.kind is Kind.PAIR]
    assert sorted(event.host for event in alone) == sorted(world.cluster.hosts)
    assert sorted({event.host for event in pairs}) == sorted(world.cluster.hosts)
    assert {event.result.why for event in alone} == {Why.JOINED}
    assert not any(host.failed_checks for host in world.cluster.hosts.values())
    assert all(name in world.cluster.purged for name in {event.result.job for event in done}), "no trace is left"
    world.mono += 6 * 86_400
    beat(world, 120)
    assert not checks(world)
    world.mono += 86_400
    beat(world, 120)
    assert checks(world)


def test_few_hosts_are_measured_at_a_time() -> None:
    world = fleet(9)
    beat(world, 35)
    assert len(checks(world)) == 2
    beat(world, 300)
    assert len(checks(world)) == 2


def test_without_the_setting_nothing_is_measured_until_an_admin_asks() -> None:
    world = World(3, OFF)
    beat(world, 3600)
    world.uncordon("host-0")
    assert not checks(world)
    ask(world, "host-1")
    (job,) = checks(world)
    assert job.hosts == ("host-1",)
    assert (job.owner, job.gang.project) == ("holdfast", PROJECT)
    done = measure_all(world)
    assert [event.result.why for event in done] == [Why.ASKED] * 3, "alone, and both of a pair"


def test_its_job_file_says_what_its_gang_does() -> None:
    world = World(2, OFF)
    ask(world, "host-1", at_once=True)
    (job,) = checks(world)
    message = json_format.Parse(job.spec_json, spec_pb2.CustomJobSpec())
    read = gang_of(spec.from_proto(message), project=PROJECT)
    assert (read.pools, read.grace_s, read.hang.action, read.retries.disabled, read.selector, read.strategy) == (
        job.gang.pools,
        1.0,
        job.gang.hang.action,
        True,
        job.gang.selector,
        job.gang.strategy,
    )


def test_a_check_gives_way_to_a_job_at_once_and_is_made_later() -> None:
    world = fleet(1)
    beat(world, 35)
    (check,) = checks(world)
    world.run(check.id)
    world.submit("job-1", gang(1))
    assert check.outcome is JobState.CANCELLED, "in the step of the submission"
    world.exit(check.id, 0, "STOPPED:9")
    world.report(check.id, 0, "EMPTY")
    assert world.cluster.jobs["job-1"].places[0].host == "host-0"
    (result,) = world.cluster.hosts["host-0"].measured.results
    assert (result.outcome, result.problem) == (Outcome.STOPPED, "It gave way to job-1.")
    world.run("job-1")
    world.exit("job-1", 0)
    world.report("job-1", 0, "EMPTY")
    beat(world, 500)
    assert not checks(world), "another job may come"
    beat(world, 200)
    assert checks(world)


@pytest.mark.parametrize("rules", [{"strategy": Strategy.SPOT}, {"waits": False}, {"priority": 3}])
def test_every_kind_of_job_goes_before_a_check(rules: dict[str, Any]) -> None:
    world = fleet(1)
    beat(world, 35)
    (check,) = checks(world)
    world.run(check.id)
    world.submit("job-1", gang(1, **rules))
    assert check.outcome is JobState.CANCELLED
    world.exit(check.id, 0, "STOPPED:9")
    world.report(check.id, 0, "EMPTY")
    beat(world, 15)
    assert world.cluster.jobs["job-1"].places


def test_a_check_ends_when_a_job_shares_its_host() -> None:
    world = fleet(1)
    beat(world, 35)
    (check,) = checks(world)
    world.run(check.id)
    world.submit("job-1", gang(1, gpus=0))
    assert world.cluster.jobs["job-1"].places, "it needn't wait for that"
    assert check.outcome is JobState.CANCELLED


def test_no_check_begins_while_a_job_waits_that_might_have_the_host() -> None:
    world = fleet(2)
    world.submit("job-3", gang(2))
    world.submit("job-4", gang(2))
    world.cancel("job-3")
    world.run("job-4") if world.cluster.jobs["job-4"].places else None
    world.cordon("host-1")
    beat(world, 3600)
    assert not checks(world)


def test_a_host_that_returns_is_measured_and_one_that_is_cordoned_is_not() -> None:
    world = fleet(6)
    measure_all(world)
    world.cordon("host-2")
    beat(world, 60)
    world.uncordon("host-2")
    done = measure_all(world)
    assert done[0].host == "host-2" and done[0].result.why is Why.RETURNED
    world.cordon("host-3")
    world.mono += 8 * 86_400
    beat(world, 35)
    assert not any("host-3" in job.hosts for job in checks(world))


def test_an_admin_may_have_a_cordoned_host_measured_now() -> None:
    world = World(2, OFF)
    world.cordon("host-1")
    ask(world, "host-1", at_once=True)
    (check,) = checks(world)
    world.run(check.id)
    world.submit("job-1", gang(1))
    world.submit("job-2", gang(1))
    assert check.outcome is None, "no job waits for a host that takes no work"


def test_now_is_refused_where_the_host_has_work_and_otherwise_it_waits() -> None:
    world = World(1, OFF)
    world.submit("job-1", gang(1))
    ask(world, "host-0", at_once=True)
    (refused,) = [a for a in world.sent if isinstance(a, act.Refuse)]
    assert "host-0 can't be checked now: it has work" in refused.error.message
    assert world.cluster.hosts["host-0"].measured.due_alone is None
    ask(world, "host-0")
    assert world.cluster.hosts["host-0"].measured.due_alone is Why.ASKED
    world.run("job-1")
    world.exit("job-1", 0)
    world.report("job-1", 0, "EMPTY")
    beat(world, 31)
    assert checks(world)


def test_a_lost_host_is_not_measured_elsewhere() -> None:
    world = World(3, OFF)
    ask(world, "host-0", at_once=True)
    (job,) = checks(world)
    world.run(job.id)
    world.hang_up("host-0")
    beat(world, 1200)
    assert world.cluster.jobs[job.id].state is JobState.FAILED, "by its timeout"
    assert not checks(world)
    assert world.cluster.hosts["host-0"].measured.results[-1].outcome is not Outcome.MEASURED


def test_a_drain_ends_a_check() -> None:
    world = World(2, OFF)
    ask(world, "host-0", at_once=True)
    (job,) = checks(world)
    world.run(job.id)
    world.drain("host-0", 0.0)
    world.exit(job.id, 0, "STOPPED:9")
    world.report(job.id, 0, "EMPTY")
    assert job.id in world.cluster.purged or world.cluster.jobs[job.id].terminal
    assert not checks(world) and world.cluster.hosts["host-0"].drained


def test_a_controller_that_is_killed_neither_loses_nor_doubles_a_check() -> None:
    world = fleet(2)
    beat(world, 35)
    before = checks(world)
    for job in before:
        world.run(job.id)
    hosts = list(world.sessions)
    world.restart_controller()
    for name in hosts:
        running = [world.place(job.id, 0, "RUNNING") for job in before if job.hosts[0] == name]
        world.join(name, places=running)
    beat(world, 120)
    assert [job.id for job in checks(world)] == [job.id for job in before]
    world.exit(before[0].id, 0, said=said(WELL))
    world.report(before[0].id, 0, "EMPTY")
    assert world.cluster.hosts[before[0].hosts[0]].measured.results[-1].outcome is Outcome.MEASURED


def test_inventories_without_gpus_are_measured_too() -> None:
    world = World(0, OFF)
    world.join("host-0", Inventory(4, 8 << 30))
    ask(world, "host-0", at_once=True)
    (job,) = checks(world)
    assert job.gang.gpus == 0


def _events() -> dict[str, tuple[ev.HostEvent, Why | None]]:
    named: dict[str, Any] = {"host": "host-1", "at": Wall(5e6)}
    bad: dict[str, Any] = {"status": CheckStatus.WARNING, "saw": "it is so"}
    back = ev.HostJoined(
        **named,
        address="a",
        boot_id="boot-2",
        agent_version="1",
        inventory=inventory(name="host-1"),
        known=True,
        rebooted=True,
    )
    gone = ev.GpuCleared(**named, gpu="GPU-1", index=1, causes=("Xid 79",), by="holdfast", why="it has booted")
    return {
        "booted": (back, Why.RETURNED),
        "was lost": (ev.HostReturned(**named), Why.RETURNED),
        "repaired": (ev.HostUncordoned(**named, by="ann", repaired=True), Why.RETURNED),
        "was not cordoned": (ev.HostUncordoned(**named, by="ann"), None),
        "no maintenance had begun": (ev.MaintenanceEnded(**named, by="ann"), None),
        "lemon": (ev.HostCheckFailed(**named, check=LEMON, **bad), Why.SUSPECTED),
        "hot": (ev.HostCheckFailed(**named, check="gpu.hot/GPU-1", health=Health.DEGRADED, **bad), None),
        "port is back": (ev.HostCheckPassed(**named, check="ib.port/1", health=Health.CORDON), Why.SUSPECTED),
        "is fast again": (ev.HostCheckPassed(**named, check="measured.cpu.hash", health=Health.CORDON), None),
        "GPU is well": (gone, Why.SUSPECTED),
    }


@pytest.mark.parametrize("name", _events())
def test_what_befalls_a_host_says_whether_it_is_to_be_measured(name: str) -> None:
    cluster = World(2, OFF).cluster
    event, why = _events()[name]
    fold(cluster, event)
    assert cluster.hosts["host-1"].measured.due_alone is why
    assert cluster.hosts["host-0"].measured.due_alone is None


def test_the_most_urgent_reason_stays() -> None:
    world = World(2, OFF)
    ask(world, "host-1")
    host = world.cluster.hosts["host-1"]
    host.measured.running = ""
    fold(world.cluster, ev.HostReturned(host="host-1", at=Wall(5e6)))
    assert host.measured.due_alone is Why.ASKED


def test_a_host_that_joins_or_tells_of_its_gpus_says_whether_they_were_well_before() -> None:
    world = World(hosts=1)
    broken = replace(inventory(name="host-0"), gpu_problem="NVML hangs")
    world.beat("host-0", broken)
    world.beat("host-0", inventory(name="host-0"))
    world.join("host-0", broken)
    world.join("host-0", inventory(name="host-0"))

    joined = [event for event in world.log if isinstance(event, ev.HostJoined)]
    assert [event.had_gpu_problems for event in joined] == [False, False, True, False, True]
