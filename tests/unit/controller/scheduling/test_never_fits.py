"""Words of a job that hosts could not hold even when empty, and what would fit instead."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest
from tests.unit.controller.examples import host, never_fits
from tests.unit.controller.scheduling.test_placement import TASK

from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import capacity_of
from holdfast_controller.core.model.hosts.host import Allocation, Host
from holdfast_controller.core.scheduling.placement import Plan, plan_on
from holdfast_controller.core.scheduling.wait_reasons.never_fits import LESS


def full(name: str, gpus: int) -> Host:
    made = host(name, gpus=gpus)
    uuids = tuple(gpu.uuid for gpu in made.inventory.gpus)
    made.allocations["b/w"] = Allocation(0, 0, uuids)
    return made


def words(*pools: Pool, gpus: tuple[int, ...] = (2, 2)) -> tuple[str, str]:
    hosts = [full(f"host-{number}", count) for number, count in enumerate(gpus)]
    problem, fix = never_fits(Gang(pools), hosts)
    which = f"all {len(hosts)} hosts together" if len(hosts) > 1 else "the only host"
    start = f"{which} could not hold the job even when empty: "
    assert problem.startswith(start)
    assert not re.search(r"\b(free|now)\b", problem)
    return problem.removeprefix(start), fix


def test_one_worker_that_is_larger_than_any_host_is_split_where_that_fits() -> None:
    problem, fix = words(Pool(1, TASK, gpus=4))
    assert problem == "it asks for 4 GPUs, and a host has 2 at most"
    assert fix == "ask for as many GPUs in smaller workers (--replicas 2 --gpus 2), or add hosts"


def test_a_single_host_is_called_so() -> None:
    assert words(Pool(1, TASK, gpus=2), gpus=(1,))[0] == "it asks for 2 GPUs, and a host has 1 at most"


def test_more_gpus_than_there_are() -> None:
    problem, fix = words(Pool(1, TASK, gpus=2), Pool(2, TASK, gpus=2))
    assert (problem, fix) == ("the hosts have 4 GPUs in all, and this asks for 6", LESS)
    assert words(Pool(1, TASK, gpus=6))[1] == LESS


def test_gpus_that_are_there_but_not_on_the_same_hosts() -> None:
    problem, fix = words(Pool(1, TASK, gpus=2), Pool(2, TASK, gpus=2), gpus=(3, 3))
    assert problem == "they have room for only 2 of its 3 workers"
    assert "(--replicas 6 --gpus 1)" in fix


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        (Pool(1, TASK, gpus=1, gpu_type="T4"), "it asks for 1 T4 GPU, and no host has any"),
        (Pool(2, TASK, cpus=17), "a worker of it asks for 17 cores, and a host has 16 at most"),
        (Pool(1, TASK, memory_mb=70_000), "it asks for 70000 MiB, and a host has 65536 at most"),
        (
            Pool(1, dataclasses.replace(TASK, image="x"), gpus=9),
            "it needs a host that runs containers (host-0: its agent knows of none)",
        ),
    ],
)
def test_what_a_worker_asks_for_is_beside_what_a_host_has(pool: Pool, problem: str) -> None:
    assert words(pool) == (problem, LESS)


def test_what_fits_is_no_problem() -> None:
    assert never_fits(Gang((Pool(2, TASK, gpus=2),)), [full("a", 2), full("b", 2)]) == ("", "")
    assert never_fits(Gang((Pool(2, TASK, gpus=2),)), []) == ("", "")


@pytest.mark.parametrize("seed", range(200))
def test_what_is_counted_is_what_a_plan_on_each_empty_host_would_find(seed: int) -> None:
    dice = random.Random(seed)
    hosts = [full(f"host-{number}", dice.choice([0, 1, 2, 4])) for number in range(dice.randrange(1, 6))]
    hosts = [dataclasses.replace(each, excess=dice.randrange(2)) for each in hosts]
    asked = Pool(dice.choice([1, 2, 3, 7]), TASK, gpus=dice.choice([0, 1, 2, 3]), cpus=dice.choice([0, 1, 5]))
    others = [dataclasses.replace(asked, replicas=dice.choice([1, 4])), Pool(1, TASK, gpus=1, cpus=9)]
    gang = Gang((asked, *others[: dice.randrange(3)]), spares=dice.choice([0, 0, 1]))
    found = plan_on(gang, hosts, lambda host: capacity_of(host, empty=True))
    problem, _ = never_fits(gang, hosts)
    assert (not problem) == isinstance(found, Plan)
    if "they have room for only" in problem:
        assert not isinstance(found, Plan)
        assert f"only {found.placed} of its {found.workers} workers" in problem
