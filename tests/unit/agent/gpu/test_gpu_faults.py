"""core.gpu.faults: what makes a GPU faulty, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast._base.xids import TABLE, Repair, XidAction, repair_of
from holdfast_agent.core.gpu import faults as gf
from holdfast_agent.core.gpu.faults import GpuFaults
from holdfast_agent.core.gpu.signals import Xid
from holdfast_agent.core.model.gpus import LOST, RESET_REQUIRED, VANISHED, Condition, Gpu, Reading

A = Gpu("GPU-a", 0, "H100", 80, bus_id="00000000:17:00.0")
B = Gpu("GPU-b", 1, "H100", 80, bus_id="00000000:18:00.0")
WELL = Reading((A, B), conditions=(Condition("GPU-a", recovery=0), Condition("GPU-b", recovery=0)))
SAME = {"GPU-a": "1/2", "GPU-b": "1/3"}


def known() -> GpuFaults:
    """Two GPUs that are well."""
    found = GpuFaults()
    assert not found.take((A, B), WELL, SAME, 0.0)
    return found


def causes(found: GpuFaults, uuid: str = "GPU-a") -> list[str]:
    return [fault.cause for fault in found.of(uuid)]


@pytest.mark.parametrize("number", sorted(TABLE))
def test_each_xid_that_asks_for_a_repair_makes_its_gpu_faulty_and_no_other_does(number: int) -> None:
    found = known()
    condemns = TABLE[number] is XidAction.REPLACE
    assert found.hear([Xid("GPU-a", number)], 5.0) is condemns
    assert bool(found.of("GPU-a")) is condemns
    assert not found.of("GPU-b")
    assert (repair_of(number) is not None) is condemns


def test_only_what_the_machine_has_to_repair_asks_for_a_reboot() -> None:
    found = known()
    found.hear([Xid("GPU-a", 79), Xid("GPU-b", 95)], 5.0)
    assert [fault.repair for fault in (*found.of("GPU-a"), *found.of("GPU-b"))] == [Repair.REBOOT, Repair.RESET]


def test_fault_outlasts_its_signs() -> None:
    found = known()
    found.hear([Xid("GPU-a", 48)], 5.0)
    for now in range(10, 100_000, 10_000):
        assert not found.take((A, B), WELL, SAME, now)
    # The driver has never asked for a repair, so that it asks for none shows nothing.
    assert causes(found) == ["Xid 48 (double-bit memory error)"]


def test_repeated_xid_counts_once_a_minute() -> None:
    found = known()
    assert [found.hear([Xid("GPU-a", 95)], at) for at in (5.0, 6.0, 64.0, 65.0, 66.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert [fault.count for fault in found.of("GPU-a")] == [2]


@pytest.mark.parametrize(
    ("problem", "cause", "repair"),
    [
        (LOST, gf.LOST_FAULT, Repair.REBOOT),
        (VANISHED, gf.VANISHED_FAULT, Repair.REBOOT),
        (RESET_REQUIRED, gf.RESET_FAULT, Repair.RESET),
    ],
)
def test_gpu_that_is_lost_or_needs_a_reset_is_faulty(problem: str, cause: str, repair: Repair) -> None:
    found = known()
    assert found.take((replace(A, problem=problem), B), Reading((B,)), SAME, 5.0)
    assert [(fault.cause, fault.repair) for fault in found.of("GPU-a")] == [(cause, repair)]


def test_other_problems_of_reading_are_no_fault() -> None:
    found = known()
    assert not found.take((replace(A, problem="no permission to use the GPU"), B), WELL, SAME, 5.0)


@pytest.mark.parametrize(
    ("condition", "cause", "repair"),
    [
        (Condition("GPU-a", remap_failed=True), gf.FAILED_FAULT, Repair.RESET),
        (Condition("GPU-a", remap_pending=True), gf.PENDING_FAULT, Repair.RESET),
        (Condition("GPU-a", uncorrected=3), gf.MEMORY_FAULT, Repair.RESET),
        (Condition("GPU-a", recovery=1), gf.RESET_FAULT, Repair.RESET),
        (Condition("GPU-a", recovery=2), gf.REBOOT_FAULT, Repair.REBOOT),
    ],
)
def test_what_the_driver_says_of_memory_and_resets_is_a_fault(
    condition: Condition, cause: str, repair: Repair
) -> None:
    found = known()
    assert found.take((A, B), Reading((A, B), conditions=(condition,)), SAME, 5.0)
    assert [(fault.cause, fault.repair) for fault in found.of("GPU-a")] == [(cause, repair)]
    assert not found.take((A, B), Reading((A, B), conditions=(condition,)), SAME, 15.0)


def test_driver_loaded_anew_or_device_found_again_is_the_evidence_of_a_repair() -> None:
    for again in ("9/2", "1/9"):
        found = known()
        found.hear([Xid("GPU-a", 95), Xid("GPU-b", 95)], 5.0)
        assert found.take((A, B), WELL, SAME | {"GPU-a": again}, 100.0)
        assert (causes(found), found.repaired) == ([], {"GPU-a": "the driver has enumerated it again"})
        assert causes(found, "GPU-b")


def test_device_that_left_the_bus_is_no_evidence_before_it_is_back() -> None:
    found = known()
    found.hear([Xid("GPU-a", 79)], 5.0)
    found.take((A, B), WELL, {"GPU-a": "", "GPU-b": "1/3"}, 10.0)
    assert causes(found)
    found.take((A, B), WELL, {"GPU-a": "1/7", "GPU-b": "1/3"}, 20.0)
    assert not causes(found)


def test_driver_that_asked_for_a_reset_and_no_longer_does_clears_what_led_to_it() -> None:
    found = known()
    found.hear([Xid("GPU-a", 95)], 5.0)
    asks = Reading((A, B), conditions=(Condition("GPU-a", recovery=1),))
    found.take((A, B), asks, SAME, 6.0)
    assert len(causes(found)) == 2
    assert found.take((A, B), WELL, SAME, 60.0)
    assert (causes(found), found.repaired) == ([], {"GPU-a": "the driver no longer asks for a repair"})


def test_gpu_that_vanished_is_well_once_it_is_listed_again_and_an_xid_stays() -> None:
    found = known()
    found.hear([Xid("GPU-a", 95)], 5.0)
    found.take((replace(A, problem=VANISHED), B), Reading((B,)), SAME, 6.0)
    assert found.take((A, B), WELL, SAME, 16.0)
    assert causes(found) == ["Xid 95 (uncontained memory error)"]


def test_pending_row_remapping_is_over_when_it_is_done() -> None:
    found = known()
    found.take((A, B), Reading((A, B), conditions=(Condition("GPU-a", remap_pending=True),)), SAME, 5.0)
    found.take((A, B), WELL, SAME, 15.0)
    assert (causes(found), found.repaired) == ([], {"GPU-a": "no row remapping is pending any more"})


def test_fault_after_a_repair_is_a_new_one() -> None:
    found = known()
    found.hear([Xid("GPU-a", 95)], 5.0)
    found.take((A, B), WELL, SAME | {"GPU-a": "9/2"}, 100.0)
    assert found.hear([Xid("GPU-a", 95)], 101.0)
    assert ([fault.since for fault in found.of("GPU-a")], found.repaired) == ([101.0], {})


def test_xid_heard_before_the_first_reading_belongs_to_the_gpu_that_it_then_finds() -> None:
    found = GpuFaults()
    found.hear([Xid("GPU-a", 95)], 5.0)
    found.take((A, B), WELL, SAME, 6.0)
    assert causes(found)
    assert (found.faulty["GPU-a"].gpu, found.faulty["GPU-a"].enumeration) == (A, "1/2")


# -- a GPU that is divided


MIG_1 = Gpu("MIG-1", 1, "H100 MIG 3g.40gb", 40, bus_id=B.bus_id, parent="GPU-b")
MIG_2 = replace(MIG_1, uuid="MIG-2")


def look(found: GpuFaults, *gpus: Gpu, enumeration: str = "1/3", now: float = 20.0) -> bool:
    """Take a reading of these."""
    return found.take(gpus, Reading(gpus), {gpu.uuid: enumeration for gpu in gpus}, now)


def after(*gpus: Gpu, restarted: bool = False) -> GpuFaults:
    """The GPUs have been read, each had an Xid 48, and the agent may have been restarted since."""
    found = GpuFaults()
    look(found, *gpus, now=0.0)
    found.hear([Xid(gpu.uuid, 48) for gpu in gpus], 5.0)
    return GpuFaults(dict(found.faulty)) if restarted else found


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("before", [(B,), (MIG_1,), (MIG_1, MIG_2)])
@pytest.mark.parametrize("afterwards", [(B,), (MIG_1, replace(MIG_1, uuid="MIG-3"))])
def test_dividing_a_faulty_gpu_in_another_way_is_no_repair(
    before: tuple[Gpu, ...], afterwards: tuple[Gpu, ...], restarted: bool
) -> None:
    found = after(*before, restarted=restarted)
    look(found, *afterwards)
    assert {gpu.uuid: causes(found, gpu.uuid) for gpu in afterwards} == {
        gpu.uuid: ["Xid 48 (double-bit memory error)"] for gpu in afterwards
    }
    assert found.faulty.keys() == {gpu.uuid for gpu in afterwards}, "none is kept of what is no more"
    assert not look(found, *afterwards)
    look(found, *afterwards, enumeration="1/4")
    assert not found.faulty and found.repaired.keys() == {gpu.uuid for gpu in afterwards}


def test_a_gpu_that_was_repaired_and_divided_between_two_looks_is_well() -> None:
    found = after(B)
    look(found, MIG_1, MIG_2, enumeration="1/4")
    assert not found.faulty


def test_another_gpu_that_is_divided_has_no_part_in_a_fault() -> None:
    found = after(A)
    look(found, A, MIG_1)
    assert found.faulty.keys() == {"GPU-a"}
