"""The site's fence command: which silent hosts it is called for, and what its answer changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.hosts.fence_command import FENCE
from holdfast_controller.core.model.hosts.host import Liveness
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.actions import CallFence
from holdfast_controller.core.step.commands import AgentStopping, FenceAsked, FenceFailed
from holdfast_controller.core.step.step import Policies

CALLED = ["> fence host-1, silent for 30 s"]


def made(hosts: int = 4, call_s: float = 30.0) -> World:
    """Job ``a`` of two workers, which keeps running on hosts that are cut off, on host-0 and host-1."""
    world = World(hosts=hosts, policies=Policies(secret_key=b"k", leases=LeasePolicy(fence_call_s=call_s)))
    world.submit("a", gang())
    world.run("a")
    return world


@pytest.fixture
def world() -> World:
    return made()


def others(world: World, but: str = "host-1") -> list[str]:
    return [name for name in world.sessions if name != but]


def silence(world: World, seconds: float) -> list[str]:
    """What is done while host-1 alone is silent."""
    return [line for line in world.wait(seconds, beating=others(world)) if "fence" in line]


def test_it_is_called_once_and_before_the_lease_ends(world: World) -> None:
    world.hang_up("host-1")
    assert silence(world, 29) == []
    assert silence(world, 120) == CALLED
    (call,) = [action for action in world.sent if isinstance(action, CallFence)]
    assert call.address == world.cluster.hosts["host-1"].address
    assert 34 < call.until - (world.wall - 149 + 30) < 38, "66 s after its last word"


def test_without_a_command_nothing_is_called() -> None:
    world = made(call_s=0.0)
    world.hang_up("host-1")
    assert silence(world, 120) == []


@pytest.mark.parametrize("missed", [True, False], ids=["connection missed", "connection open"])
def test_what_it_proves_moves_the_work_at_once(world: World, missed: bool) -> None:
    if missed:
        world.hang_up("host-1")
    assert silence(world, 31) == CALLED
    job = world.cluster.jobs["a"]
    assert not world.cluster.hosts["host-1"].lost
    told = world.step(FenceAsked(900, "fence command", "host-1", "switched off by /etc/holdfast/fence"))
    assert any(line.startswith("a exit g1 r1 LOST_HOST") for line in told), told
    world.exit("a", 0, "STOPPED:15")
    world.empty("a") if job.terminal else world.report("a", 0, "EMPTY")
    assert [place.host for place in job.places] == ["host-0", "host-2"]
    assert not world.cluster.hosts["host-1"].allocations
    assert world.cluster.presence_of("host-1").session is None


def test_a_failure_is_shown_at_the_host_until_it_is_heard_again(world: World) -> None:
    world.hang_up("host-1")
    silence(world, 31)
    world.step(FenceFailed("host-1", "/etc/holdfast/fence exited with 1: no answer from the BMC"))
    failed = world.cluster.hosts["host-1"].failed_checks[FENCE]
    assert failed.saw.endswith("no answer from the BMC")
    assert failed.fix == ("holdfast host fence host-1 --yes-it-is-off",)
    assert world.cluster.jobs["a"].state is JobState.RUNNING
    assert silence(world, 60) == [], "once in a silence"
    world.join("host-1")
    assert FENCE not in world.cluster.hosts["host-1"].failed_checks


def test_a_second_silence_soon_after_the_first_is_noticed_in_time(world: World) -> None:
    for _ in range(2):
        world.hang_up("host-1")
        assert silence(world, 29) == []
        assert world.cluster.presence_of("host-1").liveness is Liveness.SUSPECT
        assert silence(world, 2) == CALLED
        world.join("host-1")
        assert world.cluster.presence_of("host-1").liveness is Liveness.READY


def test_a_host_without_work_or_that_said_that_it_ends_is_left_alone(world: World) -> None:
    world.hang_up("host-3")
    told = world.wait(60, beating=others(world, "host-3"))
    assert not [line for line in told if "fence" in line]
    world.step(AgentStopping("host-1", world.sessions["host-1"]))
    world.hang_up("host-1")
    assert silence(world, 60) == []


def test_when_most_hosts_are_silent_none_is_switched_off(world: World) -> None:
    for name in ("host-1", "host-2", "host-3"):
        world.hang_up(name)
    told = world.wait(120, beating=["host-0"])
    assert not [line for line in told if "fence" in line]


def test_it_can_be_called_at_the_loss_itself() -> None:
    world = made(call_s=66.0)
    world.hang_up("host-1")
    assert silence(world, 120) == ["> fence host-1, silent for 66 s"]
    assert replace(LeasePolicy(), fence_call_s=66.0).lost_s == 66.0
