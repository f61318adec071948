"""Reads one stream of one rank: from an offset, the last lines, or a time; holes are skipped, not sent as zeros.

The rank can write anything to the file, and where the agent isn't root put anything in its place. So each call reads a
bounded number of bytes, whatever the file claims to be.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from holdfast._base.dataclass import dataclass
from holdfast_agent.shell.output.archive_copy import tail
from holdfast_agent.shell.output.log_index import written_by

SCAN_BYTES = 1 << 20
TAIL_MOST_BYTES, TAIL_MOST_S = 64 << 20, 5.0
"""The last lines are looked for so far back, and so long; a stream without line ends is given from there on."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of a stream; all conditions hold together."""

    offset: int = 0
    tail_lines: int | None = None
    since_ms: int | None = None
    end: int | None = None
    """Byte at which the part ends; the last lines are those before it."""


class LogFile:
    """An open stream and the position in it. Raises ``OSError``. May block on a busy disk: call it in a thread.

    Closed with its last reference, so that a thread that was left behind in a read has its file to itself.
    """

    def __init__(self, path: str, wanted: Wanted) -> None:
        self._handle = -1
        self._end = wanted.end
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        start = max(0, wanted.offset)
        if wanted.since_ms is not None:
            start = max(start, written_by(path, wanted.since_ms))
        if wanted.tail_lines is not None:
            start = max(start, self._tail(wanted.tail_lines))
        self.position = start

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    @property
    def size(self) -> int:
        """Bytes of the stream by now, holes included, up to the end that is wanted."""
        size = os.fstat(self._handle).st_size
        return size if self._end is None else min(size, self._end)

    def read(self, limit_bytes: int) -> tuple[int, bytes]:
        """Offset and bytes of the next data; no bytes at the current end. The offset skips data that was cut."""
        size = self.size
        if self.position >= size:
            return self.position, b""
        try:
            start = min(size, os.lseek(self._handle, self.position, os.SEEK_DATA))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return self.position, b""
        data = os.pread(self._handle, min(limit_bytes, size - start), start)
        self.position = start + len(data)
        return start, data

    def _tail(self, lines: int) -> int:
        """Offset at which the last ``lines`` lines start, as the stream ends now."""
        end = self.size
        floor = max(self._first_byte(end), end - TAIL_MOST_BYTES)
        return tail(self._handle, end, lines, floor, SCAN_BYTES, time.monotonic() + TAIL_MOST_S)

    def _first_byte(self, size: int) -> int:
        if size == 0:
            return 0
        try:
            return os.lseek(self._handle, 0, os.SEEK_DATA)
        except OSError:
            return size
