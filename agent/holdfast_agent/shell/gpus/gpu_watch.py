"""Keeps the host's inventory: reads the GPUs now and then, and says what has changed and what is faulty."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import anyio

from holdfast._base.proto_values import timestamp
from holdfast._daemon import log
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_agent.core.gpu.faults import GpuFaults
from holdfast_agent.core.gpu.signals import GpuSignals, Xid
from holdfast_agent.core.model.gpus import Blind, Gpu, merge
from holdfast_agent.gpu.reader import GpuSource
from holdfast_agent.shell.gpus.fault_file import FaultFile

READ_S = 10.0
"""A GPU that fails while no job runs on it is noticed within this time; a reading wakes nothing up that sleeps."""
FIRST_READ_S = 2.0
"""After a failed first reading, so that a slow driver start delays the host's use by no more than needed."""


class GpuWatch:
    """The host's GPUs, read periodically. ``on_names`` gets a map of UUID to CUDA's name after each change.

    ``on_faults`` is called when a GPU has become faulty, before any reading that shows the effect is returned: then
    the controller hears of the fault before it hears of what the fault has done.
    """

    def __init__(
        self,
        source: GpuSource,
        host: host_pb2.Inventory,
        kept: FaultFile,
        on_names: Callable[[dict[str, str]], None],
        on_faults: Callable[[], object] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._host = host
        self._kept = kept
        self._on_names = on_names
        self._on_faults = on_faults
        self._wall = wall
        self.faults = GpuFaults(kept.read())
        # A GPU that is no longer listed since the agent's last run is missing, not forgotten.
        self._gpus: tuple[Gpu, ...] = tuple(one.gpu for one in self.faults.faulty.values() if one.gpu.index >= 0)
        self._problem = ""
        self._unsent = False
        self._told: dict[str, int] = {}

    @property
    def known(self) -> tuple[Gpu, ...]:
        """The host's GPUs, as of the last reading; a fault that stands is a problem of its GPU."""
        faults = {uuid: found.faults[-1].cause for uuid, found in self.faults.faulty.items()}
        return tuple(
            dataclasses.replace(gpu, problem=gpu.problem or faults.get(gpu.uuid, "")) for gpu in self._gpus
        )

    @property
    def problem(self) -> str:
        """Why they can't be read at present; empty when they can."""
        return self._problem

    def inventory(self) -> host_pb2.Inventory:
        """GPUs of the host as of the last reading."""
        self._unsent = False
        self._told = self._counts()
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
                repaired_by=self.faults.repaired.get(gpu.uuid, ""),
                faults=[
                    host_pb2.GpuFault(
                        cause=fault.cause,
                        repair=host_pb2.GpuRepair.Value(f"GPU_REPAIR_{fault.repair.name}"),
                        since=timestamp(fault.since),
                        count=fault.count,
                    )
                    for fault in self.faults.of(gpu.uuid)
                ],
            )
        return made

    def problems(self) -> dict[str, str]:
        """Problem of each unhealthy GPU by UUID, as of the last reading.

        A fault that was reported to the controller is its decision; one that it could not know of when it placed
        the worker counts here.
        """
        found = {gpu.uuid: gpu.problem for gpu in self._gpus if gpu.problem}
        counts = self._counts()
        for uuid in counts:
            if counts[uuid] > self._told.get(uuid, 0):
                found.setdefault(uuid, self.faults.of(uuid)[-1].cause)
        return found

    def _counts(self) -> dict[str, int]:
        return {uuid: sum(fault.count for fault in self.faults.of(uuid)) for uuid in self.faults.faulty}

    def hear(self, xids: Sequence[Xid], *, again: bool = True) -> None:
        """Take errors that the driver has reported; not ``again`` from the kernel's log, which tells them late."""
        for xid in xids:
            log.warning("gpu.xid", uuid=xid.uuid, xid=xid.number)
        self._note(changed=self.faults.hear(xids, self._wall(), again=again))

    def notice_lost(self, signals: tuple[GpuSignals, ...] | Blind) -> None:
        """Take a reading of activity, which shows a lost GPU sooner than the next look does."""
        if not isinstance(signals, Blind):
            lost = [gpu.uuid for gpu in signals if gpu.lost]
            self._note(changed=self.faults.lose(lost, self._wall()))

    def _note(self, *, changed: bool) -> None:
        if changed:
            self._unsent = True
            self._kept.write(self.faults.faulty.values())
            self._on_faults()

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
        enumerations = self._kept.enumerations(self._gpus)
        self._note(changed=self.faults.take(self._gpus, reading, enumerations, self._wall()))
        if changes:
            # MIG instances have no index of their own; CUDA takes their UUID.
            self._on_names({gpu.uuid: gpu.uuid if gpu.parent else str(gpu.index) for gpu in self._gpus})
        return True

    async def run(self) -> None:
        """Look until cancelled."""
        readable = True
        while True:
            await anyio.sleep(READ_S if readable else FIRST_READ_S)
            readable = await self.read()
