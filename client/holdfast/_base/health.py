"""A host's health: how much a finding matters, and what active checks measure."""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass


class Health(enum.Enum):
    """Classes of findings, the worst first."""

    FAIL = "FAIL"
    """Broken: no new work before the host has booted, or an admin has uncordoned it."""
    CORDON = "CORDON"
    """No new work while it stands; it ends by itself."""
    DEGRADED = "DEGRADED"
    """Work runs, though slower or with less margin."""
    INFORM = "INFORM"
    """Worth knowing; admins are not notified."""

    @property
    def keeps_work_away(self) -> bool:
        """Whether a host with such a finding is to get no new work."""
        return self in (Health.FAIL, Health.CORDON)


@dataclass(frozen=True)
class Figure:
    """A rate that checks measure; more is better. ``margin``: part of the usual value by which hosts always differ."""

    unit: str
    margin: float
    what: str


FIGURES = {
    "cpu.hash": Figure("MB/s", 0.2, "all cores together hash"),
    "memory.copy": Figure("GB/s", 0.2, "one core copies memory at"),
    "disk.write": Figure("MB/s", 0.5, "the disk of the workers' directories takes"),
    "gpu.matmul": Figure("TFLOP/s", 0.05, "its slowest GPU multiplies matrices at"),
    "gpu.memory": Figure("GB/s", 0.05, "its slowest GPU copies its memory at"),
    "gpu.to_device": Figure("GB/s", 0.1, "its slowest GPU is written to at"),
    "gpu.from_device": Figure("GB/s", 0.1, "its slowest GPU is read from at"),
    "gpu.all_reduce": Figure("GB/s", 0.1, "its GPUs all-reduce at"),
    "net.tcp": Figure("GB/s", 0.3, "a TCP connection to another host carries"),
    "net.all_reduce": Figure("GB/s", 0.1, "its GPUs and those of another host all-reduce at"),
}
"""Margins: 5 % is what SuperBench (ATC'24) takes for a GPU's defect; those of shared parts are our choice."""


REASONS = {
    "ASKED": "an admin asked",
    "REPEAT": "it was slower than others",
    "RETURNED": "it has returned",
    "JOINED": "it is new",
    "SUSPECTED": "it was under suspicion",
    "ROUTINE": "its last check was long ago",
}
"""Why a host is measured, in words."""


def shown(value: float) -> str:
    """A figure as people read it: three digits, and all of a larger whole number."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
