"""Jobs with host selectors beside those without: what is kept for both, and how often a pass looks at a host for it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.scenarios.queue_stories import cpu, placed
from tests.scenarios.scheduling.loans.test_spot_loans import QUIET
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Strategy, Task
from holdfast_controller.core.model.hosts import capacity, free_capacity
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling import backfill, pass_state, queue_pass
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.step.step import Policies, Step


def asks(*, gpus: int, cpus: int, **rules: Any) -> Gang:
    return dataclasses.replace(gang(1), pools=(Pool(1, Task(("x",)), gpus=gpus, cpus=cpus),), **rules)


def test_cores_beside_gpus_are_kept_once_for_jobs_that_share_the_gpus() -> None:
    world = World(hosts=1, policies=QUIET)
    world.submit("busy", gang(1))
    world.submit("any", asks(gpus=4, cpus=8))
    world.submit("one", asks(gpus=4, cpus=8, selector=HostSelector(hosts=frozenset({"host-0"}))))
    assert placed(world.submit("cores", cpu(cpus=8))) == ["cores placed g1 on host-0"]
    assert placed(world.submit("more", cpu(cpus=8))) == []


@pytest.mark.parametrize("mode", list(Backfill))
def test_a_pass_finds_a_hosts_whole_room_once_however_many_selectors_wait(
    mode: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each job that waits with hosts of its own: 250 of them took a pass over 100 hosts seconds."""
    looked_at, real = Counter[str](), capacity.capacity_of

    def counted(host: Host, without: frozenset[str] = frozenset(), *, empty: bool = False) -> capacity.HostCapacity:
        looked_at[host.name] += empty
        return real(host, without, empty=empty)

    world = World(hosts=4, policies=dataclasses.replace(QUIET, backfill=mode))
    for number in range(4):
        world.submit(f"busy-{number}", gang(1))
    for number in range(12):
        avoided = HostSelector(avoid=frozenset({f"host-{number % 4}", f"no-host-{number}"}))
        world.submit(f"job-{number}", asks(gpus=4, cpus=1, selector=avoided))
    monkeypatch.setattr(backfill, "capacity_of", counted)
    monkeypatch.setattr(free_capacity, "capacity_of", counted)
    now = Now(Mono(world.mono), Wall(world.wall))
    step = Step(world.cluster, world.policies, world.reactor.timers, now)
    place_queue(step)
    assert not step.entries
    assert max(looked_at.values(), default=0) <= 1


def of_own_pool(**rules: Any) -> Gang:
    """A job whose only pool has these rules of its own."""
    return dataclasses.replace(gang(1), pools=(Pool(1, Task(("x",)), gpus=4, **rules),))


FULL: dict[str, Callable[[int], Gang]] = {
    "a host": lambda n: asks(gpus=4, cpus=1, selector=HostSelector(hosts=frozenset({f"host-{n}"}))),
    "hosts but some": lambda n: asks(
        gpus=4, cpus=1, selector=HostSelector(avoid=frozenset({"host-6", "host-7", f"host-{n}"}))
    ),
    "a rack": lambda n: asks(gpus=4, cpus=1 + n, selector=HostSelector(labels=(("rack", "full"),))),
    "a pool's own rack": lambda n: of_own_pool(cpus=1 + n, selector=HostSelector(labels=(("rack", "full"),))),
    "a GPU model": lambda n: of_own_pool(cpus=1 + n, gpu_type="NVIDIA_A100"),
    "a MIG profile": lambda n: of_own_pool(cpus=1 + n, gpu_partition="1g.10gb"),
}
"""What jobs wait for that is all taken, by number: each has a shape of its own."""


def test_jobs_that_start_take_nothing_of_what_a_pass_may_do_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that starts thousands of gangs looks at the hosts for each, and goes on to the last of them."""
    monkeypatch.setattr(pass_state, "PLANS_IN_VAIN", 2)
    monkeypatch.setattr(pass_state, "LOOKS_A_PLAN", 1)
    world = World(policies=QUIET)
    world.join("host-0", inventory(12, name="host-0"))
    world.cordon("host-0")
    pair = dataclasses.replace(gang(1), pools=(Pool(2, Task(("x",)), gpus=1),))
    for number in range(6):
        assert not placed(world.submit(f"pair-{number}", pair))
    assert len(placed(world.uncordon("host-0"))) == 6


def full_part(policies: Policies, what: str) -> World:
    """Six hosts that are full, of a rack, a GPU model or profile of their own, and two that are free."""
    model = "NVIDIA A100 MIG 1g.10gb" if what == "a MIG profile" else "NVIDIA A100"
    world = World(policies=policies)
    for number in range(8):
        host, is_full = f"host-{number}", number < 6
        has = inventory(name=host, model=model if is_full else "NVIDIA H100")
        world.join(host, has, labels={"rack": "full" if is_full else "free"})
    for number in range(6):
        pool = Pool(1, Task(("x",)), gpus=4, cpus=1, gpu_partition="1g.10gb" if what == "a MIG profile" else "")
        only = HostSelector(hosts=frozenset({f"host-{number}"}))
        assert placed(world.submit(f"busy-{number}", dataclasses.replace(gang(1), pools=(pool,), selector=only)))
    return world


@pytest.mark.parametrize("what", FULL)
@pytest.mark.parametrize("mode", list(Backfill))
def test_many_jobs_that_wait_for_full_hosts_keep_no_pass_from_starting_others_elsewhere(
    mode: Backfill, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred of them, each with a host of its own, kept all others from free hosts for as long as they waited."""
    monkeypatch.setattr(pass_state, "PLANS_IN_VAIN", 4)
    world = full_part(dataclasses.replace(QUIET, backfill=mode), what)
    for number in range(6):
        assert not placed(world.submit(f"waits-{number}", FULL[what](number)))
    named = asks(gpus=4, cpus=1, selector=HostSelector(hosts=frozenset({"host-7"})))
    assert placed(world.submit("named", named)) == ["named placed g1 on host-7"]
    assert placed(world.submit("any", of_own_pool(cpus=1, gpu_type="NVIDIA_H100"))) == ["any placed g1 on host-6"]


@pytest.mark.parametrize("what", FULL)
@pytest.mark.parametrize("mode", list(Backfill))
def test_many_jobs_that_wait_for_full_hosts_keep_no_pass_from_making_room_elsewhere(
    mode: Backfill, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_state, "PLANS_IN_VAIN", 4)
    monkeypatch.setattr(queue_pass, "PLANS_IN_VAIN", 4)
    world = full_part(dataclasses.replace(QUIET, backfill=mode), what)
    spot = dataclasses.replace(of_own_pool(cpus=1, gpu_type="NVIDIA_H100"), strategy=Strategy.SPOT)
    assert placed(world.submit("spot-0", spot)) + placed(world.submit("spot-1", spot))
    for number in range(6):
        assert not placed(world.submit(f"waits-{number}", FULL[what](number)))
    wants = of_own_pool(cpus=1, gpu_type="NVIDIA_H100")
    said = world.submit("wants", wants)
    assert any("PREEMPTED" in line or "gives way" in line for line in said), said
