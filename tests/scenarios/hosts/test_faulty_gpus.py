"""A GPU with a fault: out of service between jobs and during them, until it is repaired or an admin says that it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.training import hanging_gang, training
from tests.scenarios.world import World, gang, inventory

from holdfast._base.xids import Repair
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import GpuFault, Inventory
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason
from holdfast_controller.core.views.overview import HostState, host_state
from holdfast_controller.shell.convert.host_to_proto import host_to_proto

XID_95 = GpuFault("Xid 95 (uncontained memory error)", Repair.RESET, Wall(1.0))
XID_79 = GpuFault("Xid 79 (fallen off the bus)", Repair.REBOOT, Wall(1.0))


def faulty(host: str, *faults: GpuFault, index: int = 1, repaired_by: str = "") -> Inventory:
    """The inventory of a host of four GPUs, one with these faults."""
    well = inventory(name=host)
    gpus = [replace(g, faults=faults, repaired_by=repaired_by) if g.index == index else g for g in well.gpus]
    return replace(well, gpus=tuple(gpus))


def reason(world: World, job: str) -> str:
    return wait_reason(world.cluster, world.cluster.jobs[job], schedulable_hosts(world.cluster))


def test_idle_gpu_with_a_fault_gets_no_work_and_the_others_of_its_host_do() -> None:
    world = World(hosts=1)
    assert world.beat("host-0", faulty("host-0", XID_95)) == [
        "host-0 joined",
        "host-0 GPU-host-0-1 condemned: Xid 95 (uncontained memory error)",
    ]
    world.submit("three", gang(1, gpus=3))
    world.submit("one", gang(1, gpus=1))
    (place,) = world.cluster.jobs["three"].places
    assert "GPU-host-0-1" not in place.gpus
    assert reason(world, "one") == (
        "needs 1 GPU on one host (0 free on the best);"
        " out of service: host-0 GPU 1: Xid 95 (uncontained memory error); needs a reset"
    )


def test_fault_that_a_reboot_repairs_keeps_all_new_work_off_the_host() -> None:
    world = World(hosts=1)
    world.beat("host-0", faulty("host-0", XID_79))
    host = world.cluster.hosts["host-0"]
    assert host_state(world.cluster, host) is HostState.CORDONED
    shown = host_to_proto(world.cluster, host, ())
    assert (shown.cordoned, shown.cordoned_by, shown.cordoned_since.seconds) == (True, "holdfast", 1)
    assert shown.cordon_reason == "GPU 1: Xid 79 (fallen off the bus); needs a reboot of its host"
    world.submit("a", gang(1, gpus=1))
    assert reason(world, "a") == (
        "no host takes work at present;"
        " out of service: host-0 GPU 1: Xid 79 (fallen off the bus); needs a reboot of its host"
    )
    world.join("host-1")
    assert world.cluster.jobs["a"].places[0].host == "host-1"


def test_work_that_runs_beside_the_faulty_gpu_runs_on() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1, gpus=1))
    world.run("a")
    world.beat("host-0", faulty("host-0", XID_79))
    assert world.wait(60, beating=["host-0"]) == []
    assert world.state("a").name == "RUNNING"


def test_fault_survives_the_controller_and_is_over_with_the_boot_that_repairs_it() -> None:
    world = World(hosts=1)
    world.beat("host-0", faulty("host-0", XID_79))
    world.restart_controller()
    world.submit("a", gang(1, gpus=1))
    assert "host-0 joined" not in world.join("host-0", faulty("host-0", XID_79))
    assert not world.cluster.jobs["a"].places
    told = world.join("host-0", inventory(name="host-0"), boot="boot-2")
    assert "host-0 GPU-host-0-1 cleared by holdfast: its host has booted" in told
    assert world.cluster.jobs["a"].places[0].host == "host-0"
    assert (world.cluster.hosts["host-0"].condemned, world.cluster.hosts["host-0"].cleared) == ({}, {})


def test_fault_that_stands_after_the_boot_condemns_again() -> None:
    world = World(hosts=1)
    failed = replace(XID_95, cause="row remapping failed")
    world.beat("host-0", faulty("host-0", XID_79, failed))
    told = world.join("host-0", faulty("host-0", replace(failed, since=Wall(90.0))), boot="boot-2")
    assert "host-0 GPU-host-0-1 cleared by holdfast: its host has booted" in told
    host = world.cluster.hosts["host-0"]
    assert [fault.cause for fault in host.condemned["GPU-host-0-1"].faults] == ["row remapping failed"]
    assert host.takes_work


def test_repair_that_its_agent_saw_is_named() -> None:
    world = World(hosts=1)
    world.beat("host-0", faulty("host-0", XID_95))
    told = world.beat("host-0", faulty("host-0", repaired_by="the driver has enumerated it again"))
    assert "host-0 GPU-host-0-1 cleared by holdfast: the driver has enumerated it again" in told
    assert message_of(world.log[-1], None) == (
        "host-0 GPU 1: Xid 95 (uncontained memory error) is over: the driver has enumerated it again"
    )


@pytest.mark.parametrize("name", ["1", "GPU-host-0-1"])
def test_admin_puts_a_gpu_back_and_a_new_occurrence_takes_it_out_again(name: str) -> None:
    world = World(hosts=1)
    world.beat("host-0", faulty("host-0", XID_79))
    world.submit("a", gang(1, gpus=4))
    told = world.uncordon("host-0", name)
    assert told[0] == "host-0 GPU-host-0-1 cleared by ann: put back into service"
    assert "a placed g1 on host-0" in told
    # Still reported, also after restarts, and still cleared.
    world.restart_controller()
    assert not any("condemned" in line for line in world.join("host-0", faulty("host-0", XID_79)))
    # It happens again.
    told = world.beat("host-0", faulty("host-0", replace(XID_79, count=2)))
    assert "host-0 GPU-host-0-1 condemned: Xid 79 (fallen off the bus)" in told
    assert world.cluster.hosts["host-0"].cleared == {"GPU-host-0-1": {}}


def test_uncordoning_the_host_leaves_its_faulty_gpus_out_of_service() -> None:
    world = World(hosts=1)
    world.beat("host-0", faulty("host-0", XID_79))
    world.cordon("host-0")
    world.uncordon("host-0")
    assert not world.cluster.hosts["host-0"].takes_work
    assert world.uncordon("host-0", "7") == ["> refuse INVALID_INPUT"]


def test_gang_on_a_gpu_that_is_condemned_is_not_relaunched_there_whatever_ended_it() -> None:
    program = training(workers=2, hosts=3)
    world = program.world
    world.beat("host-1", faulty("host-1", XID_95))
    told = world.exit("a", 0, 1)  # the other rank
    assert told[1].startswith("a leaves to RETRY: NONZERO_EXIT of workerpool0-0 rank 0, keeps w0, not on host-1")
    world.exit("a", 1, "STOPPED:15")
    world.empty("a")
    assert [place.host for place in world.cluster.jobs["a"].places] == ["host-0", "host-2"]


def test_rank_that_dies_of_a_fault_moves_and_only_the_gpu_is_out_of_service() -> None:
    program = training(workers=2, hosts=3)
    world = program.world
    world.beat("host-1", faulty("host-1", XID_95))
    told = world.exit("a", 1, 1)
    assert told[1] == (
        "a leaves to RETRY: HARDWARE_FAULT of workerpool1-0 rank 1, keeps w0, not on host-1, HOST pays"
    )
    assert not world.cluster.hosts["host-1"].cordoned


def test_gang_that_hangs_on_a_condemned_gpu_moves_though_its_agent_has_forgotten_the_xid() -> None:
    program = training(workers=2, hosts=3)
    world = program.world
    world.beat("host-1", faulty("host-1", XID_79))
    told = program.stands_still(900)
    assert any(line.startswith("a leaves to RETRY: HANG") and "not on host-1" in line for line in told), told
    assert "host-1 cordoned" not in told  # it is kept from work by its GPU, until the repair


def test_restart_that_a_user_asks_for_goes_elsewhere_or_waits_with_the_reason() -> None:
    world = World(hosts=1)
    world.submit("a", hanging_gang(1))
    world.run("a")
    world.beat("host-0", faulty("host-0", XID_95))
    world.restart("a")
    world.exit("a", 0, "STOPPED:15")
    world.empty("a")
    assert world.state("a").name == "QUEUED"
    assert "out of service: host-0 GPU 1" in reason(world, "a")
    assert "a placed g2 on host-0" in world.uncordon("host-0", "1")
