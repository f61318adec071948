"""The few bytes through which a training loop says how far it is: written by it, read by the agent.

One file per rank, 256 bytes, mapped into memory, so that a step costs no system call. Each field is a value of its
own, eight bytes and aligned: a reader sees the old or the new one.

| offset | type | what |
|---|---|---|
| 0 | 8 bytes | ``HFPROG1\\n`` |
| 8 | int64 | steps reported so far |
| 16 | int64 | the newest step, -1 before the first |
| 24 | float64 | CLOCK_BOOTTIME seconds of the newest report |
| 32 | int64 | declared pauses that are open |
| 40 | int64 | pid of the writer |
| 64 | 192 bytes | reason of the newest pause, UTF-8, padded with NUL |
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass

MAGIC = b"HFPROG1\n"
SIZE = 256
DIRECTORY = "HOLDFAST_PROGRESS_DIR"
"""Environment variable with the folder for a worker's files; unset outside Holdfast."""

_REPORT = struct.Struct("=qqd")
_PAUSES = struct.Struct("=q")
_REASON_AT, _REASON_BYTES = 64, 192


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress reported by a rank. ``at`` is CLOCK_BOOTTIME seconds; ``step`` is None before the first."""

    reports: int
    step: int | None
    at: float
    pid: int
    idle_reason: str | None
    """Why it is in a declared pause; None when it isn't."""


class ProgressFile:
    """The writer's side. Every method costs well under a microsecond but ``pause``, which is rare."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            os.ftruncate(descriptor, SIZE)
            self._map = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        _REPORT.pack_into(self._map, 8, 0, -1, 0.0)
        struct.pack_into("=q", self._map, 40, os.getpid())
        self._map[0:8] = MAGIC
        self._reports = 0
        self._pauses = 0

    def report(self, step: int) -> None:
        """The loop has reached ``step``."""
        self._reports += 1
        _REPORT.pack_into(self._map, 8, self._reports, step, time.clock_gettime(time.CLOCK_BOOTTIME))

    def pause(self, reason: str) -> None:
        """Declare that no progress is to be expected from now on, and why."""
        text = reason.encode(errors="replace")[:_REASON_BYTES]
        self._map[_REASON_AT : _REASON_AT + _REASON_BYTES] = text.ljust(_REASON_BYTES, b"\0")
        self._pauses += 1
        _PAUSES.pack_into(self._map, 32, self._pauses)

    def resume(self) -> None:
        """The newest pause is over."""
        self._pauses -= 1
        _PAUSES.pack_into(self._map, 32, self._pauses)


def path_for(directory: str, rank: str) -> str:
    """Path of the file that rank ``rank`` of the worker with folder ``directory`` writes."""
    return os.path.join(directory, f"r{rank}.progress")


def read(path: str) -> Progress | None:
    """Read the file; None if it is missing or not written yet."""
    try:
        # The folder is the worker's: whatever lies there must neither block nor lead elsewhere.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(handle, SIZE)
        finally:
            os.close(handle)
    except OSError:
        return None
    if len(data) < SIZE or data[:8] != MAGIC:
        return None
    reports, step, at = _REPORT.unpack_from(data, 8)
    (pauses,) = _PAUSES.unpack_from(data, 32)
    (pid,) = struct.unpack_from("=q", data, 40)
    reason = data[_REASON_AT : _REASON_AT + _REASON_BYTES].rstrip(b"\0").decode(errors="replace")
    return Progress(reports, None if step < 0 else step, at, pid, reason if pauses > 0 else None)
