"""Formats ranks' output for a terminal: bytes as they came, or whole lines with their rank in front."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from holdfast._base.printable import StreamFilter, one_line
from holdfast.cli.kit.console import ERR, OUT, Console, coloured, styled
from holdfast.v1 import job_pb2

LONGEST_LINE_BYTES = 64 * 1024
"""A longer line is shown in pieces: a program that never ends its line must not fill our memory."""

_COLOURS = ("36", "33", "35", "32", "34", "91", "96", "93", "95", "92", "94")

_Key = tuple[str, int, int]


@dataclass(slots=True)
class _Line:
    """The line that one stream has begun."""

    generation: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, each with its end."""
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self.parts.append(data)
            self.size += len(data)
            return [self.take() + b"\n"] if self.size > LONGEST_LINE_BYTES else []
        lines = [line + b"\n" for line in (self.take() + head).split(b"\n")]
        if rest:
            self.parts, self.size = [rest], len(rest)
        return lines

    def take(self) -> bytes:
        """The unfinished line, taken out."""
        begun = b"".join(self.parts)
        self.parts, self.size = [], 0
        return begun


class RankOutput:
    """Shows chunks of logs on stdout and stderr.

    With ``many`` ranks in view each line carries ``[worker rRANK]`` and lines are never mixed; with one, bytes
    pass as they are, progress bars and all. To a terminal goes nothing that would drive it, but for colours.
    """

    def __init__(self, console: Console, *, many: bool) -> None:
        self._console = console
        self._many = many
        self._lines: dict[_Key, _Line] = {}
        self._next: dict[tuple[_Key, int], int] = {}
        self._told: set[tuple[str, int, int, str]] = set()
        self._colour = {fd: coloured(fd) for fd in (OUT, ERR)}
        self._terminal = {fd: os.isatty(fd) for fd in (OUT, ERR)}

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
        if not self._many:
            self._console.data(fd, chunk.data)
            return
        line = self._lines.get(key)
        if line is None or line.generation != chunk.generation:
            self._end(key)
            line = self._lines[key] = _Line(chunk.generation)
        self._write(fd, chunk.worker, chunk.rank, line.feed(chunk.data))

    def finish(self) -> None:
        """Show what was begun and never ended."""
        for key in list(self._lines):
            self._end(key)
        self._console.end_style()

    def _end(self, key: _Key) -> None:
        line = self._lines.pop(key, None)
        if line is not None and (rest := line.take()):
            worker, rank, stream = key
            self._write(ERR if stream == job_pb2.LOG_STREAM_STDERR else OUT, worker, rank, [rest + b"\n"])

    def _write(self, fd: int, worker: str, rank: int, lines: list[bytes]) -> None:
        style = _COLOURS[rank % len(_COLOURS)]
        prefix = styled(f"[{one_line(worker)} r{rank}]", style, colour=self._colour[fd]).encode() + b" "
        data = b"".join(prefix + _last_state(line, terminal=self._terminal[fd]) for line in lines)
        # The rank that was alone in view may have left a line open.
        start = b"\n" if data and self._console.mid_line(fd) else b""
        self._console.data(fd, start + data)

    def _tell_problem(self, chunk: job_pb2.StreamLogsResponse) -> None:
        """Print a problem or a note once for both streams of a rank."""
        text = chunk.problem or chunk.note
        told = (chunk.worker, chunk.rank, chunk.generation, text)
        if told not in self._told:
            self._told.add(told)
            self._console.note(f"{chunk.worker} rank {chunk.rank}: {text}")

    def _tell_gap(self, key: _Key, chunk: job_pb2.StreamLogsResponse) -> None:
        expected = self._next.get((key, chunk.generation))
        if expected is not None and chunk.offset > expected:
            lost = chunk.offset - expected
            self._console.note(f"{chunk.worker} rank {chunk.rank}: {lost} bytes are gone; the log's bound cut them")
        self._next[key, chunk.generation] = chunk.offset + len(chunk.data)


def _last_state(line: bytes, *, terminal: bool) -> bytes:
    """The line; on a terminal only a progress bar's last state, in colours that end with it.

    What moves the cursor would overwrite the prefix.
    """
    if not terminal:
        return line
    shown = StreamFilter(plain=True)
    data = shown.feed(line.rstrip(b"\r\n").rpartition(b"\r")[2])
    return data + (b"\x1b[0m\n" if shown.styled else b"\n")
