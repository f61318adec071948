"""The GPUs that a host is known to have, and how a new reading changes them.

A reading is what the driver says now; the inventory is what the host has. The two differ when a GPU fails: a
driver may stop listing it, list it without saying which one it is, or list it and refuse every question. None
of these makes the inventory smaller, since a GPU that was there and is not readable now is a fault to report.
Only two things remove an entry: the GPU's division into MIG instances was changed while the GPU itself
answers, or a GPU that could not be identified reports its UUID.

A failed reading (``Blind``) is no reading: the inventory stays as it is, and the host reports why.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

from holdfast._base.dataclass import dataclass

VANISHED = "vanished"
LOST = "the GPU is lost: it has fallen off the bus or is otherwise inaccessible"
RESET_REQUIRED = "the GPU requires a reset"
"""The helper's words for two of NVML's errors."""
SIMULATED = "GPU-sim-"
"""Prefix of the UUIDs of a test cluster's simulated GPUs."""
_UNIDENTIFIED = "unidentified-"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that work can be placed on: a GPU, or one MIG instance of a divided GPU."""

    uuid: str
    # In PCI bus order, as CUDA counts with CUDA_DEVICE_ORDER=PCI_BUS_ID. MIG instances have their GPU's.
    index: int
    # Empty when it was never readable.
    model: str
    # 0 when the driver doesn't report it.
    memory_bytes: int
    # Empty when healthy.
    problem: str = ""
    # Such as 00000000:17:00.0.
    bus_id: str = ""
    # UUID of the GPU that a MIG instance is part of; empty for a whole GPU.
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Unidentified:
    """The driver counts a GPU here, but does not say which one it is."""

    index: int
    problem: str


@dataclass(frozen=True, slots=True)
class Condition:
    """Health of a device that answers, as the driver reports it."""

    uuid: str
    # Memory that failed could not be replaced by spare memory; or it will be at the next reset.
    remap_failed: bool = False
    remap_pending: bool = False
    # Memory errors beyond correction since the driver was loaded.
    uncorrected: int = 0
    # NVML's recovery action: 0 for none; None from drivers that don't say.
    recovery: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one query of the driver."""

    # A divided GPU is listed by its instances, and itself only while it has a problem.
    gpus: tuple[Gpu, ...] = ()
    unidentified: tuple[Unidentified, ...] = ()
    # UUIDs of all GPUs that answered without a problem, the divided ones too.
    physical: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    # Why there is nothing to read, where that is no fault ("no NVIDIA driver on this host").
    note: str = ""


@dataclass(frozen=True, slots=True)
class Blind:
    """The GPUs can't be read at present. Neither "healthy" nor "no GPUs"."""

    reason: str


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Memory and processes on one device at one moment. ``None`` where the driver has no such figure."""

    uuid: str
    used_bytes: int | None
    # Of processes with a compute context, in ascending order.
    pids: tuple[int, ...] | None
    # Empty, or why something could not be read.
    problem: str = ""


class ChangeKind(enum.Enum):
    """How a GPU changed between two readings."""

    FOUND = "found"
    FAILED = "failed"
    RECOVERED = "recovered"
    # Its division into MIG instances was changed.
    REPARTITIONED = "repartitioned"


@dataclass(frozen=True, slots=True)
class GpuChange:
    """One change; ``gpu`` as it is now, or as it was last where it is gone from the inventory."""

    kind: ChangeKind
    gpu: Gpu


def merge(known: Iterable[Gpu], reading: Reading) -> tuple[tuple[Gpu, ...], tuple[GpuChange, ...]]:
    """The inventory after a reading, in index order, and what has changed, in the same order.

    ``known`` is the last inventory, empty at first. A GPU that is missing from the reading stays, with the
    problem of the unidentified GPU at its index or else ``VANISHED``.
    """
    was = {gpu.uuid: gpu for gpu in known}
    now = {gpu.uuid: _completed(gpu, was.get(gpu.uuid)) for gpu in reading.gpus}
    unclaimed = {slot.index: slot.problem for slot in reading.unidentified}
    removed = []
    for gpu in was.values():
        if gpu.uuid in now or _is_placeholder(gpu):
            continue
        if gpu.uuid in reading.physical or gpu.parent in reading.physical:
            removed.append(GpuChange(ChangeKind.REPARTITIONED, gpu))
            continue
        now[gpu.uuid] = dataclasses.replace(gpu, problem=_problem_of_missing(gpu, reading))
        unclaimed.pop(gpu.index, None)
        if gpu.parent not in was:
            now.pop(gpu.parent, None)  # its instances stand for it
    for index, problem in unclaimed.items():
        placeholder = Gpu(f"{_UNIDENTIFIED}{index}", index, "", 0, problem)
        now[placeholder.uuid] = placeholder
    changes = [change for gpu in now.values() if (change := _change(was.get(gpu.uuid), gpu))]
    changes.extend(removed)
    return tuple(sorted(now.values(), key=_order)), tuple(sorted(changes, key=lambda c: _order(c.gpu)))


def _problem_of_missing(gpu: Gpu, reading: Reading) -> str:
    """The problem of its divided GPU, else of the unidentified GPU at its index, else ``VANISHED``."""
    parents = (whole.problem for whole in reading.gpus if whole.uuid == gpu.parent)
    slots = (slot.problem for slot in reading.unidentified if slot.index == gpu.index)
    return next(parents, "") or next(slots, VANISHED)


def _order(gpu: Gpu) -> tuple[int, str]:
    return (gpu.index, gpu.uuid)


def _is_placeholder(gpu: Gpu) -> bool:
    return gpu.uuid.startswith(_UNIDENTIFIED)


def _completed(read: Gpu, was: Gpu | None) -> Gpu:
    """``read``, with fields that a failing GPU no longer reports taken from ``was``."""
    if was is None:
        return read
    return dataclasses.replace(
        read,
        model=read.model or was.model,
        memory_bytes=read.memory_bytes or was.memory_bytes,
        bus_id=read.bus_id or was.bus_id,
    )


def _change(was: Gpu | None, now: Gpu) -> GpuChange | None:
    if was is None:
        return GpuChange(ChangeKind.FAILED if _is_placeholder(now) else ChangeKind.FOUND, now)
    if was.problem == now.problem:
        return None
    return GpuChange(ChangeKind.FAILED if now.problem else ChangeKind.RECOVERED, now)
