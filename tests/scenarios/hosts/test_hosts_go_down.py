"""A host that shuts down says so, and its work moves off before it is gone."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.step import commands as st

ALL = ("host-0", "host-1", "host-2")


def goes_down(world: World, host: str) -> list[str]:
    session = world.cluster.presence_of(host).session
    assert session is not None
    return world.step(st.ShutdownAnnounced(host, session))


@pytest.fixture
def world() -> World:
    """Three hosts, and job ``a`` of two workers running on two of them."""
    made = World(hosts=3)
    made.submit("a", gang())
    made.run("a")
    return made


def test_its_work_moves_off_at_once_and_workers_elsewhere_stay(world: World) -> None:
    told = goes_down(world, "host-1")
    assert told[:2] == [
        "host-1 shutdownbegan",
        "a leaves to RETRY: HOST_SHUTDOWN of host host-1, keeps w0, not on host-1",
    ]
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.report("a", 1, "EMPTY")
    assert "a placed g2 on host-0 host-2" in world.report("a", 0, "EMPTY")


def test_nobody_pays_for_it(world: World) -> None:
    goes_down(world, "host-1")
    job = world.cluster.jobs["a"]
    assert (job.budgets.spent.job_retries, job.budgets.spent.worker_restarts) == (0, {})


def test_said_again_it_changes_nothing(world: World) -> None:
    goes_down(world, "host-1")
    assert goes_down(world, "host-1") == []


def test_it_takes_no_work_in_this_boot_and_again_in_the_next(world: World) -> None:
    goes_down(world, "host-2")
    assert "needs 4 GPUs" in " ".join(world.submit("b", gang(1)))
    world.hang_up("host-2")
    assert not any("placed" in told for told in world.join("host-2"))
    world.hang_up("host-2")
    assert "b placed g1 on host-2" in world.join("host-2", boot="another")


def test_a_drain_outlives_the_reboot(world: World) -> None:
    world.drain("host-2")
    goes_down(world, "host-2")
    world.hang_up("host-2")
    world.join("host-2", boot="another")
    host = world.cluster.hosts["host-2"]
    assert (host.going_down, host.draining) == (False, True)


def test_an_admin_may_give_it_back_when_the_shutdown_was_called_off(world: World) -> None:
    goes_down(world, "host-2")
    world.submit("b", gang(1))
    assert "b placed g1 on host-2" in world.uncordon("host-2")


def test_who_is_no_session_of_the_host_is_not_believed(world: World) -> None:
    assert world.step(st.ShutdownAnnounced("host-1", 4711)) == []
