"""The metric families of an agent. ``docs/admins/metrics.md`` explains each; a test holds the two together.

Labels name states and this host's own GPUs, never a job or its owner.
"""

from __future__ import annotations

from holdfast._daemon.metrics import daemon
from holdfast._daemon.metrics.series import counter, gauge, histogram

CONNECTED = gauge("holdfast_agent_connected", "1 while the controller has a session with this agent.")
SESSIONS = counter("holdfast_agent_sessions_total", "Sessions that the controller has opened with this agent.")
WORKERS = gauge("holdfast_agent_workers", "Workers on this host, by state.", "state")
SHIMS = gauge("holdfast_agent_shims", "Shims that live.")
SHIMS_LOST = counter("holdfast_agent_shims_lost_total", "Shims that were found gone.")
OUTBOX = gauge("holdfast_agent_outbox_exits", "Ends of ranks that the controller has not acknowledged.")
LAUNCH = histogram("holdfast_agent_launch_seconds", "From the order to launch until all ranks of a worker run.")
LAUNCH_REFUSALS = counter("holdfast_agent_launch_refusals_total", "Launches that came to nothing.")
PREPARATION_FAILURES = counter(
    "holdfast_agent_preparation_failures_total", "Workers that could not be made ready: host or program.", "fault"
)
SAMPLING = histogram("holdfast_agent_sampling_seconds", "One look of the hang detector at all workers.")
SAMPLING_LATE = counter("holdfast_agent_sampling_late_total", "Looks of the hang detector that came late.")
GPUS_READABLE = gauge("holdfast_agent_gpus_readable", "1 while the driver of the GPUs answers.")
GPU_HEALTHY = gauge("holdfast_gpu_healthy", "1 where a GPU has no problem.", "gpu", "uuid")
GPU_MEMORY = gauge("holdfast_gpu_memory_bytes", "Memory of a GPU.", "gpu", "uuid")
GPU_UTILIZATION = gauge("holdfast_gpu_utilization_ratio", "Share of time in which a GPU computed.", "gpu", "uuid")
GPU_MEMORY_BUSY = gauge(
    "holdfast_gpu_memory_busy_ratio", "Share of time in which a GPU's memory was read or written.", "gpu", "uuid"
)
GPU_MEMORY_USED = gauge("holdfast_gpu_memory_used_bytes", "Memory of a GPU that is in use.", "gpu", "uuid")
GPU_TEMPERATURE = gauge("holdfast_gpu_temperature_celsius", "Temperature of a GPU.", "gpu", "uuid")
GPU_CLOCK = gauge("holdfast_gpu_sm_clock_hertz", "Clock of a GPU's multiprocessors.", "gpu", "uuid")
GPU_ENERGY = counter("holdfast_gpu_energy_joules_total", "Energy that a GPU has used.", "gpu", "uuid")

FAMILIES = (
    *daemon.FAMILIES, CONNECTED, SESSIONS, WORKERS, SHIMS, SHIMS_LOST, OUTBOX, LAUNCH, LAUNCH_REFUSALS,
    PREPARATION_FAILURES, SAMPLING, SAMPLING_LATE, GPUS_READABLE, GPU_HEALTHY, GPU_MEMORY, GPU_UTILIZATION,
    GPU_MEMORY_BUSY, GPU_MEMORY_USED, GPU_TEMPERATURE, GPU_CLOCK, GPU_ENERGY,
)  # fmt: skip
