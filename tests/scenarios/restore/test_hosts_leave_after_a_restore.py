"""A host that has reported a job after a restore shuts down, or is lost, before all hosts of the job have called."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.job import Unreconciled
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step import commands as st

FREE = ("host-2", "host-3", "host-4", "host-5")


def half_told(**rules: object) -> World:
    """Job ``a`` runs on host-0 and host-1; after a restore host-0 has called, and all that are free."""
    world = World(hosts=6)
    world.submit("a", gang(2, **rules))  # type: ignore[arg-type]
    world.run("a")
    world.restore(world.back_up())
    for name in FREE:
        world.join(name)
    world.join("host-0", places=[world.place("a", 0, "RUNNING", 1)])
    assert world.cluster.jobs["a"].unreconciled is Unreconciled.OPEN
    return world


def call(world: World) -> list[str]:
    return world.join("host-1", places=[world.place("a", 1, "RUNNING", 1)])


@pytest.mark.parametrize("ended", [True, False])
def test_the_job_moves_off_a_host_that_shuts_down(ended: bool) -> None:
    world = half_told()
    world.step(st.ShutdownAnnounced("host-0", world.sessions["host-0"]))
    if ended:
        world.exit("a", 0, "STOPPED", 1)
        world.report("a", 0, "EMPTY", 1)
    told = call(world)
    leaves = "a leaves to RETRY: HOST_SHUTDOWN of host host-0, keeps w1, not on host-0"
    assert told[:2] == ["a cleared", leaves], told
    world.exit("a", 1, "STOPPED", 1)
    world.report("a", 1, "EMPTY", 1)
    if not ended:
        world.exit("a", 0, "STOPPED", 1)
    world.report("a", 0, "EMPTY", 1)
    job = world.cluster.jobs["a"]
    assert (job.state, job.budgets.spent.host_moves) == (JobState.PENDING, 0)
    assert [place.host for place in job.places] == ["host-2", "host-1"]


def test_its_ranks_get_their_notice() -> None:
    world = half_told(warning=WarningSignal(10, 60.0))
    world.step(st.ShutdownAnnounced("host-0", world.sessions["host-0"]))
    assert "a warned g1 of the shutdown of host-0" in call(world)


def test_the_job_moves_off_a_host_that_is_lost() -> None:
    world = half_told(replace_when_lost=True)
    world.hang_up("host-0")
    assert "host-0 lost" in world.wait(200, beating=FREE)
    leaves = "a leaves to RETRY: LOST_HOST of workerpool0-0 rank 0, keeps w1"
    assert any(words.startswith(leaves) for words in call(world))


def test_a_job_of_which_a_host_was_switched_off_and_is_back_ends_when_it_is_cancelled() -> None:
    """The admin's word has freed the share of its worker there: it is the job's again once the worker is found."""
    world = half_told()
    world.fence("host-1")
    assert "a/1" not in world.cluster.hosts["host-1"].allocations
    call(world)
    job = world.cluster.jobs["a"]
    assert job.unreconciled is None
    assert all(f"a/{index}" in world.cluster.hosts[f"host-{index}"].allocations for index in (0, 1))
    assert not world.cluster.hosts["host-1"].orphans
    world.cancel("a")
    for index in (0, 1):
        world.exit("a", index, "STOPPED", 1)
        world.report("a", index, "EMPTY", 1)
    assert job.state is JobState.CANCELLED
