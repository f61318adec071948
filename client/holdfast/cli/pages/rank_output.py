"""Formats ranks' output for a terminal: bytes as they came, or whole lines with their rank in front."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import anyio

from holdfast._base.printable import StreamFilter, one_line
from holdfast.cli.kit.console import ERR, OUT, Console, coloured, styled
from holdfast.cli.pages.output_bars import BarKey, OpenLine, ProgressBars
from holdfast.v1 import job_pb2

_COLOURS = ("36", "33", "35", "32", "34", "91", "96", "93", "95", "92", "94")


class RankOutput:
    """Shows chunks of logs on stdout and stderr.

    With ``many`` ranks in view each line carries ``[worker rRANK]``, lines are never mixed, and of a progress bar the
    newest state is shown while ``keep_bars_current`` runs; with one, bytes pass as they are, but with ``tail`` a bar is
    shown as among many: it is one line, however often it was drawn. To a terminal goes nothing that would drive it,
    but for colours and what redraws a bar.
    """

    def __init__(
        self, console: Console, *, many: bool, tail: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._many = many
        self._tail = tail
        self._clock = clock
        self._lines: dict[BarKey, OpenLine] = {}
        self._next: dict[tuple[BarKey, int], int] = {}
        self._told: set[tuple[str, int, int, str]] = set()
        self._colour = {fd: coloured(fd) for fd in (OUT, ERR)}
        self._terminal = {fd: os.isatty(fd) for fd in (OUT, ERR)}
        self._bars = ProgressBars(console, self._prefix, lambda fd, key, line: self._write(fd, key, [line]))
        self._fed = anyio.Event()

    def several(self) -> None:
        """Prefix lines with their rank from now on."""
        self._many = True

    def show(self, chunk: job_pb2.StreamLogsResponse) -> None:
        """Print one chunk. Raises ``OutputClosed`` if stdout was closed."""
        if chunk.problem or chunk.note:
            self._tell_problem(chunk)
            return
        key = (chunk.worker, chunk.rank, int(chunk.stream))
        self._tell_gap(key, chunk)
        fd = ERR if chunk.stream == job_pb2.LOG_STREAM_STDERR else OUT
        if self._many or self._tail:
            self._show_lines(key, fd, chunk)
        else:
            self._console.data(fd, chunk.data)
        self.wake()

    def shown_to(self, chunk: job_pb2.StreamLogsResponse) -> int:
        """The byte up to which the chunk's stream has been shown; 0 if nothing of it has."""
        return self._next.get(((chunk.worker, chunk.rank, int(chunk.stream)), chunk.generation), 0)

    async def fed(self) -> None:
        """Wait for the next chunk, or for ``wake``."""
        await self._fed.wait()

    def wake(self) -> None:
        """End the wait of all that wait for a chunk."""
        self._fed.set()
        self._fed = anyio.Event()

    async def keep_bars_current(self) -> None:
        """Show what progress bars come to, until cancelled. Raises ``OutputClosed`` if stdout was closed."""
        while True:
            wait_s = self._bars.show(self._clock())
            if wait_s is None:
                await self.fed()
            else:
                await anyio.sleep(wait_s)

    def finish(self) -> None:
        """Show what was begun and never ended."""
        for key in list(self._lines):
            self._end(key)
        self._console.end_live()
        self._console.end_style()

    def _show_lines(self, key: BarKey, fd: int, chunk: job_pb2.StreamLogsResponse) -> None:
        line = self._lines.get(key)
        if line is None or line.generation != chunk.generation:
            self._end(key)
            line = self._lines[key] = OpenLine(chunk.generation)
        lines = line.feed(chunk.data)
        self._bars.update(key, fd, line.state(), self._clock())
        self._write(fd, key, lines)
        if not self._many and not line.state():
            self._console.data(fd, line.take())

    def _end(self, key: BarKey) -> None:
        line = self._lines.pop(key, None)
        if line is None:
            return
        fd = ERR if key[2] == job_pb2.LOG_STREAM_STDERR else OUT
        self._bars.update(key, fd, b"", self._clock())
        if rest := line.take():
            self._write(fd, key, [rest + b"\n"])

    def _write(self, fd: int, key: BarKey, lines: list[bytes]) -> None:
        style = _COLOURS[key[1] % len(_COLOURS)]
        prefix = self._prefix(key).rstrip()
        start = styled(prefix, style, colour=self._colour[fd]).encode() + b" " if prefix else b""
        data = b"".join(start + (_plain(line) if start and self._terminal[fd] else line) for line in lines)
        # The rank that was alone in view may have left a line open.
        begin = b"\n" if data and self._many and self._console.mid_line(fd) else b""
        self._console.data(fd, begin + data)

    def _prefix(self, key: BarKey) -> str:
        return f"[{one_line(key[0])} r{key[1]}] " if self._many else ""

    def _tell_problem(self, chunk: job_pb2.StreamLogsResponse) -> None:
        """Print a problem or a note once for both streams of a rank."""
        text = chunk.problem or chunk.note
        told = (chunk.worker, chunk.rank, chunk.generation, text)
        if told not in self._told:
            self._told.add(told)
            self._console.note(f"{chunk.worker} rank {chunk.rank}: {text}")

    def _tell_gap(self, key: BarKey, chunk: job_pb2.StreamLogsResponse) -> None:
        if chunk.line_offsets:
            return
        expected = self._next.get((key, chunk.generation))
        if expected is not None and chunk.offset > expected:
            lost = chunk.offset - expected
            self._console.note(f"{chunk.worker} rank {chunk.rank}: {lost} bytes are gone; the log's bound cut them")
        self._next[key, chunk.generation] = chunk.offset + len(chunk.data)


def _plain(line: bytes) -> bytes:
    """The line in colours that end with it. What moves the cursor would overwrite the prefix."""
    shown = StreamFilter(plain=True)
    data = shown.feed(line.rstrip(b"\r\n"))
    return data + (b"\x1b[0m\n" if shown.styled else b"\n")
