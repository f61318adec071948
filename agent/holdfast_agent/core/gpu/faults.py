"""Faults that keep new work off a GPU until it is repaired.

Theory of operation. A fault begins with an Xid that calls for a repair, with a GPU that is lost, or with what the
driver says of a GPU's memory and of its need for a reset. It outlasts its signs: a GPU that answers again after an Xid
79 is no more trustworthy than before. It ends with evidence of the repair, never with time:

- another boot of the host: what was kept before says nothing;
- another ``enumeration`` of the device: the driver was loaded again, or the device was removed from the bus and
  found again;
- the driver has asked for a reset and no longer does;
- the driver did not list the GPU and lists it again; no row remapping is pending any more.

To divide a GPU into MIG instances, in another way or no more, is no repair: what is listed of it from then on has its
faults.

A fault that is reported again counts up, at most once a minute, so that the controller can tell a new occurrence from
the one that an admin has cleared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.xids import Repair, in_words, repair_of
from holdfast_agent.core.gpu.signals import Xid
from holdfast_agent.core.model.gpus import LOST, RESET_REQUIRED, VANISHED, Condition, Gpu, Reading

APART_S = 60.0
"""Occurrences of one fault that are closer are one."""
COUNT_MOST = 1000
LOST_FAULT = "lost (it has fallen off the bus)"
VANISHED_FAULT = "lost (the driver no longer lists it)"
PENDING_FAULT = "row remapping pending"
FAILED_FAULT = "row remapping failed"
MEMORY_FAULT = "memory error beyond correction"
RESET_FAULT = "the driver asks for a reset"
REBOOT_FAULT = "the driver asks for a reboot"
_RECOVERY = {
    1: (RESET_FAULT, Repair.RESET),
    2: (REBOOT_FAULT, Repair.REBOOT),
    3: (RESET_FAULT, Repair.RESET),
    4: (RESET_FAULT, Repair.RESET),
    6: (RESET_FAULT, Repair.RESET),
    7: (REBOOT_FAULT, Repair.REBOOT),
}
"""By NVML's recovery action; 5 concerns a domain of several hosts, whose repair is no reset of this GPU."""
_PROBLEMS = {
    LOST: (LOST_FAULT, Repair.REBOOT),
    VANISHED: (VANISHED_FAULT, Repair.REBOOT),
    RESET_REQUIRED: (RESET_FAULT, Repair.RESET),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a GPU. Times are wall clock."""

    cause: str
    repair: Repair
    since: float
    last: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class FaultyGpu:
    """A GPU with its faults, the oldest first; ``gpu`` so that it is known even where it is no longer listed."""

    gpu: Gpu
    enumeration: str
    faults: tuple[Fault, ...]


@dataclass
class GpuFaults:
    """The faults of a host's GPUs, by UUID, since its last boot; ``repaired`` says what ended earlier ones."""

    faulty: dict[str, FaultyGpu] = field(default_factory=dict)
    repaired: dict[str, str] = field(default_factory=dict)
    known: dict[str, Gpu] = field(default_factory=dict)
    enumerations: dict[str, str] = field(default_factory=dict)

    def of(self, uuid: str) -> tuple[Fault, ...]:
        """The faults of one GPU."""
        found = self.faulty.get(uuid)
        return found.faults if found is not None else ()

    def hear(self, xids: Iterable[Xid], now: float, *, again: bool = True) -> bool:
        """Take errors that the driver reported. Returns whether any makes a GPU faulty, or did so ``again``."""
        changed = False
        for xid in xids:
            if (repair := repair_of(xid.number, fatal=xid.fatal)) is not None:
                changed |= self._add(xid.uuid, in_words(xid.number), repair, now, again=again)
        return changed

    def lose(self, uuids: Iterable[str], now: float) -> bool:
        """Take GPUs whose activity can't be read since they are lost. Returns whether that is new."""
        fresh = [self._add(uuid, LOST_FAULT, Repair.REBOOT, now) for uuid in uuids]
        return any(fresh)

    def take(self, gpus: Iterable[Gpu], reading: Reading, enumerations: Mapping[str, str], now: float) -> bool:
        """Take a reading: ``gpus`` is the inventory after it. Returns whether faults came or went.

        ``enumerations`` names, by UUID, the driver's present acquaintance with a device; empty where it is unknown.
        """
        before, former = (dict(self.faulty), dict(self.repaired)), self.known.keys()
        self.known = {gpu.uuid: gpu for gpu in gpus}
        self.enumerations = dict(enumerations)
        conditions = {each.uuid: each for each in reading.conditions}
        listed = {gpu.uuid for gpu in reading.gpus}
        for uuid, found in self.faulty.items():
            if found.gpu.index < 0 and uuid in self.known:  # heard of before it was ever read
                known = replace(found, gpu=self.known[uuid], enumeration=self.enumerations.get(uuid, ""))
                self.faulty[uuid] = known
        self._hand_on([gpu for uuid, gpu in self.known.items() if uuid not in former and uuid not in self.faulty])
        for uuid in list(self.faulty):
            self._check_repair(uuid, conditions.get(uuid), listed=uuid in listed)
        for gpu in self.known.values():
            for cause, repair in stated_faults(gpu, conditions.get(gpu.uuid)):
                self._add(gpu.uuid, cause, repair, now)
        return before != (self.faulty, self.repaired)

    def _add(self, uuid: str, cause: str, repair: Repair, now: float, *, again: bool = False) -> bool:
        """Note a fault. What an earlier one says too is no new occurrence, except of what happens ``again``."""
        found = self.faulty.get(uuid)
        faults = found.faults if found is not None else ()
        same = next((fault for fault in faults if fault.cause == cause), None)
        if same is None:
            fresh = (*faults, Fault(cause, repair, now, now))
        elif again and now - same.last >= APART_S and same.count < COUNT_MOST:
            counted = replace(same, last=now, count=same.count + 1)
            fresh = tuple(counted if fault is same else fault for fault in faults)
        else:
            return False
        gpu = self.known.get(uuid) or (found.gpu if found is not None else Gpu(uuid, -1, "", 0))
        enumeration = found.enumeration if found is not None else self.enumerations.get(uuid, "")
        self.faulty[uuid] = FaultyGpu(gpu, enumeration, fresh)
        self.repaired.pop(uuid, None)
        return True

    def _hand_on(self, fresh: Iterable[Gpu]) -> None:
        """Give GPUs and instances that are newly listed the faults of the same device, unless it was repaired since."""
        had = list(self.faulty.items())
        for gpu in fresh:
            now = self.enumerations.get(gpu.uuid, "")
            faults: dict[str, Fault] = {}
            for uuid, found in had:
                if _device(found.gpu) != _device(gpu):
                    continue
                if uuid not in self.known:
                    self.faulty.pop(uuid, None)
                if not now or found.enumeration in ("", now):
                    faults |= {fault.cause: fault for fault in found.faults if fault.cause not in faults}
            if faults:
                self.faulty[gpu.uuid] = FaultyGpu(gpu, now, tuple(faults.values()))
                self.repaired.pop(gpu.uuid, None)

    def _check_repair(self, uuid: str, condition: Condition | None, *, listed: bool) -> None:
        found = self.faulty[uuid]
        causes = {fault.cause for fault in found.faults}
        now = self.enumerations.get(uuid, "")
        if now and now != found.enumeration:
            self._drop(uuid, causes, "the driver has enumerated it again")
        elif causes & {RESET_FAULT, REBOOT_FAULT} and condition is not None and condition.recovery == 0:
            self._drop(uuid, causes, "the driver no longer asks for a repair")
        else:
            if VANISHED_FAULT in causes and listed:
                self._drop(uuid, {VANISHED_FAULT}, "the driver lists it again")
            if PENDING_FAULT in causes and condition is not None and not condition.remap_pending:
                self._drop(uuid, {PENDING_FAULT}, "no row remapping is pending any more")

    def _drop(self, uuid: str, causes: set[str], why: str) -> None:
        found = self.faulty.pop(uuid)
        left = tuple(fault for fault in found.faults if fault.cause not in causes)
        if left:
            self.faulty[uuid] = replace(found, faults=left)
        self.repaired[uuid] = why


def _device(gpu: Gpu) -> str:
    """UUID of the GPU that it is, or is a part of."""
    return gpu.parent or gpu.uuid


def stated_faults(gpu: Gpu, condition: Condition | None) -> Iterable[tuple[str, Repair]]:
    """Faults that the newest reading states by itself."""
    if gpu.problem in _PROBLEMS:
        yield _PROBLEMS[gpu.problem]
    if condition is None:
        return
    if condition.recovery in _RECOVERY:
        yield _RECOVERY[condition.recovery]
    if condition.remap_failed:
        yield FAILED_FAULT, Repair.RESET
    if condition.remap_pending:
        yield PENDING_FAULT, Repair.RESET
    if condition.uncorrected:
        yield MEMORY_FAULT, Repair.RESET
