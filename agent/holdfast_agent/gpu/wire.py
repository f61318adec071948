"""What the GPU helper answers: one JSON object a line. Types only; nothing here exists at run time."""

from __future__ import annotations

from typing import TypedDict


class WireGpu(TypedDict):
    """See ``core.gpus.Gpu``."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    problem: str
    bus_id: str
    parent: str


class WireSlot(TypedDict):
    """See ``core.gpus.Unidentified``."""

    index: int
    problem: str


class WireInventory(TypedDict):
    """See ``core.gpus.Reading``."""

    gpus: list[WireGpu]
    unidentified: list[WireSlot]
    physical: list[str]
    note: str


class WireUsage(TypedDict):
    """See ``core.gpus.GpuUsage``."""

    uuid: str
    used_bytes: int | None
    pids: list[int] | None
    problem: str


class WireSignal(TypedDict):
    """See ``core.gpu_signals.GpuSignals``."""

    uuid: str
    energy_mj: int | None
    power_mw: int | None
    util_pct: float | None
    memory_util_pct: float | None
    pcie_bytes: int | None
    nvlink_bytes: int | None
    sm_pct: float | None
    lost: bool
    problem: str


class WireDriver(TypedDict):
    """See ``core.doctor.gpus.DriverFacts``."""

    version: str
    persistence: list[tuple[str, bool]]


class WireXid(TypedDict):
    """See ``core.gpu_signals.Xid``."""

    uuid: str
    number: int


class WireSignals(TypedDict):
    """See ``core.gpu_signals.Signals``."""

    gpus: list[WireSignal]
    xids: list[WireXid]
