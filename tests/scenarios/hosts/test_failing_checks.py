"""Checks that hosts and the controller make of themselves: recorded once, listed, and kept from work where need be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.hosts.test_host_history import attention, history
from tests.scenarios.world import World, gang

from holdfast._base.health import Health
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.cluster import news_of
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.hosts.host import CheckStatus, FailedCheck
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.host_commands import ControllerChecked
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.core.views.gauges import gauges

FULL = FailedCheck(
    "disk.state_dir",
    CheckStatus.ERROR,
    "/var/lib/holdfast has 3 MiB free of the 1024 MiB that it must have",
    "No worker starts here.",
    ("du -xh --max-depth=2 /var/lib/holdfast",),
    Wall(5.0),
    keeps_work_away=True,
)
NEARLY = replace(FULL, status=CheckStatus.WARNING, saw="/var/lib/holdfast has 2048 MiB free", keeps_work_away=False)


@pytest.fixture
def world() -> World:
    return World(hosts=2)


def reports(world: World, host: str, *failed: FailedCheck, partial: bool = False) -> list[str]:
    return world.step(st.ChecksReported(host, world.sessions[host], failed, partial))


def beats(world: World, host: str, *, behind_s: float, count: int = 6) -> list[str]:
    told: list[str] = []
    for _ in range(count):
        world.mono += 5
        sent_at = Wall(world.wall - behind_s)
        told += world.step(st.HostBeat(host, world.sessions[host], sent_at=sent_at))
    return told


def test_a_failed_check_is_one_event_and_one_line_and_so_is_its_end(world: World) -> None:
    assert reports(world, "host-0", FULL) == ["host-0 disk.state_dir fails (ERROR)"]
    assert reports(world, "host-0", replace(FULL, saw="2 MiB free")) == []
    (line,) = [line for line in attention(world) if "disk.state_dir" in line and "cordoned" not in line]
    assert line.startswith(
        f"host/host-0 disk.state_dir: {FULL.saw}; it gets no new work until that is over; try: du"
    )
    assert reports(world, "host-0") == ["host-0 disk.state_dir passes"]
    assert attention(world) == []
    assert history(world) == [
        f"host-0 disk.state_dir: {FULL.saw}; it gets no new work until that is over",
        "host-0 disk.state_dir is well again",
    ]


def test_admins_are_notified_once_and_again_when_it_is_over(world: World) -> None:
    for failed in ((FULL,), (FULL,), (), ()):
        reports(world, "host-0", *failed)
    news = [news_of(event, message_of(event, None)) for event in world.log[2:]]
    assert [(each.kind.name, each.subject, each.answers) for each in news if each is not None] == [
        ("CHECK_FAILED", "host/host-0/check/disk.state_dir", False),
        ("CHECK_PASSED", "host/host-0/check/disk.state_dir", False),
    ]


def test_a_host_whose_check_keeps_work_away_gets_none_and_the_job_says_why(world: World) -> None:
    reports(world, "host-0", FULL)
    reports(world, "host-1", FULL)
    world.submit("a", gang(1))
    reason = wait_reason(world.cluster, world.cluster.jobs["a"], schedulable_hosts(world.cluster))
    assert f"host-0 disk.state_dir: {FULL.saw}" in reason
    assert "a placed g1 on host-1" in reports(world, "host-1")


def test_work_that_runs_there_runs_on(world: World) -> None:
    world.submit("a", gang(2))
    world.run("a")
    assert reports(world, "host-0", FULL) == ["host-0 disk.state_dir fails (ERROR)"]


def test_a_nearly_full_disk_keeps_no_work_away_and_gets_worse_with_a_new_event(world: World) -> None:
    reports(world, "host-0", NEARLY)
    assert world.cluster.hosts["host-0"].takes_work
    since = world.cluster.hosts["host-0"].failed_checks["disk.state_dir"].since
    world.mono += 60
    assert reports(world, "host-0", FULL) == ["host-0 disk.state_dir fails (ERROR)"]
    assert world.cluster.hosts["host-0"].failed_checks["disk.state_dir"].since == since


def test_a_partial_report_takes_nothing_back(world: World) -> None:
    swap = FailedCheck("memory.swap", CheckStatus.ERROR, "on", "", (), Wall(5.0))
    reports(world, "host-0", FULL, swap)
    assert reports(world, "host-0", partial=True) == []
    assert reports(world, "host-0", swap) == ["host-0 disk.state_dir passes"]


def test_failed_checks_outlive_a_restart_of_the_controller_and_are_told_once(world: World) -> None:
    reports(world, "host-0", FULL)
    world.restart_controller()
    world.join("host-0")
    assert reports(world, "host-0", FULL) == []
    assert not world.cluster.hosts["host-0"].takes_work


def test_checks_of_a_lost_host_are_not_listed(world: World) -> None:
    reports(world, "host-0", NEARLY)
    world.hang_up("host-0")
    world.wait(120, beating=["host-1"])
    assert not [line for line in attention(world) if "disk." in line]


@pytest.mark.parametrize(
    ("behind_s", "status", "words"),
    [
        (86_400.0, "ERROR", "its clock is 24 h behind the controller's"),
        (-86_400.0, "ERROR", "its clock is 24 h ahead of the controller's"),
        (5.0, "WARNING", "its clock is 5 s behind the controller's"),
    ],
)
def test_a_wrong_clock_is_told_once_and_when_it_is_right_again(
    world: World, behind_s: float, status: str, words: str
) -> None:
    assert beats(world, "host-0", behind_s=behind_s, count=20) == [f"host-0 time.controller fails ({status})"]
    assert [line for line in attention(world) if words in line]
    assert beats(world, "host-0", behind_s=0.01, count=20) == ["host-0 time.controller passes"]
    assert attention(world) == []


def test_one_late_heartbeat_is_no_wrong_clock(world: World) -> None:
    beats(world, "host-0", behind_s=0.01)
    assert beats(world, "host-0", behind_s=30.0, count=5) == []
    assert beats(world, "host-0", behind_s=0.01, count=6) == []


def test_a_clock_at_the_bound_does_not_flap(world: World) -> None:
    told: list[str] = []
    for _ in range(10):
        told += beats(world, "host-0", behind_s=2.1) + beats(world, "host-0", behind_s=1.9)
    assert told == ["host-0 time.controller fails (WARNING)"]


def test_a_report_of_checks_says_nothing_of_the_clock(world: World) -> None:
    beats(world, "host-0", behind_s=86_400.0)
    assert reports(world, "host-0") == []


def test_another_release_of_the_agent_starts_afresh(world: World) -> None:
    reports(world, "host-0", FULL)
    world.hang_up("host-0")
    world.join("host-0", version="2")
    assert world.cluster.hosts["host-0"].failed_checks == {}


def test_the_controllers_own_checks_are_events_of_the_cluster(world: World) -> None:
    assert world.step(ControllerChecked((NEARLY,))) == ["disk.state_dir fails (WARNING)"]
    assert world.step(ControllerChecked((NEARLY,))) == []
    assert [line for line in attention(world) if line.startswith(f"controller disk.state_dir: {NEARLY.saw}")]
    assert world.step(ControllerChecked(())) == ["disk.state_dir passes"]
    assert attention(world) == []
    kinds = [type(event) for event in world.log[2:]]
    assert kinds == [ev.ControllerCheckFailed, ev.ControllerCheckPassed]


def test_unknown_work_after_a_restore_needs_attention(world: World) -> None:
    backup = world.back_up()
    world.submit("a", gang(1))
    world.run("a")
    job = world.cluster.jobs["a"]
    host = job.places[0].host
    place = world.place("a", 0, "RUNNING")
    world.restore(backup)
    assert any("has yet to say what it runs" in line for line in attention(world))
    world.join(host, places=[place])
    (line,) = [line for line in attention(world) if "runs work that the controller doesn't know: a" in line]
    assert line.startswith(f"host/{host} ") and f"holdfast host stop-orphans {host} a" in line


def test_a_finding_that_only_informs_is_on_the_hosts_page_and_nowhere_else(world: World) -> None:
    known = FailedCheck(
        "pcie.nonfatal/0000:5e:00.0", CheckStatus.WARNING, "1 error", "", (), Wall(5.0), health=Health.INFORM
    )
    worse = replace(known, check="ib.flaps/mlx5_0:1", health=Health.DEGRADED)
    reports(world, "host-0", known, worse)
    assert set(world.cluster.hosts["host-0"].failed_checks) == {known.check, worse.check}
    assert [line.split()[1] for line in attention(world)] == ["ib.flaps/mlx5_0:1:"]
    reports(world, "host-0")
    news = [news_of(event, message_of(event, None)) for event in world.log[2:]]
    assert [(each.kind.name, each.subject, each.answers) for each in news if each is not None] == [
        ("CHECK_FAILED", "host/host-0/check/ib.flaps/mlx5_0:1", False),
        ("CHECK_PASSED", "host/host-0/check/pcie.nonfatal/0000:5e:00.0", True),
        ("CHECK_PASSED", "host/host-0/check/ib.flaps/mlx5_0:1", False),
    ]


def test_metrics_count_findings_by_class(world: World) -> None:
    hot = FailedCheck("gpu.hot/GPU-1", CheckStatus.WARNING, "hot", "", (), Wall(5.0), health=Health.DEGRADED)
    for host in ("host-0", "host-1"):
        reports(world, host, hot, FULL)
    found = gauges(world.cluster, Now(Mono(world.mono), Wall(world.wall))).of(fam.FINDINGS)
    assert found == {("FAIL",): 0, ("CORDON",): 0, ("DEGRADED",): 2, ("INFORM",): 0}


def test_a_job_that_waits_for_the_only_host_says_why_holdfast_has_cordoned_it() -> None:
    world, why = World(hosts=1), "host-0: the limit of nofile is 512 of the 1024 that it must be"
    world.submit("a", gang(1))
    world.report("a", 0, "CANNOT_PREPARE", message=why, host_fault=True)
    world.report("a", 0, "EMPTY")

    said = wait_reason(world.cluster, world.cluster.jobs["a"], schedulable_hosts(world.cluster))
    assert said == f"no host takes work at present; out of service: host-0: a: {why}"
    world.uncordon("host-0")
    world.cordon("host-0", "for later")
    said = wait_reason(world.cluster, world.cluster.jobs["a"], schedulable_hosts(world.cluster))
    assert "for later" not in said, "an admin's words are for admins"
