"""The audit log: append-only files of JSON lines in the state directory, ``audit*.jsonl``.

Every call that changes something is in it, and every refusal, by trail (``core.access.audit``). An entry is on disk
``DURABLE_S`` after the call at the latest, as far as the disk goes along; a disk that doesn't ends the controller, as
a failed commit does. Each trail is bounded in size and age and has a hash chain (``holdfast._security.audit_chain``).
Where a syslog server is configured, each line is sent there too.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from pathlib import Path
from typing import BinaryIO

from holdfast._daemon.tls_door import network_of
from holdfast_controller.core.access.audit import SUMMARY_S, AuditLimits, Entry, Trail
from holdfast_controller.shell.base.audit_files import Retention, TrailFiles
from holdfast_controller.shell.base.audit_syslog import SyslogCopy

DURABLE_S = 0.5
"""From the call to the disk, beside what the disk itself takes."""
MAX_PENDING = 20_000
"""Entries that may wait for the disk; further ones are only counted."""


class Audit:
    """The audit log of one controller. ``write`` never waits; ``run`` brings it to disk."""

    def __init__(
        self, directory: Path, retention: Retention | None = None, syslog: SyslogCopy | None = None
    ) -> None:
        self._files = {trail: TrailFiles(directory, trail, retention or Retention()) for trail in Trail}
        self._limits = {trail: AuditLimits(trail) for trail in Trail}
        self._pending: list[tuple[Trail, Entry]] = []
        self._overflow = 0
        self.syslog = syslog
        self.refusals = 0
        """Since the start, written or not."""
        self.only_counted = 0
        """Entries since the start that were not written one by one."""
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    def write(self, entry: Entry, trail: Trail = Trail.USERS) -> None:
        """Keep the entry of a call; only count it where its caller has used up its allowance."""
        self._admit(entry, trail, refused=False)

    def refused(self, entry: Entry, trail: Trail = Trail.USERS) -> None:
        """Keep the entry of a refusal, within an allowance that is smaller."""
        self.refusals += 1
        self._admit(entry, trail, refused=True)

    def _admit(self, entry: Entry, trail: Trail, *, refused: bool) -> None:
        origin = network_of(entry.peer)
        if not self._limits[trail].admit(entry, time.monotonic(), refused=refused, origin=origin):
            self.only_counted += 1
        elif len(self._pending) >= MAX_PENDING:
            self.only_counted += 1
            self._overflow += 1
        else:
            self._pending.append((trail, entry))
        self._wake.set()

    async def run(self) -> None:
        """Bring entries to disk until cancelled. Raises ``StoreError`` where that can't be done."""
        while True:
            try:
                async with asyncio.timeout(SUMMARY_S / 2):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._summarise(at_once=False)
            await asyncio.sleep(DURABLE_S / 2)
            await self._flush()

    async def copy(self) -> None:
        """Send lines to the syslog server, where one is configured, until cancelled."""
        if self.syslog is not None:
            await self.syslog.run()
        await asyncio.Event().wait()

    def _summarise(self, *, at_once: bool) -> None:
        now = time.monotonic()
        for trail, limits in self._limits.items():
            self._pending += [(trail, entry) for entry in limits.summaries(now, at_once=at_once)]
        if self._overflow:
            lost, self._overflow = self._overflow, 0
            words = f"{lost} entries could not be kept: the disk was too slow"
            self._pending.append((Trail.ADMINS, Entry(time.time(), "", "", "", message=words, unwritten=lost)))

    async def flush(self) -> None:
        """Return once all that was written or counted is on disk."""
        self._summarise(at_once=True)
        await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            self._wake.clear()
            batch, self._pending = self._pending, []
            for trail, files in self._files.items():
                entries = [entry for its, entry in batch if its is trail]
                if entries:
                    lines = await asyncio.to_thread(files.append, entries)
                    if self.syslog is not None:
                        self.syslog.put(lines)

    async def read(
        self, limit: int, *, who: str = "", refused: bool = False, trail: Trail | None = None
    ) -> list[Entry]:
        """The newest entries that match, of all trails unless one is named, oldest first."""
        await self.flush()
        wanted = [files for its, files in self._files.items() if trail in (None, its)]
        found = [await asyncio.to_thread(files.read, limit, who, refused) for files in wanted]
        return list(heapq.merge(*(sorted(each, key=_time) for each in found), key=_time))[-limit:]

    async def open_all(self) -> list[tuple[Trail, list[BinaryIO]]]:
        """Each trail's files as they are now, oldest first, open for reading. Close them."""
        await self.flush()
        async with self._writing:
            return [(trail, await asyncio.to_thread(files.open_all)) for trail, files in self._files.items()]


def _time(entry: Entry) -> float:
    return entry.time
