"""Findings about hardware keep work from hosts, but never from many at once; admins may let a host have work again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.hosts.test_failing_checks import FULL, reports
from tests.scenarios.hosts.test_host_history import attention
from tests.scenarios.world import World, gang

from holdfast._base.health import Health
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.cluster import news_of
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.health import most
from holdfast_controller.core.model.hosts.host import CheckStatus, FailedCheck, Waiver
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.access_commands import HostRemovalAsked
from holdfast_controller.core.step.step import Policies

DOWN = FailedCheck(
    "ib.port/mlx5_0:1",
    CheckStatus.ERROR,
    "the port is down",
    "Gangs that use this port can't start, or hang.",
    ("ibstat",),
    Wall(5.0),
    keeps_work_away=True,
    health=Health.CORDON,
)
BROKEN = replace(DOWN, check="memory.uncorrected/mc0", health=Health.FAIL)
HOT = replace(
    DOWN, check="gpu.hot/GPU-1", status=CheckStatus.WARNING, keeps_work_away=False, health=Health.DEGRADED
)


def kept(world: World) -> list[str]:
    return sorted(name for name, host in world.cluster.hosts.items() if not host.takes_work)


def common_causes(world: World) -> list[ev.CommonCauseNoticed]:
    return [event for event in world.log if isinstance(event, ev.CommonCauseNoticed)]


@pytest.mark.parametrize(
    ("hosts", "share_pct", "allowed"),
    [
        (1, 10, 1),
        (2, 10, 1),
        (3, 10, 2),
        (10, 10, 2),
        (29, 10, 2),
        (30, 10, 3),
        (500, 10, 50),
        (500, 0, 0),
        (4, 100, 4),
    ],
)
def test_how_many_hosts_may_be_kept_from_work(hosts: int, share_pct: int, allowed: int) -> None:
    assert most(hosts, share_pct) == allowed


@pytest.mark.parametrize("finding", [DOWN, BROKEN])
def test_a_grave_finding_keeps_new_work_away_until_it_is_over(finding: FailedCheck) -> None:
    world = World(hosts=4)
    world.submit("a", gang(1))
    world.run("a")
    host = world.cluster.jobs["a"].places[0].host
    assert reports(world, host, finding) == [f"{host} {finding.check} fails (ERROR)"], "what runs there runs on"
    assert kept(world) == [host]
    reports(world, host)
    assert kept(world) == []


def test_a_degraded_host_keeps_its_work() -> None:
    world = World(hosts=4)
    reports(world, "host-0", HOT)
    assert kept(world) == []


def test_a_fault_of_every_host_at_once_cordons_no_more_than_the_brake_allows() -> None:
    world = World(hosts=40)
    told = [line for index in range(40) for line in reports(world, f"host-{index}", DOWN)]
    assert len(kept(world)) == 4
    assert len([line for line in told if "fails" in line]) == 40, "each is recorded all the same"
    (cause,) = common_causes(world)
    assert "on 5 hosts at once: a common cause?" in cause.sentence and len(cause.hosts) == 5
    news = news_of(cause, message_of(cause, None))
    assert news is not None and news.kind.name == "COMMON_CAUSE"
    (line,) = [line for line in attention(world) if "a common cause?" in line]
    assert "on 40 hosts at once" in line and "4 of them get no new work" in line


def test_when_the_common_cause_is_over_no_host_was_cordoned_for_it_on_the_way() -> None:
    world = World(hosts=40)
    for index in range(40):
        reports(world, f"host-{index}", DOWN)
    before = kept(world)
    for index in range(40):
        reports(world, f"host-{index}")
        assert set(kept(world)) <= {*before, "host-36", "host-37", "host-38", "host-39"}
    assert kept(world) == []
    assert not [line for line in attention(world) if "common cause" in line]


def test_hosts_that_stay_ill_after_it_are_kept_from_work() -> None:
    world = World(hosts=40)
    for index in range(40):
        reports(world, f"host-{index}", DOWN)
    for index in range(38):
        reports(world, f"host-{index}")
    assert kept(world) == ["host-38", "host-39"]


def test_a_host_has_one_place_under_the_brake_however_much_is_wrong_with_it() -> None:
    world = World(hosts=4)
    reports(world, "host-0", DOWN, BROKEN)
    reports(world, "host-1", DOWN)
    assert kept(world) == ["host-0", "host-1"]
    reports(world, "host-2", DOWN)
    reports(world, "host-0", DOWN, BROKEN, replace(DOWN, check="ib.rate/mlx5_0:1"))
    assert kept(world) == ["host-0", "host-1"]


def test_the_brake_is_of_hardware_and_not_of_full_disks() -> None:
    world = World(hosts=4)
    for index in range(4):
        reports(world, f"host-{index}", FULL)
    assert len(kept(world)) == 4


@pytest.mark.parametrize("way", ["uncordoned", "removed", "upgraded"])
def test_the_brake_lets_go_however_a_host_ceases_to_count(way: str) -> None:
    world = World(hosts=4)
    for index in range(3):
        reports(world, f"host-{index}", DOWN)
    assert kept(world) == ["host-0", "host-1"]
    if way == "uncordoned":
        world.step(st.UncordonAsked(1, "ann", "host-0"))
    elif way == "removed":
        world.hang_up("host-0")
        world.wait(120, beating=["host-1", "host-2", "host-3"])
        world.step(HostRemovalAsked(1, "ann", "host-0", force=True))
    else:
        world.join("host-0", version="2")
        reports(world, "host-0")
    assert kept(world) == ["host-1", "host-2"]
    assert not [line for line in attention(world) if "a common cause?" in line]


def test_without_a_share_findings_are_only_reported() -> None:
    world = World(hosts=4, policies=Policies(secret_key=b"k", health_cordons_pct=0))
    reports(world, "host-0", DOWN)
    assert kept(world) == [] and common_causes(world) == []
    assert not [line for line in attention(world) if "a common cause?" in line]


def test_an_admin_lets_a_host_have_work_until_the_finding_comes_again() -> None:
    world = World(hosts=4)
    reports(world, "host-0", DOWN, HOT)
    world.step(st.UncordonAsked(1, "ann", "host-0"))
    assert kept(world) == []
    assert reports(world, "host-0", DOWN, HOT) == []
    assert kept(world) == []
    assert world.cluster.hosts["host-0"].failed_checks[DOWN.check].waived is Waiver.ADMIN
    reports(world, "host-0", HOT)
    reports(world, "host-0", DOWN, HOT)
    assert kept(world) == ["host-0"]


def test_what_an_admin_has_waived_stays_so_when_the_agent_is_upgraded() -> None:
    world = World(hosts=4)
    reports(world, "host-0", DOWN)
    world.step(st.UncordonAsked(1, "ann", "host-0"))
    world.join("host-0", version="2")
    assert reports(world, "host-0", DOWN, partial=True) == []
    assert kept(world) == []
    reports(world, "host-0")
    reports(world, "host-0", DOWN)
    assert kept(world) == ["host-0"]


def test_who_was_kept_from_work_and_who_was_spared_outlives_the_controller() -> None:
    world = World(hosts=4)
    for index in range(4):
        reports(world, f"host-{index}", DOWN)
    before = kept(world)
    assert before == ["host-0", "host-1"]
    world.restart_controller()
    for index in range(4):
        world.join(f"host-{index}")
        assert reports(world, f"host-{index}", DOWN) == []
    assert kept(world) == before and len(common_causes(world)) == 1


def test_an_admin_waives_what_is_known_beside_a_full_disk() -> None:
    world = World(hosts=4)
    reports(world, "host-0", FULL, DOWN)
    world.step(st.UncordonAsked(1, "ann", "host-0"))
    assert kept(world) == ["host-0"], "nothing starts there while the disk is full"
    reports(world, "host-0", DOWN)
    assert kept(world) == []


def test_an_admin_waives_what_only_the_brake_spares() -> None:
    world = World(hosts=4)
    for index in range(3):
        reports(world, f"host-{index}", DOWN)
    world.step(st.UncordonAsked(1, "ann", "host-2"))
    reports(world, "host-1")
    assert kept(world) == ["host-0"]
