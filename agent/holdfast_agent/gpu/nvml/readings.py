"""Current activity of each device by NVML: counters and shares. Runs in the helper; any call may hang.

Handles are kept and each figure is asked for only until the driver says that it hasn't got it. A figure that a
working device refuses is a problem in words; a device that is lost says so until it is found again.
"""

from __future__ import annotations

import time

import pynvml

from holdfast_agent.gpu.nvml import inventory, xid_events

TYPE_CHECKING = False  # as typing's, without loading typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LOOK_AGAIN_S = 60.0
"""Devices come, go and are divided rarely; a device that fails is looked for at once."""
_PCIE = (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES)
_NVLINK = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
_ALL_LINKS = 0xFFFFFFFF
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_GPM_APART_S = 0.1

_targets: list[_Target] = []
_looked_at: float | None = None


class _Gpm:
    """Metrics between this sample and the last one; on a MIG device they are those of its instance."""

    METRICS = (
        pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
        pynvml.NVML_GPM_METRIC_SM_UTIL,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    )

    def __init__(self, handle: Any, instance: int | None) -> None:
        self._handle, self._instance = handle, instance
        self._old, self._new = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        self._taken_at = 0.0

    def read(self, _: Any) -> tuple[float | None, ...] | None:
        """Percentages in the order of ``METRICS``; None at the first reading, and too soon after another."""
        now = time.monotonic()
        if now - self._taken_at < _GPM_APART_S:
            return None
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, self._new)
        else:
            pynvml.nvmlGpmMigSampleGet(self._handle, self._instance, self._new)
        first, self._taken_at = not self._taken_at, now
        self._old, self._new = self._new, self._old
        if first:
            return None
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(self.METRICS)
        asked.sample1, asked.sample2 = self._new, self._old
        for worker, metric in enumerate(self.METRICS):
            asked.metrics[worker].metricId = metric
        got = pynvml.nvmlGpmMetricsGet(asked)
        found = [got.metrics[worker] for worker in range(len(self.METRICS))]
        return tuple(round(one.value, 2) if one.nvmlReturn == pynvml.NVML_SUCCESS else None for one in found)

    def free(self) -> None:
        for sample in (self._old, self._new):
            try:
                pynvml.nvmlGpmSampleFree(sample)
            except pynvml.NVMLError:
                pass  # its device is gone; a few bytes


class _Target:
    """One device; ``parent`` is the handle of the GPU that a MIG instance is part of."""

    def __init__(self, handle: Any, uuid: str, parent: Any = None) -> None:
        self.handle, self.uuid, self.parent = handle, uuid, parent
        self.problem = ""
        self.lost = False
        self.gpm: _Gpm | None = None
        self._gpm_probed = False
        self._absent: set[str] = set()

    def read(self) -> dict[str, Any]:
        """Every figure that there is, as a ``core.gpu.signals.GpuSignals``."""
        self.problem, self.lost = "", False
        energy = power = shares = links = pcie = None
        if self.parent is None:
            energy = self._ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption)
            if energy is None:
                power = self._ask("power", pynvml.nvmlDeviceGetPowerUsage)
            shares = self._ask("utilisation", pynvml.nvmlDeviceGetUtilizationRates)
            pcie = self._ask("pcie", _pcie_bytes)
            links = self._ask("nvlink", _nvlink_bytes)
        memory = self._show("memory", pynvml.nvmlDeviceGetMemoryInfo)
        # Those of an instance are its GPU's.
        board = self.handle if self.parent is None else self.parent
        temperature = self._show("temperature", _temperature, board)
        clock = self._show("clock", _sm_clock, board)
        throttle = self._show("throttle", _throttle_reasons, board)
        gpm = self._read_gpm()
        graphics, sm, dram = gpm or (None, None, None)
        return {
            "uuid": self.uuid,
            "energy_mj": energy,
            "power_mw": power,
            "util_pct": graphics if shares is None else shares.gpu,
            "memory_util_pct": dram if shares is None else shares.memory,
            "pcie_bytes": pcie,
            "nvlink_bytes": links,
            "sm_pct": sm,
            "memory_used_bytes": None if memory is None else memory.used,
            "temperature_c": temperature,
            "sm_clock_mhz": clock,
            "throttle": throttle,
            "lost": self.lost,
            "problem": self.problem,
        }

    def _read_gpm(self) -> tuple[float | None, ...] | None:
        if not self._gpm_probed:
            self.gpm = self._ask("gpm", _open_gpm, self.parent)
            self._gpm_probed = self.gpm is not None or "gpm" in self._absent
        found: tuple[float | None, ...] | None = self._ask("gpm", self.gpm.read) if self.gpm else None
        return found

    def _show(self, figure: str, function: Callable[..., Any], *args: Any) -> Any:
        """Ask for a figure that is shown only: a device that refuses it has no problem for that."""
        problem = self.problem
        answer = self._ask(figure, function, *args)
        if not self.lost:
            self.problem = problem
        return answer

    def _ask(self, figure: str, function: Callable[..., Any], *args: Any) -> Any:
        if figure in self._absent:
            return None
        try:
            answer = function(self.handle, *args)
        except pynvml.NVMLError as error:
            if error.value in inventory.ABSENT:
                self._absent.add(figure)
            else:
                self.lost = self.lost or error.value == pynvml.NVML_ERROR_GPU_IS_LOST
                self.problem = self.problem or inventory.in_words(error)
            return None
        except pynvml.NVMLLibraryMismatchError:
            answer = _MISSING  # this driver is older than the function
        if answer is _MISSING:
            self._absent.add(figure)
            return None
        return answer


