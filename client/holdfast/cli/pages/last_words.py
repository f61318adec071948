"""The last lines of a rank that has failed: its traceback, or what it printed at the end."""

from __future__ import annotations

from holdfast.v1 import job_pb2


class LastWords:
    """Picks from the tail of a rank's output what tells of its end.

    Of stderr all from the first traceback on, so that an exception behind another one is not cut off; without one,
    and of stdout, the last lines.
    """

    MOST_LINES = 100
    """Of each stream, looked through for a traceback."""
    MOST_BYTES = 64 * 1024
    """Of each stream, the last ones: a line may be as long as its program likes."""
    LAST_LINES = 10
    """Shown of a stream without one."""

    def __init__(self) -> None:
        self.shortened = False
        """Whether lines were left out."""
        self._tails: dict[int, job_pb2.StreamLogsResponse] = {}

    def add(self, chunk: job_pb2.StreamLogsResponse) -> None:
        """Take the next chunk of a tail of ``MOST_LINES`` lines."""
        tail = self._tails.setdefault(int(chunk.stream), job_pb2.StreamLogsResponse())
        if not tail.data:
            tail.CopyFrom(chunk)
        elif chunk.offset == tail.offset + len(tail.data):
            tail.data += chunk.data
        if len(tail.data) > 2 * self.MOST_BYTES:
            self._cut(tail)

    def chunks(self) -> list[job_pb2.StreamLogsResponse]:
        """The part that is worth showing of each stream, stdout first; its last line has an end."""
        found = []
        for stream in sorted(self._tails):
            tail = self._tails[stream]
            self._cut(tail)
            lines = tail.data.removesuffix(b"\n").split(b"\n")
            first = self._first(lines, stream)
            skipped = sum(len(line) + 1 for line in lines[:first])
            self.shortened |= tail.offset + skipped > 0
            tail.data = tail.data[skipped:]
            tail.offset += skipped
            if not tail.data.endswith(b"\n"):
                tail.data += b"\n"
            found.append(tail)
        return found

    def _cut(self, tail: job_pb2.StreamLogsResponse) -> None:
        over = max(0, len(tail.data) - self.MOST_BYTES)
        tail.data = tail.data[over:]
        tail.offset += over

    def _first(self, lines: list[bytes], stream: int) -> int:
        last = max(0, len(lines) - self.LAST_LINES)
        if stream != job_pb2.LOG_STREAM_STDERR:
            return last
        heads = (at for at, line in enumerate(lines) if b"Traceback (most recent call last)" in line)
        return min(last, next(heads, last))
