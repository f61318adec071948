"""Pools that may have different hosts: an oracle by brute force says for small fleets what is possible."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from tests.unit.controller.examples import host, never_fits
from tests.unit.controller.scheduling.test_placement import TASK, hosts_of, why

from holdfast._base.job_file.label_match import read_match
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.scheduling.backfill import Reservations
from holdfast_controller.core.scheduling.placement import Plan, may_have, plan

MATCHES = ("gpu=h100", "gpu in (h100,h200)", "gpu!=h100", "rack notin (r1,r2)", "gpu,!old", "old", "rack=r1,gpu")


def where(match: str) -> HostSelector:
    return HostSelector(match=read_match(match))


def labelled(name: str, **labels: str) -> Host:
    """A host of eight GPUs with these labels."""
    found = host(name, gpus=8)
    found.labels = labels
    return found


def admitted(match: str, labels: dict[str, str]) -> bool:
    """What the texts above say, apart from the code that reads them."""
    gpu, rack = labels.get("gpu"), labels.get("rack")
    return {
        "": True,
        "gpu=h100": gpu == "h100",
        "gpu in (h100,h200)": gpu in ("h100", "h200"),
        "gpu!=h100": gpu != "h100",
        "rack notin (r1,r2)": rack not in ("r1", "r2"),
        "gpu,!old": gpu is not None and "old" not in labels,
        "old": "old" in labels,
        "rack=r1,gpu": rack == "r1" and gpu is not None,
    }[match]


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_keeps_to_the_selectors_and_is_found_wherever_there_is_one(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        _one_fleet(dice)


def _one_fleet(dice: random.Random) -> None:
    hosts = []
    for number in range(dice.randint(1, 6)):
        labels = {"gpu": dice.choice(["h100", "h200", "a100"])} if dice.random() < 0.8 else {}
        labels |= {"rack": dice.choice(["r1", "r2", "r3"])} if dice.random() < 0.8 else {}
        labels |= {"old": "yes"} if dice.random() < 0.3 else {}
        hosts.append(labelled(f"h{number}", **labels))
    whole = dice.choice(["", "", *MATCHES])
    matches = [dice.choice(["", *MATCHES]) for _ in range(dice.randint(1, 4))]
    pools = tuple(
        Pool(1 if at == 0 else dice.randint(0, 2), TASK, gpus=8, selector=where(match) if match else None)
        for at, match in enumerate(matches)
    )
    gang = Gang(pools, selector=where(whole) if whole else HostSelector())
    wanted = [match for pool, match in zip(pools, matches, strict=True) for _ in range(pool.replicas)]
    fits = any(
        all(admitted(match, h.labels) and admitted(whole, h.labels) for match, h in zip(wanted, way, strict=True))
        for way in itertools.permutations(hosts, len(wanted))
    )
    found = plan(gang, may_have(gang, hosts))
    assert isinstance(found, Plan) == fits, found
    if isinstance(found, Plan):
        by_name = {each.name: each for each in hosts}
        for match, name in zip(wanted, hosts_of(found), strict=True):
            assert admitted(match, by_name[name].labels)
            assert admitted(whole, by_name[name].labels)
    refused, _ = never_fits(gang, hosts)
    known = all(
        any(admitted(match, h.labels) and admitted(whole, h.labels) for h in hosts) for match in set(wanted)
    )
    assert bool(refused) == (known and not fits), refused


def test_the_choosier_pool_leaves_nothing_that_another_could_have_had_alone() -> None:
    hosts = [labelled("a", rack="r1"), labelled("b"), labelled("c", rack="r1", old="yes")]
    gang = Gang((Pool(1, TASK, gpus=8), Pool(1, TASK, gpus=1, selector=where("rack=r1,!old"))))
    assert hosts_of(plan(gang, hosts)) == ["b", "a"]


def test_within_one_rack_each_pool_has_hosts_of_its_own() -> None:
    hosts = [labelled("a", rack="1", gpu="x"), labelled("b", rack="1"), labelled("c", rack="2", gpu="x")]
    near = Locality(("rack",), "rack", True)
    gang = Gang((Pool(1, TASK, gpus=8, selector=where("!gpu")), Pool(1, TASK, gpus=8, selector=where("gpu"))))
    assert hosts_of(plan(dataclasses.replace(gang, near=near), hosts)) == ["b", "a"]
    hosts[1].labels = {"rack": "2"}
    assert hosts_of(plan(dataclasses.replace(gang, near=near), hosts)) == ["b", "c"]
    assert "within one rack" in why(plan(dataclasses.replace(gang, near=near), hosts[:2]))


def test_a_pool_without_any_host_says_what_it_asks_for_and_waits() -> None:
    gang = Gang((Pool(1, TASK, gpus=1), Pool(1, TASK, gpus=8, selector=where("gpu=h200"))))
    reason = "needs a host that its pool may have (gpu=h200)"
    assert why(plan(gang, [labelled("a", gpu="h100")])) == reason
    assert never_fits(gang, [labelled("a", gpu="h100")]) == ("", "")


def test_a_pool_whose_hosts_are_too_small_says_so_of_these_alone() -> None:
    gang = Gang((Pool(1, TASK, gpus=1), Pool(1, TASK, gpus=8, selector=where("gpu=h200"))))
    hosts = [labelled("a", gpu="h100"), host("b", gpus=4)]
    hosts[1].labels = {"gpu": "h200"}
    assert why(plan(gang, hosts)) == (
        "needs 8 GPUs on one host (4 free on the best, b), of the hosts of workerpool1 (gpu=h200)"
    )
    problem, fix = never_fits(gang, hosts)
    assert "a worker of it asks for 8 GPUs, and a host that it may have (gpu=h200) has 4 at most" not in fix
    assert "asks for 8 GPUs, and a host that it may have (gpu=h200) has 4 at most" in problem
    many = dataclasses.replace(gang, pools=(gang.pools[0], dataclasses.replace(gang.pools[1], replicas=2, gpus=4)))
    problem, _ = never_fits(many, hosts)
    assert "the only host that workerpool1 may have (gpu=h200) has 4 GPUs in all, and this asks for 8" in problem


def test_a_hundred_thousand_workers_of_a_pool_are_refused_by_its_slots() -> None:
    gang = Gang((Pool(1, TASK), Pool(70, TASK, selector=where("gpu=h200"))))
    problem, _ = never_fits(gang, [labelled("a"), labelled("b", gpu="h200")])
    assert "it has 70 workers, and the only host that workerpool1 may have (gpu=h200) takes 64" in problem


def test_a_waiting_job_keeps_from_others_only_hosts_of_its_pools() -> None:
    hosts = [labelled("a", gpu="x"), labelled("b", gpu="y"), labelled("c")]
    gang = Gang((Pool(1, TASK, gpus=8, selector=where("gpu=x")), Pool(1, TASK, gpus=8, selector=where("gpu=y"))))
    reservations = Reservations()
    assert reservations.reserve(gang, hosts)
    assert reservations.without_held(hosts) == hosts[2:]


def test_a_spare_suits_every_pool() -> None:
    hosts = [
        labelled("a", gpu="x"),
        labelled("b", gpu="y", rack="r"),
        labelled("c", rack="r"),
        labelled("d", gpu="x"),
    ]
    pools = (Pool(1, TASK, gpus=8, selector=where("gpu=x")), Pool(1, TASK, gpus=8, selector=where("rack=r")))
    hosts[3].labels["rack"] = "r"
    found = plan(Gang(pools, spares=1), hosts)
    assert hosts_of(found)[2] == "d"
    hosts[3].labels = {"gpu": "x"}
    assert "for its own spare" in why(plan(Gang(pools, spares=1), hosts))


def test_jobs_that_ask_for_other_hosts_are_of_another_shape() -> None:
    plain = Gang((Pool(1, TASK), Pool(1, TASK)))
    one = Gang((Pool(1, TASK), Pool(1, TASK, selector=where("gpu"))))
    other = Gang((Pool(1, TASK, selector=where("gpu")), Pool(1, TASK)))
    whole = Gang((Pool(1, TASK), Pool(1, TASK)), selector=where("gpu"))
    assert len({plain.shape, one.shape, other.shape, whole.shape}) == 4
    assert plain.anywhere
    assert not (one.anywhere or other.anywhere or whole.anywhere)
