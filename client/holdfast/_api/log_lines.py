"""Whole lines from the chunks of a job's output, each rank's streams apart."""

from __future__ import annotations

from holdfast._api.results import LogLine
from holdfast._base.printable import one_line
from holdfast.v1 import job_pb2

LONGEST_LINE_BYTES = 64 * 1024
"""A longer line comes in pieces: a program that never ends its line must not fill our memory."""
_STREAMS = {job_pb2.LOG_STREAM_STDOUT: "stdout", job_pb2.LOG_STREAM_STDERR: "stderr"}

_Key = tuple[str, int, int, int]


class LogLines:
    """Collects chunks and gives out the lines that are complete."""

    def __init__(self) -> None:
        self._begun: dict[_Key, bytes] = {}
        self._next: dict[_Key, int] = {}

    def take(self, chunk: job_pb2.StreamLogsResponse) -> list[LogLine]:
        """The lines that this chunk completes, and notes about what is missing."""
        key = (chunk.worker, chunk.rank, chunk.generation, int(chunk.stream))
        if text := chunk.problem or chunk.note:
            return [_line(key, one_line(text), "note")]
        lines = []
        expected = self._next.get(key)
        if expected is not None and chunk.offset > expected:
            lost = chunk.offset - expected
            lines.append(_line(key, f"{lost} bytes are gone; the log's bound cut them", "note"))
        self._next[key] = chunk.offset + len(chunk.data)
        *whole, rest = (self._begun.pop(key, b"") + chunk.data).split(b"\n")
        lines += [_line(key, _text(line)) for line in whole]
        while len(rest) > LONGEST_LINE_BYTES:
            lines.append(_line(key, _text(rest[:LONGEST_LINE_BYTES])))
            rest = rest[LONGEST_LINE_BYTES:]
        if rest:
            self._begun[key] = rest
        return lines

    def finish(self) -> list[LogLine]:
        """The lines that were begun and never ended."""
        return [_line(key, _text(rest)) for key, rest in sorted(self._begun.items())]


def _line(key: _Key, text: str, stream: str = "") -> LogLine:
    worker, rank, generation, number = key
    kind = stream or _STREAMS.get(job_pb2.LogStream.ValueType(number), "stdout")
    return LogLine(text=text, rank=rank, worker=worker, generation=generation, stream=kind)


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
