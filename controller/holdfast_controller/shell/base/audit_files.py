"""One trail of the audit log on disk: files of JSON lines with a hash chain, bounded in size and age.

Full files are ``audit.1.jsonl`` and so on, the newest first. Everything here blocks; call it from a thread.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from holdfast._base.dataclass import dataclass
from holdfast._base.durable import sync
from holdfast._daemon.log_file import rotate
from holdfast._security import audit_chain
from holdfast.errors import StoreError
from holdfast_controller.core.access.audit import Entry, Trail

NAMES = {
    Trail.ADMINS: "audit-admins.jsonl",
    Trail.USERS: "audit.jsonl",
    Trail.UNKNOWN: "audit-unknown.jsonl",
}
"""The file of each trail that is written; that of users has the name from before there were trails."""
FILES = 8
"""Of each trail, the one that is written included."""
TEXT_BYTES = 300
"""Bytes of each text as JSON: the caller who is refused chooses what is in it."""
SILENCE_S = 86_400.0
"""After so long without an entry, or a wall clock that was set forward, ages are believed from the next file on."""
_LATEST = 1e11
"""A later time, past the year 5000, is none."""
_TAIL_BYTES = 1 << 20
"""The newest line is looked for in so much of a file's end."""


@dataclass(frozen=True)
class Retention:
    """How much of each trail is kept."""

    total_bytes: int = 128 << 20
    age_s: float = 400 * 86_400.0


class TrailFiles:
    """The files of one trail."""

    def __init__(self, directory: Path, trail: Trail, retention: Retention) -> None:
        self._directory = directory
        self.trail = trail
        self._retention = retention
        self._stem = NAMES[trail].removesuffix(".jsonl")
        self._number, self._head = -1, ""
        """Number and hash of the newest line; -1: not read yet."""
        self._sealed = False
        """The newest file ends in the chain; one of an older release doesn't."""
        self._torn = True
        """The last line of the file may lack its end: a power cut."""
        self._begun = 0.0

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._numbered(0)

    def append(self, entries: list[Entry]) -> list[bytes]:
        """Bring entries to disk; returns their lines. Raises ``StoreError``."""
        try:
            return self._append(entries)
        except OSError as error:
            fix = "Check the disk of the state directory, then start the controller again."
            raise StoreError(f"The audit log {self.path} cannot be written: {error.strerror}.", fix=fix) from error

    def _append(self, entries: list[Entry]) -> list[bytes]:
        if self._number < 0:
            self._resume()
        begun = not self.path.exists()
        if not begun and self._is_full():
            rotate(self._numbered, FILES - 1)
            begun = True
        number, head = self._number, self._head
        lines: list[bytes] = []
        fields = [_fields(entry) for entry in entries]
        if begun or not self._sealed:
            fields.insert(0, {"time": time.time(), audit_chain.TRAIL: self.trail.value, audit_chain.FOLLOWS: head})
        for each in fields:
            number += 1
            line, head = audit_chain.seal(each, number, head)
            lines.append(line)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(b"\n" * (self._torn and file.tell() > 0) + b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        if begun:
            self._begun = time.time()
            self._prune()
            sync(self._directory)
        self._number, self._head, self._sealed, self._torn = number, head, True, False
        return lines

    def _resume(self) -> None:
        """Find the newest line of the chain, in the newest file that has one."""
        number, head, sealed = 0, audit_chain.GENESIS, False
        for at, path in enumerate(self._files()):
            newest = _newest(path)
            if newest is not None:
                (fields, head), sealed = newest, at == 0 and path == self.path
                number = fields["n"]
                break
        if self.path.exists():
            first = next(iter(_read(self.path)), {})
            self._begun = _moment(first) or 0.0
        self._number, self._head, self._sealed = number, head, sealed

    def _is_full(self) -> bool:
        old = time.time() - self._begun > self._retention.age_s / FILES
        return old or self.path.stat().st_size >= self._retention.total_bytes // FILES

    def _prune(self) -> None:
        """Remove full files whose newest entry is older than what is kept."""
        now, full = time.time(), self._files()[1:]
        if full and now - full[0].stat().st_mtime > SILENCE_S:
            return
        for path in full:
            if path.stat().st_mtime < now - self._retention.age_s:
                path.unlink()

    def read(self, limit: int, who: str, refused: bool) -> list[Entry]:
        """The newest entries that match, oldest first."""
        found: list[Entry] = []
        for path in self._files():
            if len(found) >= limit:
                break
            matching = [
                entry
                for entry in filter(None, map(_entry, _read(path)))
                if (not who or entry.who == who) and (not refused or entry.outcome != "OK")
            ]
            found = matching[-(limit - len(found)) :] + found
        return found

    def open_all(self) -> list[BinaryIO]:
        """The files, oldest first, open for reading: what is rotated meanwhile stays readable."""
        return [path.open("rb") for path in reversed(self._files())]

    def _numbered(self, number: int) -> Path:
        return self._directory / (f"{self._stem}.{number}.jsonl" if number else f"{self._stem}.jsonl")

    def _files(self) -> list[Path]:
        """The files that are there, the newest first."""
        return [path for path in map(self._numbered, range(FILES)) if path.exists()]


def _fields(entry: Entry) -> dict[str, object]:
    values = ((name, getattr(entry, name)) for name in Entry.__slots__)
    return {name: cut(value) if isinstance(value, str) else value for name, value in values}


def cut(text: str) -> str:
    """A text within ``TEXT_BYTES`` of JSON."""
    text = text[:TEXT_BYTES]
    while (over := len(json.dumps(text)) - 2 - TEXT_BYTES) > 0:
        text = text[: -max(over // 12, 1)]
    return text


def _newest(path: Path) -> tuple[dict[str, Any], str] | None:
    """(fields, hash) of the newest line of a file that has a hash; None if none has."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        found = (audit_chain.opened(line) for line in reversed(file.read().splitlines()))
        return next((each for each in found if each is not None), None)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; one that a power cut has left half written is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                yield fields


def _entry(fields: dict[str, Any]) -> Entry | None:
    """The entry of a line; None for the first line of a file, and for one that was damaged."""
    try:
        found = Entry(**{name: fields[name] for name in fields.keys() & set(Entry.__slots__)})
    except TypeError:
        return None
    texts = (found.who, found.peer, found.call, found.target, found.outcome, found.message)
    whole = all(isinstance(text, str) for text in texts) and isinstance(found.unwritten, int)
    return found if whole and _moment(fields) is not None else None


def _moment(fields: dict[str, Any]) -> float | None:
    """The time of a line; None for one that was damaged."""
    at = fields.get("time")
    return float(at) if isinstance(at, int | float) and 0 <= at < _LATEST else None
