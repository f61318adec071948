"""Reads one stream of one rank: from an offset, the last lines, or a time; holes are skipped, not sent as zeros."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from holdfast_agent.shell.output.log_index import written_by

SCAN_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of a stream; all conditions hold together."""

    offset: int = 0
    tail_lines: int | None = None
    since_ms: int | None = None


class LogFile:
    """An open stream and the position in it. Raises ``OSError``. May block on a busy disk: call it in a thread."""

    def __init__(self, path: str, wanted: Wanted) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            start = max(0, wanted.offset)
            if wanted.since_ms is not None:
                start = max(start, written_by(path, wanted.since_ms))
            if wanted.tail_lines is not None:
                start = max(start, self._tail(wanted.tail_lines))
        except BaseException:
            os.close(self._handle)
            raise
        self.position = start

    def read(self, limit_bytes: int) -> tuple[int, bytes]:
        """Offset and bytes of the next data; no bytes at the current end. The offset skips data that was cut."""
        size = os.fstat(self._handle).st_size
        if self.position >= size:
            return self.position, b""
        try:
            start = os.lseek(self._handle, self.position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return self.position, b""
        data = os.pread(self._handle, min(limit_bytes, size - start), start)
        self.position = start + len(data)
        return start, data

    def close(self) -> None:
        """No further reads."""
        os.close(self._handle)

    def _tail(self, lines: int) -> int:
        """Offset at which the last ``lines`` lines start, as the stream ends now."""
        end = os.fstat(self._handle).st_size
        if lines <= 0:
            return end
        floor = self._first_byte(end)
        missing = lines
        position = end
        while position > floor:
            start = max(floor, position - SCAN_BYTES)
            block = os.pread(self._handle, position - start, start)
            cut = len(block)
            while (cut := block.rfind(b"\n", 0, cut)) >= 0:
                if start + cut + 1 == end:
                    continue  # ends the last line
                missing -= 1
                if missing == 0:
                    return start + cut + 1
            position = start
        return floor

    def _first_byte(self, size: int) -> int:
        if size == 0:
            return 0
        try:
            return os.lseek(self._handle, 0, os.SEEK_DATA)
        except OSError:
            return size
