"""Failures of hosts, as they are counted: hosts that were lost or booted, GPUs, lost ranks; never a user's crash."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.scenarios.world import World, gang, inventory

from holdfast._base.xids import Repair
from holdfast.errors import InvalidInput
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.goodput.host_record import open_time
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import HostBooking, HostFact
from holdfast_controller.core.model.hosts.host import GpuFault
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell.store import codec

DAY = 86_400.0


def booked(world: World) -> list[HostBooking]:
    """What the whole log books of hosts."""
    cluster = Cluster()
    for event in world.log:
        fold(cluster, event)
    return cluster.bookings.hosts


def failures(world: World) -> Counter[tuple[str, HostFact]]:
    counted = [each for each in booked(world) if each.what not in (HostFact.UP, HostFact.REPAIR)]
    return Counter((each.host, each.what) for each in counted)


def repairs(world: World) -> list[tuple[str, float]]:
    return [(each.host, (each.end - each.start) / 1000) for each in booked(world) if each.what is HostFact.REPAIR]


def in_service(world: World, host: str) -> tuple[float, float]:
    """Seconds without and with work, until now."""
    known = world.cluster.hosts[host]
    times = [0.0, 0.0]
    for each in (*booked(world), *open_time(known, round(world.wall * 1000))):
        if each.what is HostFact.UP and each.host == host:
            times[each.busy] += (each.end - each.start) / 1000
    return times[0], times[1]


def others(world: World, host: str) -> list[str]:
    return [name for name in world.cluster.hosts if name != host]


def lose(world: World, host: str, seconds: float = 120.0) -> None:
    world.hang_up(host)
    world.wait(seconds, beating=others(world, host))
    assert world.cluster.hosts[host].lost


def fault(cause: str = "Xid 95", since: float = 0.0) -> GpuFault:
    return GpuFault(cause, Repair.RESET, Wall(since))


def with_fault(host: str, since: float) -> object:
    has = inventory(name=host)
    return replace(has, gpus=(replace(has.gpus[0], faults=(fault(since=since),)), *has.gpus[1:]))


def test_a_lost_host_with_its_ranks_is_one_failure_and_its_return_a_repair() -> None:
    world = World(hosts=3)
    world.submit("a", gang(2))
    world.run("a")
    silent_at = world.wall
    lose(world, "host-0")
    world.wait(3_600, beating=others(world, "host-0"))
    world.join("host-0")
    assert failures(world) == {("host-0", HostFact.LOST): 1}
    [(host, seconds)] = repairs(world)
    assert host == "host-0"
    assert seconds == pytest.approx(world.wall - silent_at, abs=10)


def test_crashes_of_a_program_are_no_failure_of_its_host() -> None:
    world = World(hosts=2)
    world.submit("a", gang(2, retries=3))
    world.run("a")
    world.exit("a", 0, 1, said=("ValueError: bad data",))
    assert world.cluster.jobs["a"].recoveries
    assert not failures(world)


def test_words_of_a_program_are_no_failure_of_its_host_though_it_is_cordoned_for_them() -> None:
    world = World(hosts=2)
    world.submit("a", gang(2, retries=3))
    world.run("a")
    world.exit("a", 0, 1, said=("RuntimeError: CUDA error: uncorrectable ECC error encountered",))
    assert any(host.cordoned for host in world.cluster.hosts.values())
    assert not failures(world)


def test_orderly_shutdowns_maintenance_and_drains_are_no_failures_and_no_time_in_service() -> None:
    world = World(hosts=2)
    world.wait(100, beating=list(world.cluster.hosts))
    before = in_service(world, "host-0")
    world.drain("host-0")
    lose(world, "host-0", 600)
    world.join("host-0", boot="second")
    assert not failures(world) and not repairs(world)
    assert in_service(world, "host-0") == pytest.approx(before, abs=1)
    world.uncordon("host-0")
    world.wait(50, beating=list(world.cluster.hosts))
    assert sum(in_service(world, "host-0")) == pytest.approx(sum(before) + 50, abs=1)


def test_a_boot_without_a_word_is_a_failure() -> None:
    world = World(hosts=2)
    world.submit("a", gang(1))
    world.run("a")
    [host] = [place.host for place in world.cluster.jobs["a"].places]
    world.join(host, boot="second")
    assert failures(world) == {(host, HostFact.REBOOTED): 1}, "its lost ranks are part of it"


def test_a_condemned_gpu_is_a_failure_until_it_is_cleared() -> None:
    world = World(hosts=2)
    world.wait(1_000, beating=list(world.cluster.hosts))
    world.beat("host-0", with_fault("host-0", world.wall))  # type: ignore[arg-type]
    world.wait(700, beating=list(world.cluster.hosts))
    world.beat("host-0", inventory(name="host-0"))
    assert failures(world) == {("host-0", HostFact.GPU): 1}
    [(host, seconds)] = repairs(world)
    assert host == "host-0"
    assert seconds == pytest.approx(700, abs=1)


def test_signs_within_ten_minutes_are_one_failure() -> None:
    world = World(hosts=2)
    world.wait(1_000, beating=list(world.cluster.hosts))
    world.beat("host-0", with_fault("host-0", world.wall))  # type: ignore[arg-type]
    lose(world, "host-0")
    world.join("host-0", inventory(name="host-0"), boot="second")
    assert failures(world) == {("host-0", HostFact.GPU): 1}
    world.wait(700, beating=list(world.cluster.hosts))
    lose(world, "host-0")
    assert failures(world) == {("host-0", HostFact.GPU): 1, ("host-0", HostFact.LOST): 1}


def test_time_in_service_is_that_with_work_and_without() -> None:
    world = World(hosts=1)
    world.wait(100, beating=["host-0"])
    world.submit("a", gang(1))
    world.run("a")
    begun = world.wall
    world.wait(200, beating=["host-0"])
    world.cancel("a")
    world.empty("a")
    ended = world.wall
    world.wait(50, beating=["host-0"])
    idle, busy = in_service(world, "host-0")
    assert busy == pytest.approx(ended - begun, abs=2)
    assert idle + busy == pytest.approx(world.wall - world.cluster.hosts["host-0"].record.since / 1000, abs=0.01)  # type: ignore[union-attr]


def test_a_repair_begins_the_record_anew_whether_the_host_was_cordoned_or_not() -> None:
    world = World(hosts=2)
    world.wait(1_000, beating=list(world.cluster.hosts))
    lose(world, "host-0")
    world.join("host-0")
    first = world.cluster.hosts["host-0"].record
    assert first is not None
    world.step(st.UncordonAsked(900, "ann", "host-0", (), True))
    again = world.cluster.hosts["host-0"].record
    assert again is not None and again.since == round(world.wall * 1000) > first.since
    lose(world, "host-0")
    found = [(each.since, each.what) for each in booked(world) if each.what is HostFact.LOST]
    assert found == [(first.since, HostFact.LOST), (again.since, HostFact.LOST)]
    assert "host-0 uncordoned by ann, repaired" in world.sentences


def test_gpus_are_not_repaired_with_their_host_in_one_command() -> None:
    world = World(hosts=1)
    world.step(st.UncordonAsked(900, "ann", "host-0", ("0",), True))
    [refused] = [action for action in world.sent if isinstance(action, act.Refuse)]
    assert isinstance(refused.error, InvalidInput)
    assert "repaired" in str(refused.error)


def test_snapshots_carry_the_record() -> None:
    world = World(hosts=2)
    world.wait(1_000, beating=list(world.cluster.hosts))
    lose(world, "host-0")
    host = world.cluster.hosts["host-0"]
    assert host.record is not None and host.record.lost_at is not None
    again = codec.load_entity("host", codec.dump_entity(host))
    assert again.record == host.record


def test_a_clock_that_steps_back_books_no_negative_time() -> None:
    world = World(hosts=1)
    world.wait(100, beating=["host-0"])
    world.jumped -= 50
    world.submit("a", gang(1))
    world.run("a")
    world.jumped += 400
    world.cancel("a")
    world.empty("a")
    assert all(each.start <= each.end for each in booked(world))
