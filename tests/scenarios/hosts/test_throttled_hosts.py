"""A host that says more than it may have stored: recorded once an hour for each kind, and shown for as long."""

from __future__ import annotations

from tests.scenarios.world import World

from holdfast_controller.core.model.clock import Mono, Wall
from holdfast_controller.core.model.hosts.throttling import PER_HOUR, Allowances, MessageKind, throttled_in_words
from holdfast_controller.core.step.commands import HostOverRate

INVENTORY = HostOverRate("host-0", "inventory", PER_HOUR[MessageKind.INVENTORY])


def test_it_is_recorded_once_an_hour_for_each_kind() -> None:
    world = World(hosts=1)
    told = [world.step(INVENTORY) for _ in range(3)]
    assert [len(each) for each in told] == [1, 0, 0]
    assert len(world.step(HostOverRate("host-0", "exit", 1 << 20))) == 1
    host = world.cluster.hosts["host-0"]
    assert set(host.throttled) == {"inventory", "exit"}
    at = host.throttled["inventory"]
    assert "exit (64 MiB an hour), inventory (2 MiB an hour)" in throttled_in_words(host, Wall(at + 3599))
    assert throttled_in_words(host, Wall(at + 3601)) == ""
    world.wait(3601, beating=["host-0"])
    assert len(world.step(INVENTORY)) == 1


def test_a_host_that_was_removed_meanwhile_is_none() -> None:
    assert World(hosts=1).step(HostOverRate("host-9", "exit", 1)) == []


def test_each_host_and_each_kind_has_an_allowance_of_its_own_that_comes_back() -> None:
    left, most = Allowances(), PER_HOUR[MessageKind.INVENTORY]
    left.charge("a", MessageKind.INVENTORY, most, Mono(0.0))
    assert left.owed_s("a", MessageKind.INVENTORY, Mono(0.0)) == 0
    left.charge("a", MessageKind.INVENTORY, most // 2, Mono(0.0))
    assert left.owed_s("a", MessageKind.INVENTORY, Mono(0.0)) == 1800
    assert left.owed_s("a", MessageKind.EXIT, Mono(0.0)) == 0
    assert left.owed_s("b", MessageKind.INVENTORY, Mono(0.0)) == 0
    assert left.owed_s("a", MessageKind.INVENTORY, Mono(1801.0)) == 0
    assert set(PER_HOUR) == set(MessageKind)
