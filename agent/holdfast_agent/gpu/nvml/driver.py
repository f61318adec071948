"""Facts about the driver: its version, and which GPUs it keeps awake. Runs in the helper; any call may hang."""

from __future__ import annotations

import pynvml

from holdfast_agent.gpu.nvml import inventory

TYPE_CHECKING = False  # as typing's, without loading typing
if TYPE_CHECKING:
    from typing import Any


def read() -> dict[str, Any]:
    """Read a ``core.doctor.gpus.DriverFacts``. Raises ``LibraryFailed``."""
    if not inventory.open_library():
        return {"version": "", "persistence": []}
    persistence = []
    for device, _ in inventory.devices():
        mode = device.ask(pynvml.nvmlDeviceGetPersistenceMode)
        if mode is not None:
            persistence.append((device.uuid, bool(mode)))
    try:
        version = str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        version = ""  # one that can tell its devices is good enough
    return {"version": version, "persistence": persistence}
