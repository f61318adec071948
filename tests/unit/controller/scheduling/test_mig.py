"""MIG instances by profile: who gets which, and that no worker ever gets both kinds."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tests.unit.controller.examples import host, never_fits
from tests.unit.controller.scheduling.test_placement import TASK, hosts_of, why

from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import capacity_of, gpu_matches
from holdfast_controller.core.model.hosts.host import Allocation, Gpu, Host, partition_of
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.scheduling.backfill import Reservations
from holdfast_controller.core.scheduling.placement import Plan, plan

H100 = "NVIDIA H100 80GB HBM3"
PROFILES = ("1g.10gb", "1g.10gb+me", "3g.40gb")


def divided(name: str, *profiles: str) -> Host:
    """A host with a GPU or an instance for each word; an empty one is a whole GPU."""
    made = host(name)
    models = [f"{H100} MIG {profile}" if profile else H100 for profile in profiles]
    gpus = tuple(Gpu(f"{name}-{at}", at, model, 1) for at, model in enumerate(models))
    made.inventory = dataclasses.replace(made.inventory, gpus=gpus)
    return made


def asks(profile: str = "", gpus: int = 1, replicas: int = 1, model: str = "") -> Gang:
    return Gang((Pool(replicas, TASK, gpus=gpus, gpu_partition=profile, gpu_type=model),))


@pytest.mark.parametrize(
    ("wanted", "partition", "model", "matches"),
    [
        ("", "", H100, True),
        ("", "", f"{H100} MIG 1g.10gb", False),
        ("NVIDIA_H100_80GB", "", f"{H100} MIG 1g.10gb", False),
        ("", "1g.10gb", f"{H100} MIG 1g.10gb", True),
        ("", "1g.10gb", f"{H100} MIG 1g.10gb+me", False),
        ("", "1g.10gb+me", f"{H100} MIG 1g.10gb+me", True),
        ("", "1g.10gb", f"{H100} MIG 1c.1g.10gb", False),
        ("", "1g.10gb", H100, False),
        ("NVIDIA_H100_80GB", "1g.10gb", f"{H100} MIG 1g.10gb", True),
        ("NVIDIA_A100_80GB", "1g.10gb", f"{H100} MIG 1g.10gb", False),
        ("NVIDIA_H200_141GB", "1g.18gb", "NVIDIA H200 MIG 1g.18gb", True),
        ("NVIDIA_H100_MIG_1g.10gb", "", f"{H100} MIG 1g.10gb", True),
        ("NVIDIA_H100_MIG_1g.10gb", "3g.40gb", f"{H100} MIG 1g.10gb", False),
        ("NVIDIA_H100_MIG_1g.10gb", "", H100, False),
        ("NVIDIA_H100_MIG_1g.10gb", "1g.10gb", f"{H100} MIG 1g.10gb", True),
        ("NVIDIA_H100_MIG_1g.10gb", "", f"{H100} MIG 1g.10gb+me", False),
        ("NVIDIA_H100_MIG_1g.10gb+me", "", f"{H100} MIG 1g.10gb+me", True),
        ("NVIDIA_H100_MIG_1g.10gb", "", f"{H100} MIG 1c.1g.10gb", False),
        ("MIG_3g.40gb", "", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", False),
        ("NVIDIA_H100_MIG", "", f"{H100} MIG 1g.10gb", True),
        ("NVIDIA_H100_MIG", "", H100, False),
        ("NVIDIA_H100_MIG_1g.10gb", "1g.10gb", "Simulated GPU", True),
        ("", "1g.10gb", "Simulated GPU", True),
    ],
)
def test_a_gpu_answers_to_its_profile(wanted: str, partition: str, model: str, matches: bool) -> None:
    assert gpu_matches(wanted, partition, model) is matches


@pytest.mark.parametrize("seed", range(10))
def test_no_worker_gets_another_profile_than_it_asks_for_nor_both_kinds(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        hosts = [
            divided(f"h{at}", *(dice.choice(("", *PROFILES)) for _ in range(dice.randint(1, 6))))
            for at in range(dice.randint(1, 4))
        ]
        for each in hosts:
            busy = tuple(gpu.uuid for gpu in each.inventory.gpus if dice.random() < 0.3)
            each.allocations["other/0"] = Allocation(0, 0, busy)
        pools = tuple(
            Pool(dice.randint(1, 2), TASK, gpus=dice.randint(1, 3), gpu_partition=dice.choice(("", *PROFILES)))
            for _ in range(dice.randint(1, 2))
        )
        gang = Gang(pools, near=dice.choice([None, Locality(("rack",), "rack", False)]))
        found = plan(gang, hosts)
        free = {
            (each.name, profile): sum(
                partition_of(gpu.model) == profile and gpu.uuid not in each.allocations["other/0"].gpus
                for gpu in each.inventory.gpus
            )
            for each in hosts
            for profile in ("", *PROFILES)
        }
        room = [sum(count // p.gpus for (_, own), count in free.items() if own == p.gpu_partition) for p in pools]
        alone = pools[0].gpu_partition != pools[-1].gpu_partition or len(pools) == 1
        if alone:
            fits = all(there >= pool.replicas for there, pool in zip(room, pools, strict=True))
            assert isinstance(found, Plan) == fits, found
        if isinstance(found, Plan):
            models = {gpu.uuid: gpu.model for each in hosts for gpu in each.inventory.gpus}
            for member, place in zip(gang.members, found.places, strict=True):
                pool = gang.pool_of(member)
                assert [partition_of(models[uuid]) for uuid in place.gpus] == [pool.gpu_partition] * pool.gpus
            taken = [uuid for place in found.places for uuid in place.gpus]
            assert len(taken) == len(set(taken))


def test_whole_gpus_are_chosen_around_the_instances_of_a_host() -> None:
    mixed = divided("a", "1g.10gb", "", "1g.10gb", "")
    found = plan(asks(gpus=2), [mixed])
    assert isinstance(found, Plan)
    assert found.places[0].gpus == ("a-1", "a-3")
    assert why(plan(asks(gpus=3), [mixed])) == "needs 3 GPUs on one host (2 free on the best, a)"


def test_a_job_for_whole_gpus_is_told_of_the_instances_that_there_are() -> None:
    hosts = [divided("a", "1g.10gb", "1g.10gb"), divided("b", "3g.40gb")]
    problem, _ = never_fits(asks(gpus=1), hosts)
    assert problem.endswith(
        "it asks for 1 GPU, and no host has any; there are MIG instances for gpuPartitionSize 1g.10gb, 3g.40gb"
    )
    assert "there are MIG instances for gpuPartitionSize" in why(plan(asks(), hosts))


def test_a_profile_that_no_host_has_is_refused_with_those_that_there_are() -> None:
    hosts = [divided("a", "1g.10gb", "1g.10gb"), divided("b", "", "")]
    problem, _ = never_fits(asks("7g.80gb"), hosts)
    assert problem.endswith(
        "it asks for 1 7g.80gb MIG instance, and no host has any; there are MIG instances for gpuPartitionSize 1g.10gb"
    )
    assert never_fits(asks("7g.80gb"), [divided("b", "")])[0].endswith(
        "it asks for 1 7g.80gb MIG instance, and no host has any"
    )
    assert never_fits(asks("1g.10gb", replicas=3), hosts)[0].endswith(
        "the hosts have 2 1g.10gb MIG instances in all, and this asks for 3"
    )
    assert never_fits(asks("1g.10gb", replicas=2), hosts) == ("", "")


def test_busy_instances_are_waited_for() -> None:
    hosts = [divided("a", "1g.10gb", "3g.40gb")]
    hosts[0].allocations["other/0"] = Allocation(0, 0, ("a-0",))
    assert never_fits(asks("1g.10gb"), hosts) == ("", "")
    assert why(plan(asks("1g.10gb"), hosts)).startswith(
        "needs 1 1g.10gb MIG instance on one host (0 free on the best"
    )
    assert hosts_of(plan(asks("3g.40gb"), hosts)) == ["a"]


def test_a_divided_gpu_with_a_problem_is_given_to_nobody_beside_its_instances() -> None:
    made = divided("a", "", "1g.10gb")
    gpus = (dataclasses.replace(made.inventory.gpus[0], problem="GPU is lost"), made.inventory.gpus[1])
    made.inventory = dataclasses.replace(made.inventory, gpus=gpus)
    assert capacity_of(made).gpus == [("a-1", f"{H100} MIG 1g.10gb")]
    assert "0 free on the best" in why(plan(asks(), [made]))


def test_a_waiting_job_keeps_instances_of_its_profile_from_others() -> None:
    hosts = [divided("a", "1g.10gb"), divided("b", "")]
    reservations = Reservations()
    assert reservations.reserve(asks("1g.10gb"), hosts)
    assert reservations.without_held(hosts) == hosts[1:]


def test_jobs_of_other_profiles_are_of_another_shape() -> None:
    assert len({asks("").shape, asks("1g.10gb").shape, asks("3g.40gb").shape}) == 3
    spare = dataclasses.replace(asks("1g.10gb"), spares=1)
    assert spare.spare_pool.gpu_partition == "1g.10gb"
