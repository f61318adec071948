"""Hands every new sample of a worker to those who listen to it, as lines of a recording."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import LogLine, WorkerSample, encode

WAITING_BYTES = 4 << 20
"""Kept for one listener that doesn't keep up: an hour of a usual worker, seconds of one that floods its output."""


LINES_BYTES = 256 << 10
"""Of the output in one sample, at most: the newest lines. A stream's message has a bound."""
_LINE_BYTES = 48
"""What a line costs beside its text."""


class Listener:
    """Samples one listener has not taken yet. Once ``overrun``, because it was too slow, it gets no more."""

    def __init__(self) -> None:
        self.overrun = False
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._more = asyncio.Event()

    def put(self, line: bytes) -> None:
        """Queue a line for the listener."""
        if self.overrun:
            return
        self._size += len(line)
        if self._size > WAITING_BYTES:
            self.overrun = True
            self._lines.clear()
        else:
            self._lines.append(line)
        self._more.set()

    async def get(self) -> bytes:
        """The oldest line, waited for; empty once overrun."""
        while not self._lines and not self.overrun:
            self._more.clear()
            await self._more.wait()
        if self.overrun:
            return b""
        line = self._lines.popleft()
        self._size -= len(line)
        return line


def bounded(sample: WorkerSample, limit_bytes: int) -> WorkerSample:
    """The sample without the older lines of a flood; they count as skipped output."""
    if sum(len(line.text) + _LINE_BYTES for line in sample.lines) <= limit_bytes:
        return sample
    kept: list[LogLine] = []
    left = limit_bytes
    for line in reversed(sample.lines):
        left -= len(line.text) + _LINE_BYTES
        if left < 0:
            break
        kept.append(line)
    passed = sum(len(line.text) for line in sample.lines[: len(sample.lines) - len(kept)])
    return replace(sample, lines=tuple(reversed(kept)), skipped_bytes=sample.skipped_bytes + passed)


class Listeners:
    """All listeners of one host. A sample without a listener costs one dictionary look-up."""

    def __init__(self) -> None:
        self._of: dict[WorkerId, list[Listener]] = {}

    def on_sample(self, sample: WorkerSample) -> None:
        """Give a sample to the listeners of its worker."""
        if found := self._of.get(WorkerId(sample.job, sample.worker)):
            line = f"{encode(bounded(sample, LINES_BYTES))}\n".encode("utf-8", "replace")
            for listener in found:
                listener.put(line)

    @contextlib.contextmanager
    def listening(self, key: WorkerId) -> Iterator[Listener]:
        """A listener to that worker's samples from now on."""
        listener = Listener()
        self._of.setdefault(key, []).append(listener)
        try:
            yield listener
        finally:
            self._of[key].remove(listener)
            if not self._of[key]:
                del self._of[key]
