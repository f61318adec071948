"""Since when each of a worker's GPUs is idle, by every reading of it.

A GPU is idle while each reading is below the bound of its job's policy. A reading that fails, or says nothing of its
utilization, ends that: what isn't known is never idle. So does a new agent, which has seen nothing yet, and so does a
time without looks, such as while a file of the worker's can't be read: no one saw the readings meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.hang.pipeline.features import GpuUse
from holdfast_agent.core.gpu.signals import STALE_S, HostGpus

QUIET_S = 60.0
"""A GPU that was idle for less is not called that: the controller would hear of each pause between two batches."""


class IdleGpus:
    """The GPUs of one worker in one generation. Times in seconds on the host's monotonic clock."""

    def __init__(self, below_pct: float) -> None:
        self._below_pct = below_pct
        self._since: dict[str, float] = {}
        self._looked_s = 0.0

    def look(self, uuids: Sequence[str], host: HostGpus, now_s: float) -> tuple[GpuUse, ...]:
        """Whether each of these GPUs is used, as of the host's newest reading."""
        if now_s - self._looked_s > STALE_S:
            self._since.clear()
        self._looked_s = now_s
        fresh = bool(host.reading) and now_s - host.at_s <= STALE_S
        return tuple(self._look(uuid, host, now_s, fresh=fresh) for uuid in uuids)

    def _look(self, uuid: str, host: HostGpus, now_s: float, *, fresh: bool) -> GpuUse:
        reading = host.reading.get(uuid) if fresh else None
        if reading is None or reading.lost or reading.util_pct is None:
            self._since.pop(uuid, None)
            return GpuUse()
        if reading.util_pct >= self._below_pct:
            self._since.pop(uuid, None)
            return GpuUse(known=True)
        since = self._since.setdefault(uuid, host.at_s)
        return GpuUse(known=True, idle_since_s=since if now_s - since >= QUIET_S else None)
