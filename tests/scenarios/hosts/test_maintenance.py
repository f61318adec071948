"""Hosts are kept free of work for a planned time."""

from __future__ import annotations

import dataclasses

import pytest
from tests.scenarios.world import World, gang, inventory

HOUR = 3600.0


def running() -> World:
    world = World(hosts=2)
    world.submit("a", gang(1))
    world.run("a")
    return world


def test_a_drain_begins_at_its_time_and_ends_at_its_time() -> None:
    world = running()
    assert world.maintain("host-0", 300, 300 + HOUR) == [
        "host-0 maintenanceplanned",
        "a hears of the maintenance of host-0",
        "> reply host-0",
    ]
    assert world.wait(299, beating=["host-0", "host-1"]) == []
    told = world.wait(2, beating=["host-0", "host-1"])
    assert told[:2] == ["host-0 maintenancebegan", "host-0 draining"]
    told += world.wait(1, beating=["host-0", "host-1"])
    assert "a leaves to RETRY: DRAINED of host host-0, not on host-0, HOST pays" in told or any(
        line.startswith("a leaves to RETRY: DRAINED") for line in told
    )
    world.exit("a", 0, "STOPPED:15")
    assert "a placed g2 on host-1" in world.report("a", 0, "EMPTY")
    told = world.wait(HOUR, beating=["host-0", "host-1"])
    assert told[-2:] == ["host-0 maintenanceended", "host-0 uncordoned"]
    assert world.cluster.hosts["host-0"].maintenance is None


def test_a_job_that_has_ended_hears_of_no_drain_though_its_share_is_not_proven_empty() -> None:
    world = running()
    world.cancel("a")
    world.hang_up("host-0")
    world.wait(120, beating=["host-1"])
    assert world.cluster.jobs["a"].terminal and world.cluster.hosts["host-0"].allocations
    assert world.maintain("host-0", 300, 600) == ["host-0 maintenanceplanned", "> reply host-0"]


def test_a_cordon_for_a_time_leaves_work_where_it_is() -> None:
    world = running()
    told = world.maintain("host-0", None, 600, drain=False)
    assert told == ["host-0 maintenanceplanned", "host-0 maintenancebegan", "host-0 cordoned", "> reply host-0"]
    assert world.cluster.hosts["host-0"].cordoned_by == "ann"
    told = world.wait(700, beating=["host-0", "host-1"])
    assert told == ["host-0 maintenanceended", "host-0 uncordoned"]


@pytest.mark.parametrize("unwell", ["silent", "gpu", "cordoned"])
def test_a_host_that_is_not_well_afterwards_takes_no_work(unwell: str) -> None:
    world = World(hosts=2)
    if unwell == "cordoned":
        world.cordon("host-0", "fan")
    world.maintain("host-0", None, 600)
    if unwell == "silent":
        world.hang_up("host-0")
    if unwell == "gpu":
        good = inventory(name="host-0")
        bad = dataclasses.replace(good.gpus[2], problem="fell off the bus")
        world.beat("host-0", dataclasses.replace(good, gpus=(*good.gpus[:2], bad, good.gpus[3])))
    beating = ["host-1"] if unwell == "silent" else ["host-0", "host-1"]
    told = world.wait(601, beating=beating)
    assert "host-0 maintenanceended" in told and "host-0 uncordoned" not in told
    host = world.cluster.hosts["host-0"]
    assert host.cordoned and host.maintenance is None


@pytest.mark.parametrize("drain", [True, False])
def test_a_host_that_is_cordoned_in_its_maintenance_stays_so_afterwards(drain: bool) -> None:
    world = World(hosts=2)
    world.maintain("host-0", None, 600, drain=drain)
    world.maintain("host-1", None, 600, drain=drain)
    world.wait(60, beating=["host-0", "host-1"])
    world.cordon("host-0", "bad DIMM")
    world.drain("host-1", 0.0)
    world.wait(601, beating=["host-0", "host-1"])
    host, other = world.cluster.hosts["host-0"], world.cluster.hosts["host-1"]
    assert (host.maintenance, host.cordoned, host.cordon_reason) == (None, True, "bad DIMM")
    assert "host-0: maintenance is over; it stays cordoned: ann has cordoned it since (bad DIMM)" in world.sentences
    assert not other.cordoned, "a drain only says otherwise what becomes of its work"


def test_maintenance_that_is_called_off_leaves_a_cordon_since_as_it_is() -> None:
    world = World(hosts=1)
    world.maintain("host-0", None, 600)
    world.wait(60, beating=["host-0"])
    world.cordon("host-0", "bad DIMM")
    assert world.call_off("host-0") == ["host-0 maintenanceended", "> reply host-0"]
    assert world.cluster.hosts["host-0"].cordon_reason == "bad DIMM"


def test_a_host_that_is_found_unfit_in_a_maintenance_without_a_drain_takes_no_work_afterwards() -> None:
    world = running()
    world.maintain("host-0", None, 600, drain=False)
    world.exit("a", 0, 1)
    world.report("a", 0, "CANNOT_PREPARE", message="the disk is full", host_fault=True)
    world.wait(700, beating=["host-0", "host-1"])
    host = world.cluster.hosts["host-0"]
    assert (host.maintenance, host.cordoned_by, host.cordon_reason) == (None, "holdfast", "a: the disk is full")


def test_times_that_make_no_sense_and_windows_that_overlap_are_refused() -> None:
    world = World(hosts=1)
    assert world.maintain("host-0", -120, 600) == ["> refuse INVALID_INPUT"]
    assert world.maintain("host-0", 600, 600) == ["> refuse INVALID_INPUT"]
    assert world.maintain("host-0", None, -5) == ["> refuse INVALID_INPUT"]
    assert world.maintain("host-9", None, 5) == ["> refuse NOT_FOUND"]
    assert world.call_off("host-0") == ["> refuse WRONG_STATE"]
    world.maintain("host-0", 600)
    assert world.maintain("host-0", 6000) == ["> refuse WRONG_STATE"]
    assert world.call_off("host-0") == ["host-0 maintenanceended", "> reply host-0"]
    assert world.maintain("host-0", 6000)[0] == "host-0 maintenanceplanned"


def test_it_survives_a_restart_and_a_window_that_passed_meanwhile_is_over() -> None:
    world = World(hosts=2)
    world.maintain("host-0", 300, 900)
    world.maintain("host-1", 300, 7200)
    world.restart_controller(down_s=1000)
    for name in ("host-0", "host-1"):
        world.join(name)
    told = world.wait(60, beating=["host-0", "host-1"])
    assert [line for line in told if line.startswith("host-0")] == ["host-0 maintenanceended"]
    assert "host-1 maintenancebegan" in told and not world.cluster.hosts["host-0"].cordoned


def test_the_wall_clock_decides_though_it_is_set() -> None:
    world = World(hosts=1)
    world.maintain("host-0", 10 * HOUR)
    world.jumped = 10 * HOUR
    assert "host-0 maintenancebegan" in world.wait(61, beating=["host-0"])
    world.uncordon("host-0")
    assert world.cluster.hosts["host-0"].maintenance is None, "who uncordons ends it"
    world.maintain("host-0", 100)
    world.jumped -= HOUR
    assert world.wait(120, beating=["host-0"]) == ["clock leapt by -3600 s"]
    assert "host-0 maintenancebegan" in world.wait(HOUR, beating=["host-0"])
