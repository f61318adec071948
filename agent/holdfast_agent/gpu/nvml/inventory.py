"""The host's GPUs and who uses them, by NVML's official binding. Runs in the helper; any call may hang.

It runs in the helper process and gives plain dictionaries (see ``gpu``): every import of this process is
memory on every host. An error of one GPU is that GPU's problem, in words; an error of the whole library is
``LibraryFailed``; a missing library is a host without NVIDIA GPUs; NOT_SUPPORTED is an absent figure.
"""

from __future__ import annotations

import pynvml

from holdfast_agent.gpu.nvml import xid_events

TYPE_CHECKING = False  # as typing's, without loading typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

NO_DRIVER = "no NVIDIA driver on this host"
_WORDS = {
    pynvml.NVML_ERROR_UNINITIALIZED: "the driver library is not initialised",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to use the GPU",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "external power is not connected",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_TIMEOUT: "the driver timed out",
    pynvml.NVML_ERROR_IRQ_ISSUE: "the kernel reports an interrupt problem",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "the infoROM is corrupted",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost: it has fallen off the bus or is otherwise inaccessible",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU requires a reset",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "the operating system blocks the driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver and library versions differ: reboot after the update",
    pynvml.NVML_ERROR_MEMORY: "the driver is out of memory",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "the GPU was not found",
    pynvml.NVML_ERROR_UNKNOWN: "unknown driver error",
}
ABSENT = {  # answers of a driver that has no such figure
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}
_ready = False


class LibraryFailed(Exception):
    """No GPU can be read. ``str()`` says why; a fresh process may do better."""


class _Device:
    """Asks one device; remembers the first thing that went wrong."""

    def __init__(self, handle: Any, uuid: str) -> None:
        self.handle = handle
        self.uuid = uuid
        self.problem = ""

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """The answer, or ``None``: the driver has no such figure, or ``problem`` says what went wrong."""
        try:
            return function(self.handle, *args)
        except pynvml.NVMLError as error:
            if error.value not in ABSENT:
                self.problem = self.problem or in_words(error)
        except pynvml.NVMLLibraryMismatchError:
            pass  # this driver is older than the function
        return None


def in_words(error: Any) -> str:
    """An NVML error as a phrase for people."""
    return _WORDS.get(error.value) or f"driver error {error.value}: {error}"


def open_library() -> bool:
    """Make NVML ready, once; this also wakes the GPUs. False on a host without it. Raises ``LibraryFailed``."""
    global _ready
    if _ready:
        return True
    try:
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return False
        raise LibraryFailed(in_words(error)) from error
    _ready = True
    return True


def inventory() -> dict[str, Any]:
    """Every device there is, as a ``core.model.gpus.Reading``. Raises ``LibraryFailed``."""
    if not open_library():
        return {"gpus": [], "unidentified": [], "physical": [], "conditions": [], "note": NO_DRIVER}
    found, unidentified = _enumerate()
    gpus: list[dict[str, Any]] = []
    conditions: list[dict[str, Any]] = []
    for index, bus_id, device in _indexed(found, {slot["index"] for slot in unidentified}):
        migs = list(_mig_devices(device)) if _mig_enabled(device) else None
        listed = [mig.uuid for mig in migs or ()]
        if migs is None or device.problem:
            gpus.append(_describe(device, index, bus_id, parent=""))
            listed.append(device.uuid)
        gpus.extend(_describe(mig, index, bus_id, parent=device.uuid) for mig in migs or ())
        xid_events.watch(device.handle, device.uuid, listed)
        if not device.problem:
            conditions.extend(_condition(device, uuid) for uuid in listed)
    physical = [device.uuid for _, device in found if not device.problem]
    return {
        "gpus": gpus,
        "unidentified": unidentified,
        "physical": physical,
        "conditions": conditions,
        "note": "",
    }


def devices() -> Iterator[tuple[_Device, list[_Device] | None]]:
    """Every GPU that can be identified, with its MIG instances (None: undivided). Raises ``LibraryFailed``."""
    for _, device in _enumerate()[0]:
        yield device, list(_mig_devices(device)) if _mig_enabled(device) else None


