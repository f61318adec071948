"""Keeps a worker's samples in a file: gzipped JSON lines, bounded, readable up to the last part after a crash.

The newest samples are what counts, so the file is two: when ``PATH`` has reached half its bound it becomes
``PATH.1``, in place of the one before.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from holdfast.hang.recording import WorkerSample, encode

LIMIT_BYTES = 64 << 20
PART_BYTES = 64 << 10
"""Text gathered before it is compressed; each part is a gzip member of its own."""


class Recorder:
    """Writes samples to ``path``. Blocks for a disk write once per part, about every half minute."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES, part_bytes: int = PART_BYTES) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._part_bytes = part_bytes
        self._lines: list[str] = []
        self._size = 0

    def write(self, sample: WorkerSample) -> None:
        """Keep one. Raises ``OSError``, and has let go of what it could not write."""
        line = encode(sample) + "\n"
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._part_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered. Raises ``OSError``."""
        if not self._lines:
            return
        data = gzip.compress("".join(self._lines).encode(), compresslevel=6)
        self._lines.clear()
        self._size = 0
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(handle).st_size + len(data) > self._limit_bytes // 2:
                os.replace(self._path, older(self._path))
                os.close(handle)
                handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.write(handle, data)
        finally:
            os.close(handle)

    close = flush


def older(path: Path) -> Path:
    """Where the first half of a recording lies once it has been parted."""
    return path.with_name(f"{path.name}.1")