_MISSING = object()


def read() -> list[dict[str, Any]]:
    """All devices, each as ``core.gpu.signals.GpuSignals``. Raises ``LibraryFailed``."""
    global _looked_at
    if not inventory.open_library():
        return []
    now = time.monotonic()
    failing = any(target.problem for target in _targets)
    if _looked_at is None or failing or now - _looked_at > _LOOK_AGAIN_S:
        _look()
        _looked_at = now
    return [target.read() for target in _targets]


def _look() -> None:
    """Processes on the device; what was learned about earlier ones is kept."""
    known = {target.uuid: target for target in _targets}
    found: list[_Target] = []
    for device, migs in inventory.devices():
        targets = [_Target(mig.handle, mig.uuid, device.handle) for mig in migs or ()]
        if migs is None or device.problem:
            targets.append(_Target(device.handle, device.uuid))
        xid_events.watch(device.handle, device.uuid, [target.uuid for target in targets])
        found.extend(targets)
    kept = [known.pop(one.uuid, one) for one in found]
    for gone in known.values():
        if gone.gpm is not None:
            gone.gpm.free()
    _targets[:] = kept


def _open_gpm(handle: Any, parent: Any) -> Any:
    """A reader of the GPU's performance metrics (GPM); ``_MISSING`` where the chip or the driver has none."""
    instance = None if parent is None else pynvml.nvmlDeviceGetGpuInstanceId(handle)
    device = handle if parent is None else parent
    if not pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
        return _MISSING
    return _Gpm(device, instance)


def _temperature(_: Any, board: Any) -> Any:
    return pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU)


def _sm_clock(_: Any, board: Any) -> Any:
    return pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM)


def _throttle_reasons(_: Any, board: Any) -> Any:
    return pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(board)  # the name that older drivers have too


def _pcie_bytes(handle: Any) -> Any:
    return _fields(handle, [(field, 0) for field in _PCIE], 1)


def _nvlink_bytes(handle: Any) -> Any:
    return _fields(handle, [(field, _ALL_LINKS) for field in _NVLINK], 1024)


def _fields(handle: Any, wanted: list[tuple[int, int]], unit: int) -> Any:
    """The sum of some fields in bytes; ``_MISSING`` where the device has none of them. Raises ``NVMLError``."""
    total = answered = 0
    for value in pynvml.nvmlDeviceGetFieldValues(handle, wanted):
        if value.nvmlReturn == pynvml.NVML_SUCCESS:
            total += int(getattr(value.value, _VALUE_MEMBERS[value.valueType])) * unit
            answered += 1
        elif value.nvmlReturn not in inventory.ABSENT and value.nvmlReturn != pynvml.NVML_ERROR_INVALID_ARGUMENT:
            raise pynvml.NVMLError(value.nvmlReturn)
    return total if answered else _MISSING
