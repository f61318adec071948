"""What a host's history says: why it was down, since when, and who did what."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import NEVER, Mono, Now, Wall, time_of_day
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.views.alerts import ControllerStatus, alerts
from holdfast_controller.core.views.overview import overview

OTHERS = ("host-1", "host-2", "host-3")


@pytest.fixture
def world() -> World:
    return World(hosts=4)


def history(world: World, host: str = "host-0") -> list[str]:
    """Its events in words, from after it joined."""
    told = [message_of(event, None) for event in world.log if getattr(event, "host", "") == host]
    return told[1:]


def newest(world: World, kind: type[ev.HostEvent]) -> ev.HostEvent:
    return next(event for event in reversed(world.log) if isinstance(event, kind))


def attention(world: World) -> list[str]:
    now = Now(Mono(world.mono), Wall(world.wall))
    found = overview(world.cluster, now)
    listed, _ = alerts(world.cluster, found, lambda _: True, {}, ControllerStatus("1", {}), now)
    return [f"{each.subject} {each.message}" for each in listed]


def stops_agent(world: World, host: str) -> list[str]:
    return world.step(st.AgentStopping(host, world.sessions[host]))


def test_a_silent_host_has_the_time_of_its_last_word_and_that_of_the_decision(world: World) -> None:
    world.beat("host-0")
    last_word = world.wall
    world.hang_up("host-0")
    world.wait(120, beating=OTHERS)
    lost = newest(world, ev.HostLost)
    assert isinstance(lost, ev.HostLost) and lost.at - lost.silent_s == pytest.approx(last_word)
    assert lost.at > last_word + 60
    world.join("host-0")
    told = history(world)
    assert told[0].startswith("host-0 lost: silent since ") and ", decided lost at " in told[0]
    assert told[1] == "host-0 is back after 2 min"


def test_a_host_that_shut_down_is_not_called_silent(world: World) -> None:
    world.step(st.ShutdownAnnounced("host-0", world.sessions["host-0"]))
    world.hang_up("host-0")
    world.wait(120, beating=OTHERS)
    told = history(world)
    assert told[0] == "host-0 shuts down; its work moves elsewhere"
    assert told[1].startswith("host-0 lost: it shut down at ") and "silent" not in told[1]
    assert [line for line in attention(world) if "host-0 it shut down at " in line]
    world.join("host-0", boot="boot-2")
    assert history(world)[2:] == ["host-0 has booted again", "host-0 is back after 2 min"]
    assert world.cluster.hosts["host-0"].going_down_since == NEVER


def test_a_stopped_agent_is_not_called_silent(world: World) -> None:
    assert stops_agent(world, "host-0") == ["host-0 agentstopped"]
    world.hang_up("host-0")
    world.wait(30, beating=OTHERS)
    assert [line for line in attention(world) if line.startswith("host/host-0 its agent was stopped at ")]
    world.wait(60, beating=OTHERS)
    told = history(world)
    assert told[0] == "the agent of host-0 was stopped; what runs there runs on"
    assert told[1].startswith("host-0 lost: its agent was stopped at ") and "silent" not in told[1]
    world.join("host-0")
    assert history(world)[2:] == ["host-0 has an agent again after 90 s", "host-0 is back after 90 s"]
    assert not attention(world)


def test_work_of_a_stopped_agent_is_left_alone(world: World) -> None:
    world.submit("a", gang(1))
    world.run("a")
    host = world.cluster.jobs["a"].places[0].host
    assert stops_agent(world, host) == [f"{host} agentstopped"]


def test_an_upgraded_agent_and_a_boot_are_told_from_a_first_hello(world: World) -> None:
    stops_agent(world, "host-0")
    world.hang_up("host-0")
    world.mono += 3
    world.join("host-0", version="2")
    assert history(world)[-1] == "host-0 runs agent 2 instead of 1, has an agent again after 3 s"
    world.join("host-0", version="2", boot="boot-9")
    assert history(world)[-1] == "host-0 has booted again"
    joined = newest(world, ev.HostJoined)
    assert isinstance(joined, ev.HostJoined) and (joined.known, joined.rebooted) == (True, True)


def test_a_host_that_was_removed_joins_for_the_first_time_again(world: World) -> None:
    world.hang_up("host-0")
    world.step(st.HostRemovalAsked(9, "ann", "host-0", force=True))
    world.join("host-0")
    joined = newest(world, ev.HostJoined)
    assert isinstance(joined, ev.HostJoined) and not joined.known


def test_a_short_break_of_the_session_is_no_event(world: World) -> None:
    world.hang_up("host-0")
    world.wait(5, beating=OTHERS)
    assert not any("joined" in line for line in world.join("host-0"))


@pytest.mark.parametrize("restored", [False, True])
def test_a_new_controller_says_when_a_host_that_has_not_called_will_be_lost(world: World, restored: bool) -> None:
    if restored:
        world.restore(world.back_up())
    else:
        world.restart_controller()
    lost_s = world.policies.leases.lost_s
    due = f"; lost at {time_of_day(Wall(world.wall + lost_s))} unless it returns"
    assert [due in line for line in attention(world) if "host-0" in line and "lost at" in line] == [True]
    for host in OTHERS:
        world.join(host)
    world.wait(lost_s - 1, beating=OTHERS)
    assert any("host-0" in line and due in line for line in attention(world))
    world.wait(2, beating=OTHERS)
    assert isinstance(newest(world, ev.HostLost), ev.HostLost)
