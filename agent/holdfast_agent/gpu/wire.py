"""Answers of the GPU helper, one JSON object a line. Types only; nothing here exists at run time."""

from __future__ import annotations

from typing import TypedDict


class WireGpu(TypedDict):
    """A ``core.model.gpus.Gpu`` as JSON."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    problem: str
    bus_id: str
    parent: str


class WireSlot(TypedDict):
    """A ``core.model.gpus.Unidentified`` as JSON."""

    index: int
    problem: str


class WireCondition(TypedDict):
    """A ``core.model.gpus.Condition`` as JSON."""

    uuid: str
    remap_failed: bool
    remap_pending: bool
    uncorrected: int
    recovery: int | None


class WireInventory(TypedDict):
    """A ``core.model.gpus.Reading`` as JSON."""

    gpus: list[WireGpu]
    unidentified: list[WireSlot]
    physical: list[str]
    conditions: list[WireCondition]
    note: str


class WireUsage(TypedDict):
    """A ``core.model.gpus.GpuUsage`` as JSON."""

    uuid: str
    used_bytes: int | None
    pids: list[int] | None
    problem: str


class WireSignal(TypedDict):
    """A ``core.gpu.signals.GpuSignals`` as JSON."""

    uuid: str
    energy_mj: int | None
    power_mw: int | None
    util_pct: float | None
    memory_util_pct: float | None
    pcie_bytes: int | None
    nvlink_bytes: int | None
    sm_pct: float | None
    memory_used_bytes: int | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    throttle: int | None
    lost: bool
    problem: str


class WireDriver(TypedDict):
    """A ``core.doctor.gpus.DriverFacts`` as JSON."""

    version: str
    persistence: list[tuple[str, bool]]


class WireXid(TypedDict):
    """A ``core.gpu.signals.Xid`` as JSON; each reply carries those heard since the last one."""

    uuid: str
    number: int


class WireSignals(TypedDict):
    """A ``core.gpu.signals.Signals`` as JSON."""

    gpus: list[WireSignal]


class WireHealth(TypedDict):
    """A ``core.health.gpus.GpuHealth`` as JSON."""

    uuid: str
    util_pct: int | None
    pcie_width: int | None
    pcie_width_most: int | None
    pcie_gen: int | None
    pcie_gen_most: int | None
    corrected: int | None
    remapped: int | None
    sram: bool | None
    links_up: int | None
    link_recoveries: int | None
    fabric: int | None
    slowed_s: float | None
    margin_c: int | None
    memory_c: int | None
