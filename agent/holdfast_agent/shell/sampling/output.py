"""Reads ranks' output: the new bytes of each stream, in bounded portions, as lines."""

from __future__ import annotations

import os

from holdfast.hang.records.recording import LogLine
from holdfast_agent.core.proc.output_lines import LineCutter
from holdfast_agent.shell.sampling.guarded_reader import Subject, Turn

BYTES_MOST = 256 << 10
"""Read of one stream in one look; of a flood only the newest part is read."""
LINES_MOST, LINES_LEAST = 2_000, 20
"""Of all streams of a worker in one look, and of each of many: a short line costs the event loop some 50 us."""


class OutputStream(Subject):
    """One stream of one rank. ``from_end`` skips its present content, which an earlier run of the agent has read."""

    def __init__(self, path: str, rank: int, name: str, *, from_end: bool) -> None:
        self._path = path
        self.rank = rank
        self._name = name
        self._from_end = from_end
        self._handle = -1
        self._position = 0
        self._cutter = LineCutter()

    def close(self) -> None:
        """Let go of the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def read(self, turn: Turn, most: int = LINES_MOST) -> tuple[list[LogLine], int]:
        """Whole lines since the last read, the newest ``most`` of them, and how many bytes were skipped."""
        if self.stuck or (self._handle < 0 and not self._open(turn)):
            return [], 0
        try:
            size = turn.call(self, os.fstat, self._handle).st_size
            if size < self._position:  # the rank has cut it short, as `echo saved > /dev/stdout` does
                self._position, self._cutter = 0, LineCutter()
            if size <= self._position:
                return [], 0
            skipped = max(0, size - self._position - BYTES_MOST)
            if skipped:
                self._position += skipped
                self._cutter.skip()
            data = turn.call(self, os.pread, self._handle, size - self._position, self._position)
        except OSError:
            self.close()  # looked for again at the next look
            return [], 0
        self._position += len(data)
        lines = self._cutter.feed(data)
        skipped += sum(len(line) + 1 for line in lines[:-most])
        return [LogLine(self.rank, self._name, text) for text in lines[-most:]], skipped

    def rest(self) -> list[LogLine]:
        """The line that was begun, of a rank that has ended."""
        return [LogLine(self.rank, self._name, text) for text in self._cutter.end()]

    def _open(self, turn: Turn) -> bool:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._handle = turn.call(self, os.open, self._path, flags)
            if self._from_end:
                self._position = turn.call(self, os.fstat, self._handle).st_size
                self._cutter.skip()
        except OSError:
            return False
        self._from_end = False
        return True
