"""Jobs with host selectors beside those without: what is kept for both, and how often a pass looks at a host for it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from tests.scenarios.queue_stories import cpu, placed
from tests.scenarios.scheduling.loans.test_spot_loans import QUIET
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Task
from holdfast_controller.core.model.hosts import capacity, free_capacity
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling import backfill
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.step.step import Step


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
