"""The audit log: an append-only file of JSON lines in the state directory, ``audit.jsonl``.

Every call that changes something is in it, and every refusal. An entry is on disk ``DURABLE_S`` after the call at
the latest, as far as the disk goes along; a disk that doesn't ends the controller, as a failed commit does. The
file is rotated by size, so that all of it stays within ``FILES`` times ``FILE_BYTES``. Refusals beyond a rate are
only counted, and the next entry that is written of one says how many: no caller fills the disk by being refused.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast._daemon.log_file import rotate
from holdfast.errors import StoreError
from holdfast_controller.core.model.rate_limit import Buckets

DURABLE_S = 0.5
"""From the call to the disk, beside what the disk itself takes."""
FILE_BYTES = 16 << 20
FILES = 8
MAX_PENDING = 20_000
"""Entries that may wait for the disk; what comes then is only counted."""
TEXT_MOST = 300
"""Characters of each text: who is refused chooses what stands in it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call. ``time`` is wall-clock seconds; ``outcome`` is OK or the name of a gRPC status."""

    time: float
    who: str
    peer: str
    call: str
    target: str = ""
    outcome: str = "OK"
    message: str = ""
    unwritten: int = 0
    """Entries that were only counted since the last one that says so."""


class Audit:
    """The audit log of one controller. ``write`` never waits; ``run`` brings it to disk."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "audit.jsonl"
        self._pending: list[Entry] = []
        self._torn = True
        """The last line of the file may lack its end: a power cut."""
        self._unwritten = 0
        self.refusals = 0
        """Since the start, written or not."""
        self.only_counted = 0
        """Entries since the start that were not written."""
        self._wake = asyncio.Event()
        self._by_party = Buckets(burst=20, per_s=0.2)
        self._by_all = Buckets(burst=500, per_s=5)
        self._writing = asyncio.Lock()

    def write(self, entry: Entry) -> None:
        """Keep an entry."""
        if len(self._pending) >= MAX_PENDING:
            self._leave_out()
            return
        if self._unwritten and entry.outcome != "OK":
            entry, self._unwritten = replace(entry, unwritten=self._unwritten), 0
        self._pending.append(entry)
        self._wake.set()

    def refused(self, entry: Entry, now_mono: float) -> None:
        """Keep the entry of a refusal; only count it where its caller, or all together, were refused too often."""
        self.refusals += 1
        party = entry.who or entry.peer
        if self._by_party.spend(party, now_mono) and self._by_all.spend("", now_mono):
            self.write(entry)
        else:
            self._leave_out()

    def _leave_out(self) -> None:
        self._unwritten += 1
        self.only_counted += 1

    async def run(self) -> None:
        """Bring entries to disk until cancelled. Raises ``StoreError`` where that can't be done."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(DURABLE_S / 2)
            await self.flush()

    async def flush(self) -> None:
        """Return once all that was written is on disk."""
        async with self._writing:
            self._wake.clear()
            batch, self._pending = self._pending, []
            if batch:
                await asyncio.to_thread(self._append, batch)

    async def read(self, limit: int, *, who: str = "", refused: bool = False) -> list[Entry]:
        """The newest entries that match, oldest first."""
        await self.flush()
        return await asyncio.to_thread(self._read, limit, who, refused)

    def _append(self, batch: list[Entry]) -> None:
        try:
            begun = not self.path.exists()
            if not begun and self.path.stat().st_size >= FILE_BYTES:
                rotate(self._numbered, FILES - 1)
                begun = True
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(b"\n" * (self._torn and file.tell() > 0) + b"".join(map(_line, batch)))
                file.flush()
                os.fsync(file.fileno())
            if begun:
                _sync_names(self.path.parent)
            self._torn = False
        except OSError as error:
            fix = "Check the disk of the state directory, then start the controller again."
            raise StoreError(f"The audit log {self.path} cannot be written: {error.strerror}.", fix=fix) from error

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"audit.{number}.jsonl") if number else self.path

    def _read(self, limit: int, who: str, refused: bool) -> list[Entry]:
        found: list[Entry] = []
        for number in range(FILES):
            path = self._numbered(number)
            if len(found) >= limit or not path.exists():
                break
            matching = [
                entry
                for entry in _entries(path)
                if (not who or entry.who == who) and (not refused or entry.outcome != "OK")
            ]
            found = matching[-(limit - len(found)) :] + found
        return found


def _sync_names(directory: Path) -> None:
    """A power cut must not take a new file's name, and with it all that is in the file."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(entry: Entry) -> bytes:
    values = ((name, getattr(entry, name)) for name in Entry.__slots__)
    fields = {name: value[:TEXT_MOST] if isinstance(value, str) else value for name, value in values}
    return _ENCODE(fields).encode() + b"\n"


_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def _entries(path: Path) -> Iterator[Entry]:
    """A line that a power cut has left half written is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield Entry(**json.loads(line))
            except (ValueError, TypeError):
                continue
