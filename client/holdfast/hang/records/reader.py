"""Reads the files that ``holdfast hang record`` wrote: gzipped or plain lines of ``recording``, oldest first.

A recording that was cut off by a crash, or is still being written, ends at its last whole line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.hang.records.recording import WorkerSample, decode


def read(path: Path) -> Iterator[WorkerSample]:
    """The samples of a recording, with its older half if there is one. Raises ``RecordingError``, ``OSError``."""
    older = path.with_name(f"{path.name}.1")
    for part in (older, path) if older.exists() else (path,):
        for line in _lines(part):
            if line.endswith("\n") and line.strip():
                yield decode(line)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    opener = gzip.open if packed else open
    with opener(path, "rt", encoding="utf-8") as lines:
        try:
            yield from lines
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return
