"""Each GPU's health by NVML. Runs in the helper, once a minute; any call may hang.

A figure that a driver or a device refuses is absent: what that says of the GPU is the inventory's matter.
"""

from __future__ import annotations

import pynvml

from holdfast_agent.gpu.nvml import inventory

TYPE_CHECKING = False  # as typing's, without loading typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SLOWED = (  # counters of newer drivers, in ns
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
)
_RECOVERIES = (
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
)
_FIELDS = (*_SLOWED, *_RECOVERIES, pynvml.NVML_FI_DEV_MEMORY_TEMP)
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_UNSUPPORTED: set[tuple[str, str]] = set()
"""(UUID, figure) that a driver has said it lacks: it isn't asked for again."""


def read() -> list[dict[str, Any]]:
    """A ``core.health.gpus.GpuHealth`` of each GPU that answers; not of MIG instances. Raises ``LibraryFailed``."""
    if not inventory.open_library():
        return []
    return [_read(device.handle, device.uuid) for device, _ in inventory.devices()]


def _read(handle: Any, uuid: str) -> dict[str, Any]:
    def ask(figure: str, function: Callable[..., Any], *args: Any) -> Any:
        if (uuid, figure) in _UNSUPPORTED:
            return None
        try:
            return function(handle, *args)
        except pynvml.NVMLError as error:
            if error.value in inventory.ABSENT:
                _UNSUPPORTED.add((uuid, figure))
        except (pynvml.NVMLLibraryMismatchError, AttributeError):
            _UNSUPPORTED.add((uuid, figure))  # this driver is older than the function
        return None

    corrected, volatile = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC
    shares = ask("util", pynvml.nvmlDeviceGetUtilizationRates)
    remapped = ask("remapped", pynvml.nvmlDeviceGetRemappedRows)
    fields = ask("fields", _fields) or {}
    slowed, recoveries = _sum(fields, _SLOWED), _sum(fields, _RECOVERIES)
    return {
        "uuid": uuid,
        "util_pct": None if shares is None else shares.gpu,
        "pcie_width": ask("width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        "pcie_width_most": ask("width", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        "pcie_gen": ask("gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        "pcie_gen_most": ask("gen", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "corrected": ask("ecc", pynvml.nvmlDeviceGetTotalEccErrors, corrected, volatile),
        "remapped": None if remapped is None else remapped[1],
        "sram": ask("sram", _sram),
        "links_up": ask("nvlink", _links_up),
        "link_recoveries": recoveries,
        "fabric": ask("fabric", _fabric),
        "slowed_s": None if slowed is None else slowed / 1e9,
        "margin_c": ask("margin", _margin),
        "memory_c": fields.get(pynvml.NVML_FI_DEV_MEMORY_TEMP) or None,
    }


def _fields(handle: Any) -> dict[int, int | None]:
    """The fields that the device has; None where one can't be read now."""
    found: dict[int, int | None] = {}
    for value in pynvml.nvmlDeviceGetFieldValues(handle, list(_FIELDS)):
        if value.nvmlReturn == pynvml.NVML_SUCCESS:
            found[value.fieldId] = int(getattr(value.value, _MEMBERS[value.valueType]))
        elif value.nvmlReturn not in inventory.ABSENT and value.nvmlReturn != pynvml.NVML_ERROR_INVALID_ARGUMENT:
            found[value.fieldId] = None
    return found


def _sum(fields: dict[int, int | None], of: tuple[int, ...]) -> int | None:
    """The sum of counters; None where one of them can't be read: it would seem to have grown once it can be."""
    found = [fields[field] for field in of if field in fields]
    told = [value for value in found if value is not None]
    return sum(told) if found and len(told) == len(found) else None


def _sram(handle: Any) -> bool:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, pynvml.byref(status))
    return bool(status.bThresholdExceeded)


def _links_up(handle: Any) -> int:
    """NVLinks that are up. Raises ``NVMLError`` where the device has none."""
    up = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED
        except pynvml.NVMLError as error:
            # Links are numbered without gaps; the first that isn't there ends them.
            if link and error.value in (*inventory.ABSENT, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                break
            raise
    return up


def _fabric(handle: Any) -> int:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(info))
    return int(info.state) & 0xFF  # a byte, which the binding reads with its padding


def _margin(handle: Any) -> int:
    """Degrees below the temperature at which the hardware slows the GPU down."""
    limit = pynvml.nvmlDeviceGetTemperatureThreshold(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    return int(limit) - int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
