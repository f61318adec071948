"""The words of NVIDIA's driver in the kernel's log: Xids of GPUs, and errors of switches (SXids).

A record of /dev/kmsg is ``PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT``. Only the kernel's own records count: to what a
program writes there the kernel gives another facility, so no container can condemn a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast._base.dataclass import dataclass
from holdfast._base.xids import Repair, repair_of

_KERNEL = 0
_LOADED = b"NVRM: loading NVIDIA"
_XID = re.compile(
    rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?"
    rb"(?: GPU-I:\d{1,3}(?: GPU-CI:\d{1,3})?)?\): (\d{1,4})\b"  # of a MIG instance: its GPU's all the same
    rb"(?:, \w{1,64} (Fatal)\b)?"
)
_SXID = re.compile(rb"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]{7,16})\): (\d{1,6}), Fatal\b")


@dataclass(frozen=True, slots=True)
class GpuError:
    """An Xid; ``bus`` is the GPU's place on the bus, such as 0000:17:00, in lower case."""

    bus: str
    xid: int
    fatal: bool = False
    """The driver calls it fatal, as it does of those of NVLink since Blackwell."""


@dataclass(frozen=True, slots=True)
class SwitchError:
    """A fatal error of the NVSwitch at this place on the bus."""

    bus: str
    sxid: int


@dataclass(frozen=True, slots=True)
class DriverLoaded:
    """The driver was loaded: it has found its GPUs again."""


Said = GpuError | SwitchError | DriverLoaded


def parse(record: bytes) -> Said | None:
    """The meaning of a record for NVIDIA's hardware; None for all others."""
    if b"Xid (" not in record and _LOADED not in record:
        return None
    header, _, text = record.partition(b";")
    priority = header.partition(b",")[0]
    if not priority.isdigit() or int(priority) >> 3 != _KERNEL:
        return None
    text = text.partition(b"\n")[0]
    if text.startswith(_LOADED):
        return DriverLoaded()
    if found := _XID.match(text):
        return GpuError(place(found[1].decode()), int(found[2]), fatal=found[3] is not None)
    if found := _SXID.match(text):
        return SwitchError(found[1].decode().lower(), int(found[2]))
    return None


def unrepaired(said: Iterable[Said]) -> list[GpuError]:
    """Errors from a time without an agent that still matter: of GPUs found since, those that only a reboot repairs.

    A reset leaves no trace in the log, so nothing else can be said of then.
    """
    left: list[GpuError] = []
    for each in said:
        if isinstance(each, DriverLoaded):
            left.clear()
        elif isinstance(each, GpuError) and repair_of(each.xid) is Repair.REBOOT:
            left.append(each)
    return left


def place(bus_id: str) -> str:
    """A bus id, as NVML or the kernel writes it, without the function: 00000000:17:00.0 is 0000:17:00."""
    domain, _, rest = bus_id.partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}".lower()
