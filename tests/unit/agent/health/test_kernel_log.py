"""The kernel's log: which records say something of NVIDIA's hardware, and who may say it."""

from __future__ import annotations

import pytest

from holdfast_agent.core.health.kernel_log import DriverLoaded, GpuError, SwitchError, parse, place, unrepaired

LOADED = b"4,1,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15"
OFF_BUS = b"3,412,99,-;NVRM: Xid (PCI:0000:17:00): 79, pid=4711, name=python, GPU has fallen off the bus."
NVLINK = b"3,1,1,-;NVRM: Xid (PCI:0018:01:00): %b, %b i0 Link 03 (0x00086226 0x00000001 0x00000000)"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (OFF_BUS, GpuError("0000:17:00", 79)),
        (b"3,1,1,-;NVRM: Xid (0000:C1:00): 63, Row Remapper: New row marked", GpuError("0000:c1:00", 63)),
        (b"3,1,1,-;NVRM: Xid (PCI:0000:17:00.0): 95\n SUBSYSTEM=pci", GpuError("0000:17:00", 95)),
        (b"3,1,1,-;NVRM: Xid (PCI:0000:17:00 GPU-I:05): 119, pid=1, name=a", GpuError("0000:17:00", 119)),
        (b"3,1,1,-;NVRM: Xid (PCI:0000:17:00 GPU-I:05 GPU-CI:00): 95, pid=1", GpuError("0000:17:00", 95)),
        (
            b"3,1,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Fatal, Link 46 MC TS crumbstore",
            SwitchError("0000:c1:00.0", 28006),
        ),
        (b"3,1,1,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, Link 46 LTSSM Fault", None),
        (NVLINK % (b"149", b"NETIR_LINK_DOWN Fatal XC0"), GpuError("0018:01:00", 149, fatal=True)),
        (NVLINK % (b"145", b"RLW_REMAP Nonfatal XC0"), GpuError("0018:01:00", 145)),
        (NVLINK % (b"149", b"NETIR_BER_EVENT Fatally XC0"), GpuError("0018:01:00", 149)),
        (LOADED, DriverLoaded()),
        (b"6,1,1,-;eth0: link is up", None),
        (b"3,1,1,-;my program says NVRM: Xid (PCI:0000:17:00): 79", None),
        (b"3,1,1,-;NVRM: Xid (PCI:0000:17:00): 99999999", None),
        (b"NVRM: Xid (PCI:0000:17:00): 79", None),
        (b"", None),
        (b"\xff,;NVRM: Xid (PCI:0000:17:00): 79", None),
    ],
)
def test_records(record: bytes, said: object) -> None:
    assert parse(record) == said


def test_what_a_program_writes_to_the_log_condemns_no_gpu() -> None:
    assert parse(OFF_BUS.replace(b"3,", b"11,", 1)) is None  # facility 1, which the kernel gives to programs


def test_of_the_time_before_the_agent_only_what_a_reboot_repairs_still_matters() -> None:
    off, memory = GpuError("0000:17:00", 79), GpuError("0000:17:00", 95)
    assert unrepaired([off, memory]) == [off]
    assert unrepaired([off, DriverLoaded(), memory]) == []
    assert unrepaired([DriverLoaded(), off, SwitchError("0000:c1:00.0", 1)]) == [off]


def test_a_place_on_the_bus_is_written_in_one_way() -> None:
    assert place("00000000:C1:00.0") == place("0000:c1:00") == "0000:c1:00"
