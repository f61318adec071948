"""Keeps the host's inventory: reads the GPUs now and then, and says what has changed."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from holdfast._daemon import log
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_agent.core.model.gpus import Blind, Gpu, merge
from holdfast_agent.gpu.reader import GpuSource

READ_S = 30.0
"""A GPU that fails is noticed within this time; a reading wakes nothing up that sleeps."""
FIRST_READ_S = 2.0
"""After a failed first reading, so that a slow driver start delays the host's use by no more than needed."""


class GpuWatch:
    """The host's GPUs, read periodically. ``on_names`` gets a map of UUID to CUDA's name after each change."""

    def __init__(
        self,
        source: GpuSource,
        host: host_pb2.Inventory,
        on_names: Callable[[dict[str, str]], None],
    ) -> None:
        self._source = source
        self._host = host
        self._on_names = on_names
        self._gpus: tuple[Gpu, ...] = ()
        self._problem = ""
        self._unsent = False

    @property
    def known(self) -> tuple[Gpu, ...]:
        """The host's GPUs, as of the last reading."""
        return self._gpus

    @property
    def problem(self) -> str:
        """Why they can't be read at present; empty when they can."""
        return self._problem

    def inventory(self) -> host_pb2.Inventory:
        """GPUs of the host as of the last reading."""
        self._unsent = False
        made = host_pb2.Inventory()
        made.CopyFrom(self._host)
        made.gpu_problem = self._problem
        for gpu in self._gpus:
            made.gpus.add(
                uuid=gpu.uuid,
                index=gpu.index,
                model=gpu.model,
                memory_bytes=gpu.memory_bytes,
                problem=gpu.problem,
            )
        return made

    def problems(self) -> dict[str, str]:
        """Problem of each unhealthy GPU by UUID, as of the last reading."""
        return {gpu.uuid: gpu.problem for gpu in self._gpus if gpu.problem}

    def heartbeat(self) -> agent_pb2.Heartbeat:
        """A heartbeat, with the inventory where it has changed since it was last sent."""
        beat = agent_pb2.Heartbeat(gpu_problem=self._problem)
        if self._unsent:
            beat.inventory.CopyFrom(self.inventory())
        return beat

    async def read(self) -> bool:
        """Look once. Returns whether the GPUs could be read."""
        reading = await self._source.inventory()
        if isinstance(reading, Blind):
            if self._problem != reading.reason:
                log.warning("gpus.unreadable", error=reading.reason)
                self._unsent = True
            self._problem = reading.reason
            return False
        if self._problem:
            self._problem, self._unsent = "", True
        self._gpus, changes = merge(self._gpus, reading)
        for change in changes:
            log.info("gpu.changed", kind=change.kind.value, uuid=change.gpu.uuid, error=change.gpu.problem)
        if changes:
            self._unsent = True
            # MIG instances have no index of their own; CUDA takes their UUID.
            self._on_names({gpu.uuid: gpu.uuid if gpu.parent else str(gpu.index) for gpu in self._gpus})
        return True

    async def run(self) -> None:
        """Look until cancelled."""
        readable = True
        while True:
            await anyio.sleep(READ_S if readable else FIRST_READ_S)
            readable = await self.read()
