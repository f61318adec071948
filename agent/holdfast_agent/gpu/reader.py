"""Sources of the agent's GPU readings: NVML through the helper process, all of it or activity alone, or simulated ones.

A reading either comes in time or is ``Blind``. ``NvmlSource`` owns at most one helper in service:

- The first call starts it. Waking idle GPUs can take many seconds, so until the helper says that it is ready a
  call that runs out of time is ``Blind``, but the helper may go on for ``start_s``.
- Once ready, a helper that does not answer within ``answer_s`` is killed. If it can't be killed (it hangs in
  the kernel) it is left alone and one replacement is tried; when that hangs too, no more are started until
  one of the two is gone.
- After each failure the next start waits, 1 s at first and doubling up to a minute. A call in that time is
  ``Blind`` at once, with the last reason.

The inventory over time (a GPU that vanished) is ``core.gpus.merge``'s business, not the source's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from holdfast._base.backoff import wait_s
from holdfast._base.codec import Format, from_plain
from holdfast._base.dataclass import dataclass
from holdfast_agent.core.doctor.gpus import DriverFacts
from holdfast_agent.core.gpu.signals import GpuSignals, Xid
from holdfast_agent.core.health.gpus import GpuHealth
from holdfast_agent.core.model.gpus import LOST, SIMULATED, Blind, Gpu, GpuUsage, Reading
from holdfast_agent.gpu.child import Child, ChildError, HelperProcess
from holdfast_agent.gpu.scripted import BadScript, SignalScript

T = TypeVar("T")
_MOST_STUCK = 2
_ANSWERS = Format(complete=True)


def _ignore(_: Sequence[Xid]) -> None:
    pass


class GpuSource(Protocol):
    """Reads the GPUs of this host. Calls may overlap; each may be cancelled."""

    on_xids: Callable[[Sequence[Xid]], None]
    """Called, before any reading is returned, with errors that the driver has reported meanwhile."""

    async def inventory(self) -> Reading | Blind:
        """Every device there is, with its problem if it has one."""

    async def usage(self) -> tuple[GpuUsage, ...] | Blind:
        """Processes and memory on each device; unidentified devices are left out, so nothing is proven of them."""

    async def signals(self) -> tuple[GpuSignals, ...] | Blind:
        """Activity of each device."""

    async def health(self) -> tuple[GpuHealth, ...] | Blind:
        """Health of each GPU, asked for once a minute."""

    async def aclose(self) -> None:
        """End the helper process, within seconds; a later call starts a new one."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of reading, in seconds."""

    answer_s: float = 5.0
    # Without persistence mode a driver wakes its GPUs one by one, a second or two each.
    start_s: float = 30.0
    backoff_s: float = 1.0
    backoff_most_s: float = 60.0

    def backoff_after(self, failures: int) -> float:
        """Seconds to wait before the next start, after that many failures in a row."""
        return wait_s(failures, self.backoff_s, self.backoff_most_s)


