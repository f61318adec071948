"""Every NVML figure that the detector, or a person, could want of the first GPU: ``python figures.py`` prints JSON.

By name: the value, or why there is none, and what a call takes in microseconds (the median of some).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import pynvml as nvml

CALLS = 15


def _fields(*wanted: int) -> Callable[[Any], list[Any]]:
    def read(handle: Any) -> list[Any]:
        found = nvml.nvmlDeviceGetFieldValues(handle, [(field, 0) for field in wanted])
        return [one.value.ullVal if one.nvmlReturn == 0 else None for one in found]

    return read


def _gpm(handle: Any) -> list[float]:
    """Utilisation, SM, and memory bandwidth between two samples a tenth of a second apart."""
    if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    nvml.nvmlGpmSampleGet(handle, samples[0])
    time.sleep(0.1)
    nvml.nvmlGpmSampleGet(handle, samples[1])
    asked = nvml.c_nvmlGpmMetricsGet_t()
    wanted = (nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_DRAM_BW_UTIL)
    asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(wanted)
    asked.sample1, asked.sample2 = samples
    for place, metric in enumerate(wanted):
        asked.metrics[place].metricId = metric
    got = nvml.nvmlGpmMetricsGet(asked)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    return [round(got.metrics[place].value, 2) for place in range(len(wanted))]


def _events(handle: Any) -> list[str]:
    """The kinds of events that the GPU can report."""
    kinds = nvml.nvmlDeviceGetSupportedEventTypes(handle)
    names = [name for name in dir(nvml) if name.startswith("nvmlEventType") and name != "nvmlEventTypeAll"]
    return [name.removeprefix("nvmlEventType") for name in names if kinds & getattr(nvml, name)]


FIGURES: dict[str, Callable[[Any], Any]] = {
    "name": nvml.nvmlDeviceGetName,
    "uuid": nvml.nvmlDeviceGetUUID,
    "utilisation_pct": lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "memory_utilisation_pct": lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).memory,
    "power_w": lambda handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    "energy_mj": nvml.nvmlDeviceGetTotalEnergyConsumption,
    "memory_used_bytes": lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).used,
    "sm_clock_mhz": lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
    "temperature_c": lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    "throttle_reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons,
    "processes": lambda handle: sorted(one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)),
    "pcie_bytes": _fields(nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
    "nvlink_kib": _fields(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
    "recovery_action": _fields(nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
    "gpm_graphics_sm_dram_pct": _gpm,
    "remapped_rows": nvml.nvmlDeviceGetRemappedRows,
    "uncorrected_errors": lambda handle: nvml.nvmlDeviceGetTotalEccErrors(
        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
    "persistence_mode": nvml.nvmlDeviceGetPersistenceMode,
    "events": _events,
}


def read(handle: Any, figure: Callable[[Any], Any]) -> dict[str, Any]:
    """One figure as JSON."""
    took: list[float] = []
    value: Any = None
    for _ in range(CALLS):
        began = time.perf_counter()
        try:
            value = figure(handle)
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
            return {"problem": str(error)}
        took.append(time.perf_counter() - began)
    return {"value": value, "us": round(1e6 * statistics.median(took), 1)}


def main() -> None:
    nvml.nvmlInitWithFlags(0)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    print(json.dumps({name: read(handle, figure) for name, figure in FIGURES.items()}))


if __name__ == "__main__":
    main()
