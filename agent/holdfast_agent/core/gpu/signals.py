"""Attributes a host's GPU activity to ranks.

Theory of operation. A reading gives counters and shares per device, None where the driver has no such figure. A
rank's GPUs are those that its processes hold a context on, or else those that its worker was given, split evenly
between the ranks. Their energy and link counters are added up as growth, so that a device that joins, leaves or
starts its counter over makes no jump. A device without any figure is absent, not idle; one that was seen before and
no longer answers is lost or blind, never idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.xids import XidAction, action_of
from holdfast.hang.pipeline.samples import GpuSample
from holdfast_agent.core.model.gpus import Blind

STALE_S = 15.0
"""A reading older than three intervals says nothing about now."""


@dataclass(frozen=True, slots=True)
class GpuSignals:
    """One device at one time. Energy, PCIe and NVLink only grow; power is there only where energy isn't."""

    uuid: str
    energy_mj: int | None = None
    power_mw: int | None = None
    util_pct: float | None = None
    memory_util_pct: float | None = None
    pcie_bytes: int | None = None
    nvlink_bytes: int | None = None
    # Share of multiprocessors that were busy, where the chip can tell.
    sm_pct: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    # Bits of NVML's clocks event reasons.
    throttle: int | None = None
    lost: bool = False
    # Empty, or why something could not be read.
    problem: str = ""

    @property
    def links(self) -> int | None:
        """Bytes over PCIe and NVLink, both ways."""
        counts = [count for count in (self.pcie_bytes, self.nvlink_bytes) if count is not None]
        return sum(counts) if counts else None

    @property
    def has_figures(self) -> bool:
        """Whether the driver reported any figure."""
        figures = (self.energy_mj, self.power_mw, self.util_pct, self.memory_util_pct, self.links, self.sm_pct)
        return any(figure is not None for figure in figures)


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that the driver reported about a device since the last reading."""

    uuid: str
    number: int
    fatal: bool = False
    """The kernel's log calls it so; NVML tells the number alone."""


@dataclass
class HostGpus:
    """The newest reading, with what earlier ones have left: who has been seen, and every Xid's time."""

    at_s: float = 0.0
    reading: Mapping[str, GpuSignals] = field(default_factory=dict)
    # Why the newest try failed; empty when it didn't.
    blind: str = "not read yet"
    seen: set[str] = field(default_factory=set)
    # UUID to (time, number) of fatal ones; a few each.
    xids: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    # Pids with a context, by device, as last reported.
    contexts: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # Whether another scheduler has given them to ranks: then a rank's are those alone on which it holds a context.
    borrowed: bool = False

    def take(self, signals: tuple[GpuSignals, ...] | Blind, at_s: float) -> None:
        """A new reading, or a failed one."""
        if isinstance(signals, Blind):
            self.blind = signals.reason
            return
        self.at_s, self.blind = at_s, ""
        self.reading = {gpu.uuid: gpu for gpu in signals}
        self.seen.update(gpu.uuid for gpu in signals if gpu.has_figures)

    def hear(self, xids: Iterable[Xid], at_s: float) -> None:
        """Errors that the driver has reported."""
        for xid in xids:
            if action_of(xid.number) is not XidAction.IGNORE:
                self.xids.setdefault(xid.uuid, []).append((at_s, xid.number))
                del self.xids[xid.uuid][:-8]

    def fatal_xid(self, uuids: Iterable[str], since_s: float) -> int | None:
        """The first fatal Xid on these devices since then; None without one."""
        found = [one for uuid in uuids for one in self.xids.get(uuid, ()) if one[0] >= since_s]
        return min(found)[1] if found else None

    @property
    def on_gpu(self) -> frozenset[int]:
        """All pids that hold a context on a GPU."""
        return frozenset(pid for pids in self.contexts.values() for pid in pids)


def used_by(pids: frozenset[int], contexts: Mapping[str, frozenset[int]]) -> tuple[str, ...]:
    """The devices on which any of these processes holds a context."""
    return tuple(sorted(uuid for uuid, holders in contexts.items() if holders & pids))


def gpus_of(
    worker_gpus: Sequence[str], index: int, ranks: int, pids: frozenset[int], contexts: Mapping[str, frozenset[int]]
) -> tuple[str, ...]:
    """The devices of the ``index``th of a worker's ``ranks`` ranks, whose processes are ``pids``."""
    held = tuple(uuid for uuid in worker_gpus if contexts.get(uuid, frozenset()) & pids)
    each = len(worker_gpus) // ranks if ranks else 0
    if each:
        given = tuple(worker_gpus[index * each : (index + 1) * each])
    else:
        given = (worker_gpus[index % len(worker_gpus)],) if worker_gpus else ()
    # A context on a neighbour's device is often left there by accident.
    return tuple(uuid for uuid in given if uuid in held) or held or given


