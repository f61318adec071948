"""Xids in a real log device's reads, with the real binding of NVML and a scripted driver."""

from __future__ import annotations

import pytest
from tests.integration.agent.health.test_hardware import (
    LOADED,
    NOISE,
    XID_79,
    XID_95,
    Clock,
    Log,
    looks,
)
from tests.integration.agent.health.test_hardware import clock as clock
from tests.integration.agent.health.test_hardware import driven as driven
from tests.integration.agent.health.test_hardware import log as log

from holdfast_agent.core.gpu.signals import Xid
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.health import kmsg
from holdfast_agent.shell.health.watch import HealthWatch

NVLINK = b"3,%d,1,-;NVRM: Xid (PCI:0000:17:00): 149, NETIR_LINK_DOWN {} XC0 i0 Link 08 (0x004505c6 0x00000000)"


def faults(gpus: GpuWatch) -> list[list[tuple[str, int]]]:
    return [[(fault.cause, fault.count) for fault in gpu.faults] for gpu in gpus.inventory().gpus]


@pytest.mark.require("cc")
async def test_xids_in_the_log_make_a_gpu_faulty_and_those_from_before_only_if_a_reboot_is_needed(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, log: Log
) -> None:
    health, gpus = driven
    log.say(XID_95, XID_79)
    await looks(health, clock)
    assert faults(gpus) == [[("Xid 79 (fallen off the bus)", 1)], []]
    log.say(XID_95, XID_79)
    await looks(health, clock)
    assert faults(gpus) == [[("Xid 79 (fallen off the bus)", 1), ("Xid 95 (uncontained memory error)", 1)], []]


@pytest.mark.require("cc")
async def test_an_error_of_nvlink_keeps_work_off_a_gpu_where_the_log_calls_it_fatal(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, log: Log
) -> None:
    """NVML tells the number alone, and the same one is a link's passing trouble or its end."""
    health, gpus = driven
    await looks(health, clock)
    log.say(NVLINK.replace(b"{}", b"Nonfatal"))
    gpus.hear([Xid(gpus.known[0].uuid, 149)])
    await looks(health, clock)
    assert faults(gpus) == [[], []]
    log.say(NVLINK.replace(b"{}", b"Fatal"))
    await looks(health, clock)
    assert faults(gpus) == [[("Xid 149 (NVLink error)", 1)], []]


@pytest.mark.require("cc")
async def test_a_driver_that_was_loaded_later_in_a_long_log_has_found_its_gpus_again(
    driven: tuple[HealthWatch, GpuWatch], clock: Clock, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    health, gpus = driven
    monkeypatch.setattr(kmsg, "MOST_RECORDS", 70)
    log.say(*[XID_79] * 69, LOADED, *[NOISE] * 70, XID_79, *[NOISE] * 69, LOADED)
    await looks(health, clock, 4)
    assert faults(gpus) == [[], []]
    log.say(XID_79)
    await looks(health, clock)
    assert faults(gpus) == [[("Xid 79 (fallen off the bus)", 1)], []]
