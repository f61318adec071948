"""Hosts that come back as other machines, while jobs wait for them, run there, or a reservation or a spare has them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.scenarios.queue_stories import finish, job_of, placed, why
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.clock import NEVER, Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Task
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.core.model.hosts.locality import Locality
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.host_reservations import chosen_hosts, reserved_now
from holdfast_controller.core.step.reservation_commands import ReservationAsked
from holdfast_controller.core.step.step import Policies

HALF = inventory(2, name="half")
OLD = inventory(4, model="NVIDIA A100", name="old")
NONE = inventory(0)
FEW_CORES = inventory(4, cpus=2, name="few")
LITTLE_MEMORY = inventory(4, memory=1, name="little")
RACK = Locality(("rack",), "rack", required=True)


def cluster(hosts: int, **policies: object) -> World:
    return World(hosts, Policies(secret_key=b"k", **{"backfill": Backfill.PROJECTED, **policies}))  # type: ignore[arg-type]


def at(world: World) -> Now:
    return Now(Mono(world.mono), Wall(world.wall))


def hosts_of(world: World, job: str) -> list[str]:
    return [place.host for place in job_of(world, job).places]


# --- Jobs that wait ----------------------------------------------------------------------------------------------


def test_a_job_that_no_host_could_hold_any_more_says_so_holds_up_nobody_and_starts_on_one_that_joins() -> None:
    world = cluster(2)
    for number in range(2):
        world.submit(f"busy-{number}", gang(1))
        world.run(f"busy-{number}")
    world.submit("large", gang(1))
    assert why(world, "large") == "needs 4 GPUs on one host (0 free on the best)"
    for number in range(2):
        world.join(f"host-{number}", HALF, [world.place(f"busy-{number}", 0, "RUNNING")])
        finish(world, f"busy-{number}")
    assert why(world, "large") == (
        "needs 4 GPUs on one host (2 free on the best, host-0);"
        " no host could hold it even when empty: it asks for 4 GPUs, and a host has 2 at most"
    )
    assert placed(world.submit("small", gang(1, gpus=2))) == ["small placed g1 on host-0"]
    assert placed(world.join("host-2")) == ["large placed g1 on host-2"]


def test_a_lost_or_cordoned_host_that_could_hold_it_is_still_counted_on() -> None:
    world = cluster(2)
    world.submit("busy", gang(1))
    world.run("busy")
    world.cordon("host-1")
    world.submit("large", gang(1))
    world.join("host-0", HALF, [world.place("busy", 0, "RUNNING")])
    assert "even when empty" not in why(world, "large")
    world.join("host-1", HALF)
    assert why(world, "large").endswith("even when empty: it asks for 4 GPUs, and a host has 2 at most")


@pytest.mark.parametrize("model", ["NVIDIA_H100_80GB", ""])
def test_a_gang_for_another_model_than_the_host_has_now_waits_and_one_for_any_starts(model: str) -> None:
    world = cluster(1)
    world.submit("busy", gang(1))
    world.run("busy")
    world.submit("next", Gang((Pool(1, Task(("train",)), gpus=4, gpu_type=model),)))
    world.join("host-0", OLD, [world.place("busy", 0, "RUNNING")])
    finish(world, "busy")
    assert world.state("next") is (JobState.QUEUED if model else JobState.PENDING)
    if model:
        assert "NVIDIA_H100_80GB" in why(world, "next") and "no host has any" in why(world, "next")


def test_a_gang_waits_for_a_rack_that_a_host_has_left() -> None:
    world = cluster(0)
    for number in range(2):
        world.join(f"host-{number}", labels={"rack": "a"})
    world.submit("busy", gang(1))
    world.run("busy")
    world.submit("pair", gang(2, near=RACK))
    running = [world.place("busy", 0, "RUNNING")]
    [busy] = hosts_of(world, "busy")
    world.join(busy, places=running, labels={"rack": "b"})
    finish(world, "busy")
    assert world.state("pair") is JobState.QUEUED and "rack" in why(world, "pair")
    assert placed(world.join(busy, labels={"rack": "a"})) == ["pair placed g1 on host-0 host-1"]


# --- Jobs that run there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("has", [HALF, OLD, NONE, FEW_CORES])
def test_what_runs_there_goes_on_and_nothing_is_placed_beside_it_on_what_is_gone(has: Inventory) -> None:
    world = cluster(1)
    world.submit("job", gang(1, gpus=3))
    world.run("job")
    world.submit("small", gang(1, gpus=2))
    world.submit("large", gang(1, gpus=4))
    told = world.join("host-0", has, [world.place("job", 0, "RUNNING")])
    assert world.state("job") is JobState.RUNNING
    fits = len(has.gpus) >= 2
    assert bool(placed(told)) is fits
    there = {gpu.uuid for gpu in has.gpus}
    assert not fits or set(job_of(world, "small").places[0].gpus) <= there
    finish(world, "job")
    assert world.state("large") is JobState.QUEUED
    finish(world, "small")
    assert world.state("large") is (JobState.PENDING if len(has.gpus) == 4 else JobState.QUEUED)


@pytest.mark.parametrize("has", [HALF, OLD, NONE, FEW_CORES])
def test_a_machine_that_was_exchanged_has_lost_the_work_and_the_job_goes_on_elsewhere(has: Inventory) -> None:
    world = cluster(2)
    world.submit("job", gang(1, retries=3))
    world.run("job")
    assert hosts_of(world, "job") == ["host-0"]
    told = world.join("host-0", has, boot="boot-2")
    assert "job leaves to RETRY: LOST_REBOOT of workerpool0-0 rank 0, not on host-0, HOST pays" in told
    assert placed(world.report("job", 0, "EMPTY")) == ["job placed g2 on host-1"]


def test_it_waits_where_the_exchanged_machine_was_its_only_one_and_says_why() -> None:
    world = cluster(1)
    world.submit("job", gang(1, retries=3))
    world.run("job")
    world.join("host-0", HALF, boot="boot-2")
    assert not placed(world.report("job", 0, "EMPTY"))
    assert why(world, "job").endswith("it asks for 4 GPUs, and a host has 2 at most")
    assert placed(world.join("host-0", inventory(4, name="new"), boot="boot-3")) == ["job placed g2 on host-0"]


# --- Reservations and spares -------------------------------------------------------------------------------------


def reserve(world: World, *hosts: str, gpus: int = 0) -> None:
    selector = HostSelector(hosts=frozenset(hosts))
    end, model = Wall(world.wall + 86_400.0), "H100" if gpus else ""
    made = Reservation("conf", "vision", NEVER, end, selector, gpus=gpus, gpu_type=model)
    assert "reservation conf" in " ".join(world.step(ReservationAsked(1, made)))


def reserved(world: World) -> list[str]:
    found = chosen_hosts(world.cluster, schedulable_hosts(world.cluster), at(world))
    return sorted(host.name for host in found["conf"])


def lack(world: World) -> str:
    (found,) = reserved_now(world.cluster, schedulable_hosts(world.cluster), at(world))
    return found.lack


def test_a_reservation_of_gpus_takes_another_host_for_one_that_has_other_gpus_now() -> None:
    world = cluster(3)
    reserve(world, gpus=8)
    before = reserved(world)
    world.join(before[0], OLD)
    world.wait(60, beating=list(world.sessions))
    assert before[0] not in reserved(world) and len(reserved(world)) == 2 and not lack(world)
    world.join(reserved(world)[0], HALF)
    world.wait(60, beating=list(world.sessions))
    assert lack(world) == "2 of 8 GPUs"
    assert placed(world.submit("others", gang(1))) == [f"others placed g1 on {before[0]}"]


def test_a_host_that_is_reserved_by_name_stays_so_whatever_it_has() -> None:
    world = cluster(2)
    reserve(world, "host-0")
    world.join("host-0", NONE)
    world.wait(60, beating=list(world.sessions))
    assert reserved(world) == ["host-0"] and not lack(world)
    world.submit("own", gang(1, project="vision"))
    assert hosts_of(world, "own") == ["host-1"], "it has nothing for it"


def test_a_spare_that_comes_back_as_another_model_or_in_another_rack_is_followed_by_another() -> None:
    rule = SpareRule("any", 1, gpus="H100", per=("rack",))
    world = cluster(0, spares=(rule,))
    for number in range(3):
        world.join(f"host-{number}", labels={"rack": "a"})
    world.submit("one", gang(1, gpus=1))
    [spare] = world.cluster.spares
    world.join(spare, OLD)
    world.submit("two", gang(1, gpus=1))
    [follower] = world.cluster.spares
    assert follower != spare
    world.join(follower, labels={"rack": "b"})
    world.submit("three", gang(1, gpus=1))
    assert follower in world.cluster.spares and len(world.cluster.spares) == 2, "of rack b, and one of rack a"


def pair(**rules: Any) -> Gang:
    pool = Pool(1, Task(("train",)), gpus=4, gpu_type="H100", cpus=4, memory_mb=2048)
    return dataclasses.replace(gang(2, retries=3, **rules), pools=(pool, pool))


@pytest.mark.parametrize("has", [HALF, OLD, NONE, FEW_CORES, LITTLE_MEMORY])
def test_a_jobs_own_spare_that_is_another_machine_now_is_given_back_for_another_one(has: Inventory) -> None:
    world = cluster(4)
    world.submit("job", pair(spares=1, replace_when_lost=True))
    world.run("job")
    assert [each.host for each in job_of(world, "job").spares] == ["host-2"]
    told = world.join("host-2", has, boot="boot-2")
    assert "job has spares on host-3" in told and not world.cluster.hosts["host-2"].allocations
    world.hang_up("host-1")
    world.wait(90, beating=["host-0", "host-2", "host-3"])
    world.report("job", 0, "EMPTY")
    assert hosts_of(world, "job") == ["host-0", "host-3"]


@pytest.mark.parametrize("has", [HALF, OLD, NONE, FEW_CORES, LITTLE_MEMORY])
def test_a_place_that_is_kept_for_a_worker_is_given_up_once_its_host_is_another_machine(has: Inventory) -> None:
    world = cluster(3)
    world.submit("job", pair(replace_when_lost=True))
    world.run("job")
    world.cordon("host-2")
    world.hang_up("host-1")
    world.wait(90, beating=["host-0", "host-2"])
    world.report("job", 0, "EMPTY")
    assert world.state("job") is JobState.QUEUED and job_of(world, "job").reserved
    world.join("host-0", has, boot="boot-2")
    world.join("host-3")
    told = world.uncordon("host-2")
    assert placed(told) == ["job placed g2 on host-2 host-3"] and not world.cluster.hosts["host-0"].allocations
