"""What the simulation has found, as small as it can be told."""

from __future__ import annotations

from dataclasses import replace

from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import RestartScope
from holdfast_controller.core.model.gang import Retries


def _lone(backoff_s: float = 0.0) -> World:
    """A job of two workers, each of which is restarted by itself."""
    world = World(hosts=3)
    retries = Retries(scope=RestartScope.WORKER, backoff_s=backoff_s)
    world.submit("a", replace(gang(2, replace_when_lost=True), retries=retries))
    world.run("a")
    return world


def test_a_lone_worker_that_its_shim_has_stopped_is_started_again() -> None:
    world = _lone()
    world.exit("a", 1, "STOPPED")
    assert world.cluster.jobs["a"].launch.relaunched == {1: 2}


def test_a_lone_worker_is_started_though_its_time_came_while_no_controller_was_there() -> None:
    world = _lone(backoff_s=5.0)
    world.exit("a", 1, 1)
    world.report("a", 1, "PREPARED")
    world.report("a", 1, "RUNNING")
    world.exit("a", 1, 1)
    assert world.cluster.jobs["a"].launch.deferred == {1}
    world.restart_controller(down_s=60.0)
    world.join("host-0", places=[world.place("a", 0, "RUNNING")])
    world.join("host-1", places=[world.place("a", 1, "PREPARED")])
    world.join("host-2")
    world.wait(1.0)
    assert world.cluster.jobs["a"].launch.deferred == set()


def test_a_wall_clock_that_is_set_back_holds_no_launch_back() -> None:
    world = _lone(backoff_s=5.0)
    for _ in range(2):
        world.exit("a", 1, 1)
        world.report("a", 1, "PREPARED")
        world.report("a", 1, "RUNNING")
    assert world.cluster.jobs["a"].launch.deferred == {1}
    world.jumped = -86400.0
    world.wait(10.0, beating=["host-0", "host-1", "host-2"])
    assert world.cluster.jobs["a"].launch.deferred == set()


def test_after_a_common_silence_every_host_has_time_to_be_back() -> None:
    world = World(hosts=5)
    names = list(world.cluster.hosts)
    world.wait(100.0)
    for name in names[:3]:
        world.beat(name)
    world.wait(14.0, beating=names[:3])
    assert not any(host.lost for host in world.cluster.hosts.values())
    world.wait(60.0, beating=names[:3])
    assert [name for name in names if world.cluster.hosts[name].lost] == names[3:]


def test_a_controller_that_stood_still_reads_before_it_gives_a_host_up() -> None:
    world = World(hosts=3)
    names = list(world.cluster.hosts)
    for name in names[1:]:
        world.hang_up(name)
    world.wait(200.0, beating=names[:1])
    late = world.mono
    world.join("host-1")
    world.join("host-2")
    world.wait(1.0, beating=names)
    # It stands still: no timer fires, and nothing is read, for longer than a lease.
    world.mono = late + 100.0
    world.wait(0.1)
    assert not any(host.lost for host in world.cluster.hosts.values())
