"""Readings of what the driver says of each GPU's health.

Links are slower while a GPU has nothing to do, so a slow one counts only of a busy GPU; that it is well counts always.
How many NVLinks a GPU should have is what the most of its kind on this host have. A card without any is no sign of
a fault: bridges join two cards, and others beside them have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from holdfast._base.dataclass import dataclass
from holdfast_agent.core.health.engine import Reading, counted
from holdfast_agent.core.model.gpus import Gpu

BUSY_PCT = 10
FABRIC_DONE = 3
"""NVML's state of a GPU that has joined its fabric; 0 is that of GPUs without one."""
_ON_BOARD = "SXM"
"""In the names of models that are joined by their board."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """One GPU at one time; None where the driver has no such figure. Counters are those since its driver was loaded."""

    uuid: str
    util_pct: int | None = None
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    pcie_gen: int | None = None
    pcie_gen_most: int | None = None
    # Memory errors that were corrected.
    corrected: int | None = None
    # Rows that were replaced because of errors beyond correction.
    remapped: int | None = None
    # The threshold of its SRAM's errors is exceeded.
    sram: bool | None = None
    links_up: int | None = None
    link_recoveries: int | None = None
    # NVML's state of the GPU's fabric.
    fabric: int | None = None
    # For how long its hardware has slowed it down.
    slowed_s: float | None = None
    # How far it is from being slowed down for heat.
    margin_c: int | None = None
    memory_c: int | None = None


def readings(
    found: Iterable[GpuHealth], gpus: Mapping[str, Gpu], enumerations: Mapping[str, str]
) -> Iterator[Reading]:
    """All that can be said of these GPUs; ``gpus`` by UUID. Of a GPU that isn't in the inventory nothing is said."""
    known = [(health, gpus[health.uuid]) for health in found if health.uuid in gpus]
    links: dict[str, int] = {}
    for health, gpu in known:
        links[gpu.model] = max(links.get(gpu.model, 0), health.links_up or 0)
    for health, gpu in known:
        epoch = enumerations.get(gpu.uuid, "")
        for rule, value, saw in _figures(health, gpu.model, links[gpu.model]):
            yield Reading(rule, gpu.uuid, value, f"GPU {gpu.index}: {saw}", epoch)
        for rule, count, what in (
            ("gpu.slowed", health.slowed_s, f"s in which GPU {gpu.index} was slowed down by its hardware"),
            (
                "gpu.nvlink_errors",
                health.link_recoveries,
                f"time{{}} an NVLink of GPU {gpu.index} was trained again",
            ),
        ):
            if count is not None:
                yield counted(rule, gpu.uuid, count, what, epoch)


def _figures(health: GpuHealth, model: str, links: int) -> Iterator[tuple[str, float, str]]:
    busy = health.util_pct is not None and health.util_pct >= BUSY_PCT
    if health.pcie_width and health.pcie_width_most:
        slow = health.pcie_width < health.pcie_width_most
        if busy or not slow:
            saw = f"its link is x{health.pcie_width} of x{health.pcie_width_most}"
            yield "gpu.pcie_width", float(slow), saw
    if health.pcie_gen and health.pcie_gen_most:
        slow = health.pcie_gen < health.pcie_gen_most
        if busy or not slow:
            yield (
                "gpu.pcie_speed",
                float(slow),
                f"its link runs at PCIe {health.pcie_gen} of {health.pcie_gen_most}",
            )
    if health.corrected is not None:
        yield "gpu.corrected", float(health.corrected), f"{health.corrected} corrected memory errors"
    if health.remapped is not None:
        yield "gpu.remapped_rows", float(health.remapped), f"{health.remapped} memory rows replaced after errors"
    if health.sram is not None:
        yield "gpu.sram", float(health.sram), "too many uncorrectable errors of its SRAM"
    may_have_none = not health.fabric and _ON_BOARD not in model
    if health.links_up is not None and links and (health.links_up or not may_have_none):
        saw = f"{health.links_up} of {links} NVLinks are up"
        yield "gpu.nvlink", float(health.links_up < links), saw
    if health.fabric:
        saw = "it has not joined its NVLink fabric"
        yield "gpu.fabric", float(health.fabric != FABRIC_DONE), saw
    if health.margin_c is not None:
        saw = f"it is {-health.margin_c} °C above the temperature at which it is slowed down"
        yield "gpu.hot", float(health.margin_c <= 0), saw
    if health.memory_c is not None:
        yield "gpu.memory_hot", float(health.memory_c), f"its memory is at {health.memory_c} °C"
