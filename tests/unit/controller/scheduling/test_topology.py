"""Gangs near each other: an oracle by brute force says for small fleets what is possible, and what is best."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from tests.support.seeds import seeds
from tests.support.work import calls_of
from tests.unit.controller.examples import host
from tests.unit.controller.scheduling.topology_oracle import Fleet

from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.capacity import capacity_of
from holdfast_controller.core.model.hosts.host import Allocation, Host, Place
from holdfast_controller.core.model.hosts.locality import Locality, Segments
from holdfast_controller.core.scheduling import topology
from holdfast_controller.core.scheduling.placement import Plan, Wait, plan, plan_on

TASK = Task(("x",))
LEVELS = ("pod", "rack")


def fleet(dice: random.Random, most: int = 7) -> tuple[list[Host], Fleet]:
    """Random hosts of four GPUs, some of them taken, some without labels. Names of racks recur in other pods."""
    hosts = []
    for number in range(dice.randint(2, most)):
        made = host(f"h{number}", gpus=4)
        taken = dice.choice([0, 0, 2, 4])
        if taken:
            gpus = tuple(gpu.uuid for gpu in made.inventory.gpus[:taken])
            made.allocations["other/0"] = Allocation(1, 1, gpus)
        labels = {"pod": dice.choice(["p0", "p1"]), "rack": dice.choice(["r0", "r1"])}
        made.labels = {key: value for key, value in labels.items() if dice.random() < 0.9}
        hosts.append(made)
    room = {each.name: (4 - sum(len(a.gpus) for a in each.allocations.values())) // 2 for each in hosts}
    return hosts, Fleet(room, {each.name: each.labels for each in hosts}, LEVELS)


def gang(workers: int, near: Locality | None) -> Gang:
    """Of a chief and others that ask for the same."""
    pools = (Pool(1, TASK, gpus=2), Pool(workers - 1, TASK, gpus=2)) if workers > 1 else (Pool(1, TASK, gpus=2),)
    return Gang(pools, near=near)


def hosts_of(found: Plan | Wait) -> list[str]:
    assert isinstance(found, Plan), found
    return [place.host for place in found.places]


def is_sound(found: Plan, hosts: list[Host], kept: dict[int, Place] | None = None) -> None:
    """No GPU twice, none that others hold."""
    free = {gpu for each in hosts for gpu, _ in capacity_of(each).gpus}
    used = [gpu for index, place in enumerate(found.places) for gpu in place.gpus if index not in (kept or {})]
    assert len(used) == len(set(used))
    assert set(used) <= free


@seeds(150)
def test_a_required_domain_is_found_wherever_there_is_one_and_never_left(seed: int) -> None:
    dice = random.Random(seed)
    hosts, oracle = fleet(dice)
    within, workers = dice.choice(LEVELS), dice.randint(2, 5)
    found = plan(gang(workers, Locality(LEVELS, within, required=True)), hosts)
    assert isinstance(found, Plan) == oracle.fits(workers, within), found
    if isinstance(found, Plan):
        is_sound(found, hosts)
        assert oracle.holds(hosts_of(found), within)
        room = {
            domain: sum(oracle.room[name] for name in names) for domain, names in oracle.domains(within).items()
        }
        taken = oracle.domain(hosts_of(found)[0], within)
        assert taken is not None
        assert room[taken] == min(rooms for rooms in room.values() if rooms >= workers), (
            "not the smallest that fits"
        )
    else:
        assert within in found.reason or "needs" in found.reason


@seeds(150)
def test_what_is_preferred_is_had_wherever_it_can_be_and_stops_nothing(seed: int) -> None:
    dice = random.Random(seed)
    hosts, oracle = fleet(dice)
    workers = dice.randint(2, 5)
    found = plan(gang(workers, Locality(LEVELS, "rack")), hosts)
    assert isinstance(found, Plan) == oracle.fits(workers, "")
    if isinstance(found, Plan):
        is_sound(found, hosts)
        nearest = next((level for level in ("rack", "pod") if oracle.fits(workers, level)), "")
        assert oracle.holds(hosts_of(found), nearest)


@seeds(150)
def test_segments_are_whole_wherever_they_can_be(seed: int) -> None:
    dice = random.Random(seed)
    hosts, oracle = fleet(dice)
    size, workers = dice.choice([(2, 4), (1, 3), (3, 3), (2, 2)])
    required = dice.random() < 0.5
    near = Locality(LEVELS, "pod", required=required, segments=Segments(size, "rack"))
    found = plan(gang(workers, near), hosts)
    within = "pod" if required else ""
    assert isinstance(found, Plan) == oracle.fits(workers, within, size, "rack"), found
    if isinstance(found, Plan):
        is_sound(found, hosts)
        assert oracle.holds(hosts_of(found), within, size, "rack")


@seeds(200)
def test_one_worker_s_new_host_is_where_the_others_are(seed: int) -> None:
    dice = random.Random(seed)
    hosts, oracle = fleet(dice)
    workers = dice.choice([2, 4])
    segments = Segments(2, "rack") if dice.random() < 0.5 else None
    near = Locality(LEVELS, dice.choice(LEVELS) if segments is None else "pod", required=True, segments=segments)
    before = plan(gang(workers, near), hosts)
    if not isinstance(before, Plan):
        return
    lost = dice.randrange(workers)
    kept = {index: place for index, place in enumerate(before.places) if index != lost}
    for index, place in kept.items():
        at = next(each for each in hosts if each.name == place.host)
        at.allocations[f"own/{index}"] = Allocation(0, 0, place.gpus)
        oracle.room[place.host] -= 1
    left = [
        each
        for each in hosts
        if each.name != before.places[lost].host or each.name in {p.host for p in kept.values()}
    ]
    oracle.room = {each.name: oracle.room[each.name] for each in left}
    found = plan_on(gang(workers, near), left, capacity_of, kept)
    stays = {index: place.host for index, place in kept.items()}
    sizes = (segments.size, segments.level) if segments else (0, "")
    assert isinstance(found, Plan) == oracle.fits(workers, near.within, *sizes, stays), found
    if isinstance(found, Plan):
        is_sound(found, left, kept)
        assert {index: found.places[index] for index in kept} == kept
        assert oracle.holds(hosts_of(found), near.within, *sizes)


@seeds(60)
def test_workers_that_differ_never_leave_a_required_domain_either(seed: int) -> None:
    dice = random.Random(seed)
    hosts, oracle = fleet(dice, 9)
    pools = tuple(Pool(dice.randint(1, 3), TASK, gpus=gpus) for gpus in (0, 1, 3))
    workers = sum(pool.replicas for pool in pools)
    size = dice.choice([size for size in (1, 2, 3) if workers % size == 0])
    near = Locality(LEVELS, "pod", required=True, segments=Segments(size, "rack") if dice.random() < 0.5 else None)
    found = plan(Gang(pools, near=near), hosts)
    if isinstance(found, Plan):
        is_sound(found, hosts)
        assert oracle.holds(hosts_of(found), "pod", size if near.segments else 0, "rack")


def racks(count: int, hosts_each: int) -> list[Host]:
    """Racks of a pod, whose hosts have names that are in no order of racks."""
    found = []
    for number in range(count * hosts_each):
        made = host(f"h{number:02}", gpus=4)
        made.labels = {"pod": "p", "rack": f"r{number % count}"}
        found.append(made)
    return found


def labels_of(found: Plan | Wait, hosts: list[Host]) -> list[str]:
    by_name = {each.name: each.labels.get("rack", "?") for each in hosts}
    return [by_name[name] for name in hosts_of(found)]


def test_ranks_that_follow_each_other_are_in_one_rack() -> None:
    hosts = racks(3, 3)
    whole = Gang((Pool(1, TASK, gpus=4), Pool(5, TASK, gpus=4)), near=Locality(LEVELS, "pod"))
    assert labels_of(plan(whole, hosts), hosts) == ["r0"] * 3 + ["r1"] * 3
    segmented = Gang((Pool(6, TASK, gpus=4),), near=Locality(LEVELS, "pod", segments=Segments(2, "rack")))
    found = labels_of(plan(segmented, hosts), hosts)
    assert all(found[at] == found[at + 1] for at in (0, 2, 4))


def test_as_few_racks_as_are_enough_are_taken_where_one_is_not() -> None:
    hosts = racks(4, 4)
    found = labels_of(plan(Gang((Pool(6, TASK, gpus=4),), near=Locality(LEVELS, "rack")), hosts), hosts)
    assert len(set(found)) == 2


def test_a_rack_that_is_partly_taken_is_filled_before_a_whole_one() -> None:
    hosts = racks(2, 3)
    hosts[1].allocations["other/0"] = Allocation(1, 1, tuple(gpu.uuid for gpu in hosts[1].inventory.gpus))
    found = labels_of(plan(Gang((Pool(2, TASK, gpus=4),), near=Locality(LEVELS, "rack")), hosts), hosts)
    assert found == ["r1", "r1"]


def test_what_is_required_is_said_where_it_lacks() -> None:
    hosts = racks(3, 1)
    near = Locality(LEVELS, "rack", required=True)
    found = plan(Gang((Pool(2, TASK, gpus=4),), near=near), hosts)
    assert found == Wait("needs room within one rack, and only hosts further apart have it")
    segmented = Locality(LEVELS, "pod", segments=Segments(2, "rack"))
    found = plan(Gang((Pool(2, TASK, gpus=4),), near=segmented), hosts)
    assert isinstance(found, Wait)
    assert "each 2 workers within one rack" in found.reason


@pytest.mark.parametrize(
    ("labels", "domain"),
    [({"pod": "p", "rack": "r"}, ("p", "r")), ({"rack": "r"}, ()), ({"pod": "p"}, ("p",)), ({"pod": ""}, ())],
)
def test_a_host_without_a_label_is_in_no_domain_from_there_on(labels: dict[str, str], domain: Any) -> None:
    assert Locality(LEVELS, "rack").domain_of(labels, 2) == domain


def domain_for(need: int, all_need: int, left: dict[Any, int], bound: set[Any] | None) -> Any:
    """The rule, as it is said: the smallest with room for all that are left to deal out, else the largest."""
    open_ = {domain: room for domain, room in left.items() if room >= need and (bound is None or {domain} == bound)}
    for_all = [domain for domain, room in open_.items() if room >= all_need]
    return min(for_all or open_, key=lambda domain: (open_[domain] * (1 if for_all else -1), domain), default=None)


@seeds(200)
def test_segments_are_dealt_out_by_the_rule_whatever_was_dealt_out_before(seed: int) -> None:
    dice = random.Random(seed)
    domains = [(f"p{number % 3}", f"r{number}") for number in range(dice.randint(0, 6))]
    room: dict[Any, int] = {domain: dice.randint(0, 12) for domain in domains}
    groups = [topology._Group(each, [topology._Leaf(each, room[each])]) for each in domains]
    left = topology._Left(groups)
    needs = [dice.randint(0, 4) for _ in range(dice.randint(1, 12))]
    for at, need in enumerate(needs):
        bound = {dice.choice([*domains, ("p9",)]) for _ in range(2)} if dice.random() < 0.2 else None
        found = left.domain_for(need, sum(needs[at:]), bound)
        assert found == domain_for(need, sum(needs[at:]), room, bound)
        if found is not None:
            left.take(found, need)
            room[found] -= need


def test_a_segment_for_each_of_many_workers_takes_little_longer_than_none() -> None:
    hosts, spent = racks(2_000, 1), []
    for segments in (None, Segments(1, "rack")):
        asked = gang(2_000, Locality(LEVELS, "pod", segments=segments))
        assert isinstance(plan(asked, hosts), Plan)
        spent.append(calls_of(partial(plan, asked, hosts)))
    assert spent[1] < 3 * spent[0], spent
