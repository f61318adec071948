"""The kept index of rooms finds the very host that a look at all rooms would, whatever comes and goes."""

from __future__ import annotations

import random
from functools import partial

import pytest

from holdfast._base.health import Health
from holdfast_controller.core.model.clock import NEVER
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.capacity import capacity_of
from holdfast_controller.core.model.hosts.caution import LEMON
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import Allocation, CheckStatus, FailedCheck, Gpu, Host, Inventory
from holdfast_controller.core.scheduling.placement import Plan, plan

GIB = 1 << 30


def made(name: str, dice: random.Random) -> Host:
    model = dice.choice(["NVIDIA H100", "NVIDIA A100"])
    gpus = tuple(
        Gpu(f"{name}-{n}", n, model, 80 * GIB, dice.choice(["", "", "", "ill"]))
        for n in range(dice.choice([0, 4, 8]))
    )
    inventory = Inventory(dice.choice([8, 16]), 64 * GIB, gpus, dice.choice([2, 4]))
    host = Host(name, "10.0.0.1", "b", "1", inventory, excess=dice.choice([0, 0, 3]))
    for check in dice.choice([(), (), ("gpu.hot",), (LEMON,), ("gpu.hot", LEMON)]):
        host.failed_checks[check] = FailedCheck(
            check, CheckStatus.WARNING, "", "", (), NEVER, health=Health.DEGRADED
        )
    return host


def wanted(dice: random.Random) -> Pool:
    gpus = dice.choice([0, 0, 1, 2, 4, 8])
    model = dice.choice(["", "NVIDIA_H100", "NVIDIA_A100"]) if gpus else ""
    return Pool(
        1, Task(("x",)), cpus=dice.choice([0, 1, 4]), memory_mb=dice.choice([0, 1024]), gpus=gpus, gpu_type=model
    )


def is_open(closed: set[str], host: Host) -> bool:
    return host.name not in closed


@pytest.mark.parametrize("seed", range(20))
def test_a_worker_goes_where_a_look_at_all_hosts_would_put_it(seed: int) -> None:
    dice = random.Random(seed)
    hosts = {f"h{n}": made(f"h{n}", dice) for n in range(12)}
    free_capacity = FreeCapacity()
    for name in hosts:
        free_capacity.changed(name)
    held: list[tuple[str, str]] = []
    for number in range(200):
        if held and dice.random() < 0.4:
            name, key = held.pop(dice.randrange(len(held)))
            del hosts[name].allocations[key]
            free_capacity.changed(name)
        closed = {name for name in hosts if dice.random() < 0.2}
        pool = wanted(dice)
        expected = plan(Gang((pool,)), [host for host in hosts.values() if host.name not in closed])
        found = free_capacity.first(pool, hosts, partial(is_open, closed))
        if found is None:
            assert not isinstance(expected, Plan)
            continue
        place = found.copy().take(pool)
        assert expected == Plan((place,))
        assert free_capacity.capacity_of(hosts[place.host]) == capacity_of(hosts[place.host])
        hosts[place.host].allocations[f"j{number}/0"] = Allocation(pool.cpus, pool.memory_mb, place.gpus)
        free_capacity.changed(place.host)
        held.append((place.host, f"j{number}/0"))
    assert held


def test_a_host_that_comes_back_with_other_gpus_is_looked_at_again() -> None:
    host = Host("h", "10.0.0.1", "b", "1", Inventory(8, GIB, (), 2))
    free_capacity = FreeCapacity()
    pool = Pool(1, Task(("x",)), gpus=1)
    free_capacity.changed("h")
    assert free_capacity.first(pool, {"h": host}, lambda _: True) is None
    host.inventory = Inventory(8, GIB, (Gpu("g", 0, "NVIDIA H100", GIB),), 2)
    free_capacity.changed("h")
    found = free_capacity.first(pool, {"h": host}, lambda _: True)
    assert found is not None and found.host == "h"
