"""One look at a long queue serves all hosts that return within a second; a short one is looked at for each."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core import reactor
from holdfast_controller.core.hosts.sessions import RETURNS_S, SHORT_QUEUE
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the queue was looked at."""
    found: list[float] = []

    def look(step: Step) -> None:
        found.append(step.now.mono)
        place_queue(step)

    monkeypatch.setattr(reactor, "place_queue", look)
    return found


def with_jobs(count: int, hosts: int = 6) -> World:
    """So many jobs wait for hosts, which were away and come back one after the other."""
    world = World(hosts)
    for host in list(world.sessions):
        world.hang_up(host)
    world.wait(200)
    for number in range(count):
        world.submit(f"job-{number}", gang(1))
    return world


def placed(world: World) -> int:
    return sum(job.state is JobState.PENDING for job in world.cluster.jobs.values())


def test_many_hosts_that_return_have_one_look_at_a_long_queue(looks: list[float]) -> None:
    world = with_jobs(SHORT_QUEUE + 10)
    looks.clear()
    began = world.mono
    for number in range(6):
        world.join(f"host-{number}")
        world.wait(RETURNS_S / 10)
    assert (looks, placed(world)) == ([], 0)
    world.wait(RETURNS_S)
    assert (looks, placed(world)) == ([began + RETURNS_S], 6), "no host waits longer than that"


def test_a_host_that_returns_after_the_look_has_the_next_one(looks: list[float]) -> None:
    world = with_jobs(SHORT_QUEUE + 10)
    world.join("host-0")
    world.wait(2 * RETURNS_S)
    assert placed(world) == 1
    world.join("host-1")
    looks.clear()
    world.wait(2 * RETURNS_S)
    assert (len(looks), placed(world)) == (1, 2)


def test_a_look_for_another_reason_serves_them_too(looks: list[float]) -> None:
    world = with_jobs(SHORT_QUEUE + 10)
    world.join("host-0")
    looks.clear()
    world.cancel(f"job-{SHORT_QUEUE + 9}")
    assert len(looks) == 1 and placed(world) == 1
    assert (ClusterTimer.RETURNS, "") not in world.reactor.timers.due
    world.wait(2 * RETURNS_S)
    assert len(looks) == 1


def test_a_short_queue_is_looked_at_for_each_at_once(looks: list[float]) -> None:
    world = with_jobs(SHORT_QUEUE)
    looks.clear()
    for number in range(3):
        world.join(f"host-{number}")
        assert placed(world) == number + 1
    assert len(looks) == 3


def test_a_host_that_was_only_silent_has_its_look_too(looks: list[float]) -> None:
    world = World(2)
    for number in range(SHORT_QUEUE + 10):
        world.submit(f"job-{number}", gang(1))
    world.run("job-0")
    world.wait(40, beating=["host-0"])
    looks.clear()
    world.beat("host-1")
    world.beat("host-1")
    assert looks == []
    world.wait(RETURNS_S, beating=["host-0"])
    assert len(looks) == 1


def test_a_controller_that_restarts_looks_once_a_second_while_hosts_come_back(looks: list[float]) -> None:
    world = with_jobs(SHORT_QUEUE + 50, hosts=20)
    world.restart_controller()
    looks.clear()
    for number in range(20):
        world.join(f"host-{number}")
        world.wait(0.1)
    world.wait(RETURNS_S)
    assert 2 <= len(looks) <= 4
    assert placed(world) == 20
