"""Time lost to a host that goes away counts from its last word, not from its return; the phases are the whole of it."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.lifecycle.recovery_phases import Phases, phases_of
from holdfast_controller.core.model.budgets import Recovery
from holdfast_controller.core.step import commands as st

DARK_S = 120.0


@pytest.fixture
def world() -> World:
    """Three hosts, and job ``a`` of two workers running on the first two; both have just been heard."""
    made = World(hosts=3)
    made.submit("a", gang(retries=3))
    made.run("a")
    for host in ("host-0", "host-1", "host-2"):
        made.beat(host)
    return made


def goes_on(world: World) -> Phases:
    """The survivor is stopped, the gang placed again and running 9 s later; the last recovery's phases."""
    if world.cluster.jobs["a"].vacating is not None:
        world.exit("a", 0, "STOPPED:15")
        world.mono += 2
        world.report("a", 0, "EMPTY")
        if world.cluster.jobs["a"].vacating is not None:
            world.report("a", 1, "EMPTY")
        world.mono += 7
    else:
        world.mono += 9
    world.run("a")
    return phases_of(newest(world))


def newest(world: World) -> Recovery:
    return world.cluster.jobs["a"].recoveries[-1]


def adds_up(phases: Phases, whole_s: float) -> None:
    assert phases.lost_s is not None and phases.stop_s is not None and phases.start_s is not None
    assert phases.lost_s == pytest.approx(whole_s)
    parts = phases.detect_s + phases.diagnose_s + phases.stop_s + phases.start_s
    assert parts == pytest.approx(phases.lost_s)


def test_a_power_cut_counts_from_the_hosts_last_word(world: World) -> None:
    last_word = world.wall
    world.hang_up("host-1")
    world.mono += 20
    world.beat("host-0")
    world.mono += 20
    world.join("host-1", boot="boot-2")
    assert newest(world).failed_at == last_word
    phases = goes_on(world)
    assert phases.detect_s == pytest.approx(40.0)
    adds_up(phases, world.wall - last_word)


def test_an_agent_that_finds_its_ranks_gone_after_a_boot_knows_no_better(world: World) -> None:
    """It kept its journal, and stamps what it finds with the time of its return."""
    last_word = world.wall
    world.hang_up("host-1")
    world.mono += 40
    world.join("host-1", boot="boot-2", places=[world.place("a", 1, "EMPTY")])
    world.exit("a", 1, "LOST_REBOOT")
    assert newest(world).failed_at == last_word
    adds_up(goes_on(world), world.wall - last_word)


def test_a_lost_host_counts_from_its_last_word(world: World) -> None:
    last_word = world.wall
    world.hang_up("host-1")
    world.wait(DARK_S, beating=["host-0", "host-2"])
    world.step(st.FenceAsked(1, "ann", "host-1", "no power"))
    assert newest(world).failed_at == last_word
    adds_up(goes_on(world), world.wall - last_word)


def test_a_power_cut_of_the_controller_too_counts_from_its_last_moment(world: World) -> None:
    last_moment = world.wall
    world.restart_controller(down_s=DARK_S)
    world.join("host-0", boot="boot-2", places=[world.place("a", 0, "RUNNING")])
    world.join("host-1", boot="boot-2")
    assert newest(world).failed_at == last_moment


def test_a_rank_whose_end_was_seen_counts_from_that(world: World) -> None:
    world.mono += 30
    world.exit("a", 1, 3)
    assert phases_of(newest(world)).detect_s < 1.0


def test_a_worker_that_vanished_from_a_host_that_was_there_counts_from_the_session_before(world: World) -> None:
    world.hang_up("host-1")
    world.mono += 3
    world.join("host-1")
    assert newest(world).end_reason.name == "LOST_SHIM_DIED"
    assert phases_of(newest(world)).detect_s == pytest.approx(3.0)
