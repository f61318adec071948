"""Faulty GPUs: their agents' reports, evidence of repair, and an admin's word for it.

Theory of operation. An agent's inventory names, for each GPU, the faults that still stand. A new one condemns the GPU;
one that it no longer names is cleared, since the agent drops a fault only upon evidence of a repair. So nothing
depends on which message arrived: the newest inventory is all that counts. An admin may clear a fault that is still
reported; it stays cleared until the agent counts another occurrence.

A condemned GPU gets no new work, and where only a reboot repairs it neither does its host: whatever else is there
would be stopped by the reboot. Work that runs stays; the hang detector and the failure policy decide about that.
"""

from __future__ import annotations

from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.host import SELF
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.step.step import Step


def compare(step: Step, host: Host, *, rebooted: bool = False) -> None:
    """Bring the condemned GPUs into line with the host's newest inventory."""
    for gpu in host.inventory.gpus:
        known, excused = _causes(host, gpu.uuid), host.cleared.get(gpu.uuid, {})
        reported = {fault.cause for fault in gpu.faults}
        over = tuple(cause for cause in dict.fromkeys((*known, *excused)) if cause not in reported)
        if over:
            why = "its host has booted" if rebooted else gpu.repaired_by or "its agent no longer reports it"
            _clear(step, host, gpu.uuid, gpu.index, over, SELF, why)
        for fault in gpu.faults:
            if fault.cause not in known and fault.count > excused.get(fault.cause, 0):
                step.emit(
                    ev.GpuCondemned(host=host.name, at=step.now.wall, gpu=gpu.uuid, index=gpu.index, fault=fault)
                )
    if rebooted:
        listed = {gpu.uuid for gpu in host.inventory.gpus}
        for uuid in [uuid for uuid in host.condemned if uuid not in listed]:
            causes, index = _causes(host, uuid), host.condemned[uuid].index
            _clear(step, host, uuid, index, causes, SELF, "its host has booted without it")


def put_back(step: Step, host: Host, named: tuple[str, ...], by: str) -> InvalidInput | None:
    """Clear the faults of the GPUs ``named`` by index or UUID. Returns what is wrong with the names, if anything."""
    found, wrong = [], []
    for position, name in enumerate(named):
        gpu = next((g for g in host.inventory.gpus if name in (str(g.index), g.uuid)), None)
        if gpu is None:
            fix = f"See: holdfast host show {host.name}"
            wrong.append(Violation(f"gpus[{position}]", f"{host.name} has no GPU {name!r}", fix))
        else:
            found.append(gpu)
    if wrong:
        return InvalidInput(wrong)
    for gpu in found:
        if causes := _causes(host, gpu.uuid):
            _clear(step, host, gpu.uuid, gpu.index, causes, by, "put back into service")
    return None


def _causes(host: Host, uuid: str) -> tuple[str, ...]:
    found = host.condemned.get(uuid)
    return tuple(fault.cause for fault in found.faults) if found is not None else ()


def _clear(step: Step, host: Host, uuid: str, index: int, causes: tuple[str, ...], by: str, why: str) -> None:
    step.emit(ev.GpuCleared(host=host.name, at=step.now.wall, gpu=uuid, index=index, causes=causes, by=by, why=why))
    step.capacity_freed = True
