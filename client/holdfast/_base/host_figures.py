"""Figures that active checks take of hosts."""

from __future__ import annotations

from dataclasses import dataclass


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
    """A figure as people read it: three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
