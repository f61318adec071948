"""Where no host has enough left for a gang's workers, no plan finds any place, whatever it asks of its hosts."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
from tests.unit.controller.scheduling.test_free_capacity import made

from holdfast._base.job_file.label_match import read_match
from holdfast_controller.core.model.gang import ANYWHERE, Gang, HostSelector, Pool, Task
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.host import Allocation, Gpu, Host, Inventory
from holdfast_controller.core.scheduling.backfill import Reservations
from holdfast_controller.core.scheduling.left_capacity import LeftCapacity
from holdfast_controller.core.scheduling.placement import Plan, may_have, plan_on

MATCH = read_match("rack in (a,b)")


def selector(dice: random.Random) -> HostSelector:
    return HostSelector(
        hosts=frozenset(dice.choice([(), (), ("h1", "h2"), ("h7",)])),
        avoid=frozenset(dice.choice([(), (), ("h2",), ("h3", "h4", "h5")])),
        labels=dice.choice([(), (), (("rack", "a"),)]),
        avoid_labels=dice.choice([(), (), (("rack", "b"),)]),
        match=dice.choice([(), (), MATCH]),
        also=dice.choice([(), (), (HostSelector(avoid=frozenset({"h6"}), match=MATCH),)]),
    )


def asked(dice: random.Random) -> Gang:
    """A gang of one or two pools."""
    pools = tuple(
        Pool(
            dice.choice([1, 1, 2, 3, 0 if number else 1]),
            Task(("x",), image=dice.choice(["", "", "", "img"])),
            cpus=dice.choice([0, 1, 4, 9]),
            memory_mb=dice.choice([0, 1024, 40_000]),
            gpus=dice.choice([0, 1, 2, 4, 8]),
            gpu_type=dice.choice(["", "", "NVIDIA_H100", "NVIDIA_A100", "NVIDIA_H200"]),
            gpu_partition=dice.choice(["", "", "", "1g.10gb"]),
            selector=selector(dice) if dice.random() < 0.3 else None,
        )
        for number in range(dice.choice([1, 1, 2]))
    )
    return Gang(pools, selector=selector(dice) if dice.random() < 0.5 else ANYWHERE)


def fleet(dice: random.Random) -> list[Host]:
    hosts = [made(f"h{number}", dice) for number in range(9)]
    for host in hosts:
        host.labels = dice.choice([{}, {"rack": "a"}, {"rack": "b"}])
        gpus = [gpu.uuid for gpu in host.inventory.gpus]
        if dice.random() < 0.6:
            host.allocations["j/0"] = Allocation(dice.choice([0, 4, 8]), 0, tuple(gpus[: dice.choice([0, 2, 8])]))
    return hosts


def not_kept(kept: Reservations, gang: Gang, hosts: list[Host]) -> list[Host]:
    """As a pass leaves out the hosts of which all GPUs are kept, for gangs that need some everywhere."""
    admitted = may_have(gang, hosts)
    return kept.with_gpus(admitted) if gang.needs_gpus else admitted


@pytest.mark.parametrize("seed", range(30))
def test_a_gang_that_is_said_to_fit_nowhere_has_no_plan_while_ever_more_is_kept(seed: int) -> None:
    dice = random.Random(seed)
    hosts = fleet(dice)
    kept = Reservations()
    left = LeftCapacity()

    def capacity(host: Host) -> HostCapacity:
        return kept.limit(capacity_of(host), host)

    classes = [frozenset(host.name for host in hosts if dice.random() < part) for part in (0.0, 0.3, 0.7)]
    for _ in range(60):
        gang, closed = asked(dice), dice.choice(classes)
        may_hold = left.may_hold(gang, lambda gang: not_kept(kept, gang, hosts), capacity, closed)
        open_to_it = [host for host in may_have(gang, hosts) if host.name not in closed]
        found = plan_on(gang, open_to_it, capacity)
        assert may_hold or not isinstance(found, Plan)
        if may_hold:
            able = left.fitting(gang, open_to_it)
            same = plan_on(gang, able, capacity)
            assert isinstance(same, Plan) is isinstance(found, Plan)
        if dice.random() < 0.4 and kept.reserve(gang, hosts):
            left.shrunk()


def test_a_job_that_may_have_one_full_host_says_nothing_of_one_of_which_a_pool_may_have_any() -> None:
    gpus = tuple(Gpu(f"g{number}", number, "NVIDIA H100", 1 << 36) for number in range(8))
    hosts = [
        Host("full", "a", "b", "1", Inventory(8, 1 << 36, gpus[:1])),
        Host("free", "a", "b", "1", Inventory(8, 1 << 36, gpus)),
    ]
    only, pool, left = HostSelector(hosts=frozenset({"full"})), Pool(1, Task(("x",)), gpus=4), LeftCapacity()
    assert not left.may_hold(Gang((pool,), selector=only), partial(may_have, hosts=hosts), capacity_of)
    both = Gang((replace(pool, gpus=1, selector=only), pool))
    assert left.may_hold(both, partial(may_have, hosts=hosts), capacity_of)
    assert isinstance(plan_on(both, hosts, capacity_of), Plan)


@pytest.mark.parametrize("seed", range(30))
def test_a_reservation_that_is_left_out_since_all_hosts_are_kept_would_have_changed_nothing(seed: int) -> None:
    dice = random.Random(seed)
    hosts = fleet(dice)
    kept, each = Reservations(), Reservations()
    for _ in range(12):
        gang = asked(dice)
        if not kept.keeps_enough_everywhere(gang):
            kept.reserve(gang, hosts)
        each.reserve(gang, hosts)
        for host in hosts:
            free = capacity_of(host)
            assert kept.limit(free, host) == each.limit(free, host)
        with_gpus = {host.name for host in hosts if kept.limit(capacity_of(host), host).gpus}
        assert with_gpus <= {host.name for host in kept.with_gpus(hosts)}


@pytest.mark.parametrize("seed", range(20))
def test_a_selector_leaves_the_hosts_that_it_admits_one_by_one(seed: int) -> None:
    dice = random.Random(seed)
    hosts = fleet(dice)
    for _ in range(50):
        gang = asked(dice)
        assert may_have(gang, hosts) == [host for host in hosts if gang.admits(host.name, host.labels)]
