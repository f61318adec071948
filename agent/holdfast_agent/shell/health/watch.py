"""Looks at the hardware once a minute, and keeps what it has found for the agent's next run in this boot."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from holdfast._daemon import log
from holdfast._daemon.abandonable import Late, Threads
from holdfast.doctor.findings import Finding
from holdfast_agent.core.gpu.signals import Xid
from holdfast_agent.core.health import gpus as gpu_health
from holdfast_agent.core.health.engine import Engine, Kept, Reading, counted
from holdfast_agent.core.health.kernel_log import GpuError, Said, SwitchError, place, unrepaired
from holdfast_agent.core.health.site_rules import HealthRule, rules
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.gpu.reader import GpuSource
from holdfast_agent.shell.base.boot_file import BootFile
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.health import sysfs
from holdfast_agent.shell.health.driver_threads import DriverThreads
from holdfast_agent.shell.health.kmsg import MOST_TOLD, KernelLog
from holdfast_agent.shell.health.site_checks import SiteChecks

WITHIN_S = 20.0
_SYSFS, _PROC = Path("/sys"), Path("/proc")


class HealthWatch:
    """The health of one host. ``path`` is where open findings are kept; ``root`` and ``proc`` are the kernel's."""

    def __init__(
        self,
        source: GpuSource,
        gpus: GpuWatch,
        path: Path,
        root: Path = _SYSFS,
        kernel_log: KernelLog | None = None,
        site: Mapping[str, HealthRule] | None = None,
        proc: Path = _PROC,
    ) -> None:
        self._driver_threads = DriverThreads(proc)
        self._source = source
        self._gpus = gpus
        self._kept = BootFile(path, "findings", tuple[Kept, ...], ())
        self._root = root
        self._kernel_log = kernel_log or KernelLog()
        self._threads = Threads(each=1, most=1)
        self._switch_errors: dict[str, int] = {}
        self._heard: deque[tuple[list[Said], bool, bool]] = deque()
        """What the kernel's log has said, not judged yet; whether it was read to its end before that, and with it."""
        self._before: list[GpuError] = []
        """Errors from before the agent, until all of that time is read: the driver may have been loaded later."""
        self._unplaced: list[GpuError] = []
        self._rules = rules(site or {})
        self.site_checks = SiteChecks(site or {})
        self._engine = Engine(self._rules, self._kept.load(), _now())

    async def look(self) -> list[Finding]:
        """Read everything once. Returns what stands; what can't be read stays as it was."""
        readings: list[Reading] = []
        try:
            readings += await self._threads.call("health", WITHIN_S, self._ask_kernel)
        except Late:
            log.warning("health.late", within_s=WITHIN_S)
        while self._heard:
            said, new, all_read = self._heard.popleft()
            readings += self._count(said, old=not new)
            if new:
                self._unplaced += [each for each in said if isinstance(each, GpuError)]
            else:
                self._before = unrepaired([*self._before, *said])
            if all_read:
                self._unplaced += self._before
                self._before = []
        self._place()
        found = await self._source.health()
        if not isinstance(found, Blind):
            known = {gpu.uuid: gpu for gpu in self._gpus.known}
            readings += gpu_health.readings(found, known, self._gpus.faults.enumerations)
        readings += self.site_checks.readings()
        readings = [each for each in readings if each.rule in self._rules]
        if self._engine.take(readings, _now()):
            self._kept.try_to_save(tuple(self._engine.kept()))
        return self._engine.findings()

    def close(self) -> None:
        """End what is no longer needed."""
        self._threads.close()
        self._kernel_log.close()

    def _ask_kernel(self) -> list[Reading]:
        """In a thread that may be left behind, with a file of a device that is ill: the log, read once, is kept."""
        new = self._kernel_log.caught_up
        said = self._kernel_log.news()
        self._heard.append((said, new, self._kernel_log.caught_up))
        return [*sysfs.look(self._root), *self._driver_threads.look()]

    def _count(self, said: Iterable[Said], *, old: bool) -> Iterator[Reading]:
        """Errors of switches; the ``old`` ones are where counting begins."""
        for each in said:
            if isinstance(each, SwitchError):
                if not old:
                    yield self._switch(each.bus)
                self._switch_errors[each.bus] = self._switch_errors.get(each.bus, 0) + 1
        for bus in self._switch_errors:
            yield self._switch(bus)

    def _switch(self, bus: str) -> Reading:
        return counted("nvswitch.fatal", bus, self._switch_errors.get(bus, 0), "fatal error{} (SXid) of the switch")

    def _place(self) -> None:
        """Tell the GPUs' watch of errors in the kernel's log, once it knows which GPU is where on the bus."""
        at: dict[str, list[str]] = {}
        for gpu in self._gpus.known:
            at.setdefault(place(gpu.bus_id), []).append(gpu.uuid)
        if at and self._unplaced:
            found = [
                Xid(uuid, each.xid, fatal=each.fatal) for each in self._unplaced for uuid in at.get(each.bus, ())
            ]
            self._unplaced.clear()
            self._gpus.hear(found, again=False)
        del self._unplaced[:-MOST_TOLD]


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