class NvmlSource:
    """The GPUs that the NVIDIA driver knows."""

    def __init__(
        self,
        limits: ReadLimits | None = None,
        *,
        start: Callable[[], Awaitable[Child]] = HelperProcess.start,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_xids: Callable[[Sequence[Xid]], None] = _ignore
        self._limits = limits or ReadLimits()
        self._start = start
        self._monotonic = monotonic
        self._lock = anyio.Lock()
        self._child: Child | None = None
        self._started_at = 0.0
        self._killed: list[Child] = []
        self._failures = 0
        self._not_before = 0.0
        self._last_reason = ""

    async def inventory(self) -> Reading | Blind:
        return await self._ask("inventory", Reading)

    async def usage(self) -> tuple[GpuUsage, ...] | Blind:
        return await self._ask("usage", tuple[GpuUsage, ...])

    async def signals(self) -> tuple[GpuSignals, ...] | Blind:
        return await self._ask("signals", tuple[GpuSignals, ...])

    async def health(self) -> tuple[GpuHealth, ...] | Blind:
        return await self._ask("health", tuple[GpuHealth, ...])

    async def driver(self) -> DriverFacts | Blind:
        """Facts about the driver, for the doctor."""
        return await self._ask("driver", DriverFacts)

    async def aclose(self) -> None:
        self._drop_child()
        with anyio.CancelScope(shield=True):  # bounded by wait itself
            for child in self._killed:
                await child.wait(timeout_s=1.0)

    @property
    def helper_pid(self) -> int | None:
        """Pid of the current helper, to account for its memory."""
        return self._child.pid if self._child else None

    async def _ask(self, op: str, kind: type[T]) -> T | Blind:
        """Ask the helper for ``op``, which answers with a ``kind``; callers take turns."""
        async with self._lock:
            if self._child is None and (blind := self._why_not_start()):
                return blind
            pending = False
            try:
                with anyio.fail_after(self._limits.answer_s):
                    child = await self._ready_child()
                    pending = True
                    reply = await child.ask({"op": op})
                    pending = False
            except TimeoutError:
                return self._late(pending)
            except ChildError as error:
                return self._failed(str(error))
            finally:
                if pending:  # also when the caller gave up: what it says next would answer nothing
                    self._drop_child()
            if xids := reply.get("xids"):
                self.on_xids([Xid(str(xid["uuid"]), int(xid["number"])) for xid in xids])
            if "ok" not in reply:
                # This helper may have loaded a library that was replaced since; the next one loads it again.
                return self._failed(str(reply.get("failed") or reply.get("error")))
            try:
                answer = from_plain(kind, reply["ok"], _ANSWERS)
            except ValueError as error:
                return self._failed(f"the GPU helper is of another version; restart the agent ({error})")
            self._failures = 0
            return answer

    async def _ready_child(self) -> Child:
        """The helper in service, started if need be. When cancelled, it stays."""
        if self._child is None:
            self._started_at = self._monotonic()
            self._child = await self._start()
        await self._child.wait_ready()
        return self._child

    def _late(self, pending: bool) -> Blind:
        if pending:
            return self._failed(f"the GPU driver did not answer within {self._limits.answer_s:g} s")
        if self._monotonic() - self._started_at >= self._limits.start_s:
            return self._failed(f"the GPU driver did not start within {self._limits.start_s:g} s")
        return Blind("the GPU driver is still starting")

    def _why_not_start(self) -> Blind | None:
        self._killed = [child for child in self._killed if not child.gone()]
        if len(self._killed) >= _MOST_STUCK:
            pids = ", ".join(str(child.pid) for child in self._killed)
            return Blind(f"GPU helpers hang in the driver and can't be killed (pids {pids})")
        if self._monotonic() < self._not_before:
            return Blind(self._last_reason)
        return None

    def _failed(self, reason: str) -> Blind:
        self._drop_child()
        self._failures += 1
        self._not_before = self._monotonic() + self._limits.backoff_after(self._failures)
        self._last_reason = reason
        return Blind(reason)

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._killed.append(self._child)
            self._child = None


class BorrowedGpus:
    """The GPUs that another scheduler has given to the ranks here: what they do is read, and no more.

    Which there are, and whether they are well, is that scheduler's matter. A host without any costs one look.
    """

    def __init__(self, source: GpuSource) -> None:
        self.on_xids: Callable[[Sequence[Xid]], None] = _ignore
        self._source = source
        self._source.on_xids = lambda xids: self.on_xids(xids)
        self._some: bool | None = None  # None until the first look

    async def inventory(self) -> Reading | Blind:
        return Reading(())

    async def usage(self) -> tuple[GpuUsage, ...] | Blind:
        return await self._source.usage() if self._some else ()

    async def signals(self) -> tuple[GpuSignals, ...] | Blind:
        if self._some is None:
            found = await self._source.inventory()
            if isinstance(found, Blind):
                return found
            self._some = bool(found.gpus)
            if not self._some:
                await self._source.aclose()
        return await self._source.signals() if self._some else ()

    async def health(self) -> tuple[GpuHealth, ...] | Blind:
        return ()

    async def aclose(self) -> None:
        await self._source.aclose()


class SimulatedSource:
    """GPUs that don't exist, for machines without any: always empty, always well.

    Their activity is unknown unless a script states it (see ``gpu.scripted``).
    """

    def __init__(
        self,
        host_name: str,
        count: int,
        script: Path | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_xids: Callable[[Sequence[Xid]], None] = _ignore
        self._script = SignalScript(script, monotonic) if script else None
        self._gpus = tuple(
            Gpu(f"{SIMULATED}{host_name}-{index}", index, "Simulated GPU", 16 << 30, bus_id=bus_id)
            for index, bus_id in enumerate(f"0000ffff:{slot:02x}:00.0" for slot in range(1, count + 1))
        )

    async def inventory(self) -> Reading | Blind:
        said = await self.signals()  # its script may tell of errors while no worker runs
        lost = set() if isinstance(said, Blind) else {gpu.uuid for gpu in said if gpu.lost}
        gpus = tuple(replace(gpu, problem=LOST) if gpu.uuid in lost else gpu for gpu in self._gpus)
        return Reading(gpus, physical=frozenset(gpu.uuid for gpu in self._gpus))

    async def usage(self) -> tuple[GpuUsage, ...] | Blind:
        return tuple(GpuUsage(gpu.uuid, used_bytes=0, pids=()) for gpu in self._gpus)

    async def signals(self) -> tuple[GpuSignals, ...] | Blind:
        uuids = [gpu.uuid for gpu in self._gpus]
        if self._script is None:
            return tuple(GpuSignals(uuid) for uuid in uuids)
        try:
            signals, xids = self._script.signals(uuids)
        except BadScript as error:
            return Blind(str(error))
        if xids:
            self.on_xids(xids)
        return signals

    async def health(self) -> tuple[GpuHealth, ...] | Blind:
        return ()

    async def aclose(self) -> None:
        pass
