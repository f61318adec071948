"""Reads the files that ``holdfast hang record`` wrote: gzipped or plain lines of ``recording``, oldest first.

A recording that was cut off by a crash, or is still being written, ends at its last whole line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from holdfast.hang.records.recorder import SETTINGS_EVERY, older
from holdfast.hang.records.recording import RecordingError, WorkerSample, decode
from holdfast.hang.thresholds import HangSettings

PIECE_BYTES = 64 << 10
LINE_BYTES = 1 << 20
"""No sample is longer."""


def read(path: Path) -> Iterator[WorkerSample]:
    """The samples of a recording, with its older half if there is one. Raises ``RecordingError``, ``OSError``."""
    for part in (older(path), path) if older(path).exists() else (path,):
        for number, line in enumerate(_lines(part), 1):
            if line.endswith("\n") and line.strip():
                try:
                    yield decode(line)
                except RecordingError as error:
                    raise RecordingError(f"{part}, line {number}: {error.message}") from error


def settings_of(path: Path) -> HangSettings | None:
    """The job's settings, where the recording has them. Raises as ``read`` does."""
    found = (sample.settings for _, sample in zip(range(SETTINGS_EVERY), read(path), strict=False))
    return next((settings for settings in found if settings is not None), None)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    opener = gzip.open if packed else open
    with opener(path, "rt", encoding="utf-8") as lines:
        try:
            yield from lines
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return


def unpacked(data: bytes) -> Iterator[bytes]:
    """Lines of gzip members in a row, in pieces of whole lines; ends where the data is cut off or damaged."""
    rest = b""
    while data:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            try:
                piece = member.decompress(data, PIECE_BYTES)
            except zlib.error:
                return
            data = member.unconsumed_tail
            if not (piece or data) or len(rest) > LINE_BYTES:
                return
            whole, newline, rest = (rest + piece).rpartition(b"\n")
            if newline:
                yield whole + newline
        data = member.unused_data