class RankGpus:
    """Adds up the readings of one rank's devices; Xids before ``since_s``, its generation's start, are not its."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s
        self._last: dict[str, GpuSignals] = {}
        self._last_s = 0.0
        self._energy_j: float | None = None
        self._pcie: float | None = None
        self._nvlink: float | None = None
        # What each device said last, by its UUID: a driver that fails for a moment says one thing without the other.
        self._pcie_of: dict[str, int] = {}
        self._nvlink_of: dict[str, int] = {}
        self._sample: GpuSample | None = None

    def sample(self, uuids: Sequence[str], host: HostGpus, now_s: float) -> tuple[GpuSample | None, bool]:
        """The rank's GPU sample or None, and whether there should be one but the driver can't be read."""
        if not uuids:
            return None, False
        if now_s - host.at_s > STALE_S or not host.reading:
            hidden = host.blind != "" and (bool(host.seen.intersection(uuids)) or not host.at_s)
            return None, hidden
        readings = [host.reading[uuid] for uuid in uuids if uuid in host.reading]
        gone = [uuid for uuid in uuids if uuid not in host.reading and uuid in host.seen]
        unknown = len(readings) + len(gone) < len(uuids)
        readable = [one for one in readings if one.has_figures]
        lost = bool(gone) or any(one.lost for one in readings)
        xid = host.fatal_xid(uuids, self._since_s)
        if not readable and not lost:
            blind = unknown or any(one.problem for one in readings) or bool(host.seen.intersection(uuids))
            if xid is not None:
                return GpuSample(host.at_s, fatal_xid=xid), False
            return None, blind
        if host.at_s != self._last_s or self._sample is None:
            self._grow(readable, host.at_s)
        self._sample = GpuSample(
            at_s=host.at_s,
            energy_j=self._energy_j,
            util_pct=max((one.util_pct for one in readable if one.util_pct is not None), default=None),
            memory_util_pct=max(
                (one.memory_util_pct for one in readable if one.memory_util_pct is not None), default=None
            ),
            link_bytes=sum(links) if (links := _told((self._pcie, self._nvlink))) else None,
            fatal_xid=xid,
            lost=lost,
            sm_pct=max(_told(one.sm_pct for one in readable), default=None),
            memory_used_bytes=_sum([one.memory_used_bytes for one in readable]),
            temperature_c=max(_told(one.temperature_c for one in readable), default=None),
            sm_clock_mhz=min(_told(one.sm_clock_mhz for one in readable), default=None),
            throttle=_either([one.throttle for one in readable]),
            pcie_bytes=self._pcie,
            nvlink_bytes=self._nvlink,
        )
        return self._sample, False

    def _grow(self, readable: Sequence[GpuSignals], at_s: float) -> None:
        elapsed_s = at_s - self._last_s if self._last_s else 0.0
        for now in readable:
            before = self._last.get(now.uuid)
            if now.energy_mj is not None or now.power_mw is not None:
                self._energy_j = (self._energy_j or 0.0) + _energy_j(before, now, elapsed_s)
            self._pcie = _grown(self._pcie, self._pcie_of, now.uuid, now.pcie_bytes)
            self._nvlink = _grown(self._nvlink, self._nvlink_of, now.uuid, now.nvlink_bytes)
        self._last = {one.uuid: one for one in readable}
        self._last_s = at_s


def _energy_j(before: GpuSignals | None, now: GpuSignals, elapsed_s: float) -> float:
    if before is None:
        return 0.0
    if now.energy_mj is not None and before.energy_mj is not None:
        return max(0, now.energy_mj - before.energy_mj) / 1e3
    return (now.power_mw or 0) / 1e3 * elapsed_s


def _grown(total: float | None, known: dict[str, int], uuid: str, now: int | None) -> float | None:
    """The total with a counter's growth since it was read last; None while it has never been read."""
    if now is None:
        return total
    before, known[uuid] = known.get(uuid, now), now
    return (total or 0.0) + max(0, now - before)


def _told(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Sequence[int | None]) -> int | None:
    """None unless every device says it: the sum of some is not the rank's."""
    told = [value for value in values if value is not None]
    return sum(told) if told and len(told) == len(values) else None


def _either(values: Iterable[int | None]) -> int | None:
    found = None
    for value in values:
        if value is not None:
            found = (found or 0) | value
    return found