def usage() -> list[dict[str, Any]]:
    """A ``core.model.gpus.GpuUsage`` of every device that can be identified. Raises ``LibraryFailed``."""
    if not open_library():
        return []
    usages: list[dict[str, Any]] = []
    for device, migs in devices():
        usages.extend(_occupation(each) for each in ([device] if migs is None else migs))
    return usages


def _enumerate() -> tuple[list[tuple[int, _Device]], list[dict[str, Any]]]:
    """GPUs with the driver's own index, and those that can't be identified."""
    found: list[tuple[int, _Device]] = []
    unidentified: list[dict[str, Any]] = []
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise LibraryFailed(in_words(error)) from error
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append((index, _Device(handle, pynvml.nvmlDeviceGetUUID(handle))))
        except pynvml.NVMLError as error:
            unidentified.append({"index": index, "problem": in_words(error)})
    return found, unidentified


def _indexed(found: list[tuple[int, _Device]], taken: set[int]) -> list[tuple[int, str, _Device]]:
    """GPUs with their index in PCI bus order, and bus id; ``taken`` are the indices of unidentified ones.

    A GPU that no longer tells its bus id keeps the driver's own index, in practice the same order.
    """
    placed: list[tuple[int, str, _Device]] = []
    sortable: list[tuple[tuple[int, int, int], str, _Device]] = []
    for index, device in found:
        pci = device.ask(pynvml.nvmlDeviceGetPciInfo_v3)
        if pci is None:
            placed.append((index, "", device))
        else:
            sortable.append(((pci.domain, pci.bus, pci.device), str(pci.busId), device))
    occupied = taken | {index for index, _, _ in placed}
    free = [index for index in range(len(found) + len(taken)) if index not in occupied]
    sortable.sort(key=lambda item: item[0])
    placed += [(index, bus, device) for index, (_, bus, device) in zip(free, sortable, strict=True)]
    return sorted(placed, key=lambda item: item[0])


def _mig_enabled(device: _Device) -> bool:
    mode = device.ask(pynvml.nvmlDeviceGetMigMode)
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def _mig_devices(device: _Device) -> Iterator[_Device]:
    """The MIG instances of a GPU; empty slots are left out."""
    for slot in range(device.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, slot)
            yield _Device(handle, pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:
                device.problem = device.problem or in_words(error)


def _describe(device: _Device, index: int, bus_id: str, parent: str) -> dict[str, Any]:
    model = device.ask(pynvml.nvmlDeviceGetName)
    memory = device.ask(pynvml.nvmlDeviceGetMemoryInfo)
    return {
        "uuid": device.uuid,
        "index": index,
        "model": model or "",
        "memory_bytes": 0 if memory is None else memory.total,
        "problem": device.problem,
        "bus_id": bus_id,
        "parent": parent,
    }


def _condition(device: _Device, uuid: str) -> dict[str, Any]:
    """State of a GPU's memory and its need for a reset; ``uuid`` is the GPU's or an instance's."""
    quiet = _Device(device.handle, device.uuid)  # figures that may be refused without the GPU being ill
    remapped = quiet.ask(pynvml.nvmlDeviceGetRemappedRows) or (0, 0, 0, 0)
    uncorrected, volatile = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return {
        "uuid": uuid,
        "remap_failed": bool(remapped[3]),
        "remap_pending": bool(remapped[2]),
        "uncorrected": quiet.ask(pynvml.nvmlDeviceGetTotalEccErrors, uncorrected, volatile) or 0,
        "recovery": quiet.ask(_recovery_action),
    }


def _recovery_action(handle: Any) -> int | None:
    """NVML's recovery action for a GPU, 0 for none; None from a driver that doesn't say."""
    (value,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return int(value.value.uiVal) if value.nvmlReturn == pynvml.NVML_SUCCESS else None


def _occupation(device: _Device) -> dict[str, Any]:
    memory = device.ask(pynvml.nvmlDeviceGetMemoryInfo)
    compute = device.ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3)
    # Clients of an MPS server are listed here only.
    shared = device.ask(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3) or []
    return {
        "uuid": device.uuid,
        "used_bytes": None if memory is None else memory.used,
        "pids": None if compute is None else sorted({p.pid for p in [*compute, *shared]}),
        "problem": device.problem,
    }
