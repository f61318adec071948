"""Asks the GPU source what the devices do, at its own pace, so that a slow driver delays nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import anyio

from holdfast._daemon import log
from holdfast_agent.core.gpu.signals import GpuSignals, HostGpus, Xid
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.gpu.reader import GpuSource

READ_S = 5.0
CONTEXTS_EVERY = 3
"""Who holds a context changes rarely, and asking wakes more of the driver."""


class GpuSignalWatch:
    """Reads GPU activity while ``wanted()`` is true, which is while workers run; ``host`` is the newest state."""

    def __init__(
        self, source: GpuSource, wanted: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.host = HostGpus()
        self.on_read: Callable[[tuple[GpuSignals, ...] | Blind], None] = lambda _: None
        self._source = source
        self._wanted = wanted
        self._monotonic = monotonic
        self._reads = 0

    def hear(self, xids: Sequence[Xid]) -> None:
        """Take note of errors that the driver has reported."""
        self.host.hear(xids, self._monotonic())

    async def read(self) -> None:
        """Read all devices once."""
        was = self.host.blind
        signals = await self._source.signals()
        self.on_read(signals)
        self.host.take(signals, self._monotonic())
        if isinstance(signals, Blind):
            if was != signals.reason:
                log.warning("gpu_signals.unreadable", error=signals.reason)
            return
        if self._reads % CONTEXTS_EVERY == 0:
            usage = await self._source.usage()
            if not isinstance(usage, Blind):
                self.host.contexts = {one.uuid: frozenset(one.pids or ()) for one in usage}
        self._reads += 1

    async def run(self, every_s: float = READ_S) -> None:
        """Read periodically until cancelled, whenever ``wanted()`` is true."""
        while True:
            if self._wanted():
                await self.read()
            await anyio.sleep(every_s)
