"""Position of a log reader, so that a broken stream can be opened again without a gap or a repetition."""

from __future__ import annotations

from holdfast.v1 import agent_pb2, job_pb2

_StreamKey = tuple[str, int, int, int]


def log_end(chunk: job_pb2.StreamLogsResponse | agent_pb2.TransferChunk) -> int:
    """The first byte of the stream after the chunk; of lines that were searched for, after the text of the last one.

    The line end of that is not counted: a host adds one to each piece of a line that is too long to be sent whole.
    """
    if not chunk.line_offsets:
        return chunk.offset + len(chunk.data)
    return chunk.line_offsets[-1] + len(chunk.data) - 1 - (chunk.data.rfind(b"\n", 0, -1) + 1)


class LogPosition:
    """Remembers the next byte of every stream seen, and cuts what was delivered already."""

    def __init__(self, request: job_pb2.StreamLogsRequest) -> None:
        self._request = request
        self._next: dict[_StreamKey, int] = {}
        self._told: set[tuple[_StreamKey, str]] = set()

    def request(self) -> job_pb2.StreamLogsRequest:
        """The next request: at first the original one, later from the generation that every stream seen has reached.

        The tail goes, because counting it again from a later end would skip lines.
        """
        again = job_pb2.StreamLogsRequest()
        again.CopyFrom(self._request)
        if self._next:
            again.ClearField("tail_lines")
            if self._request.follow:
                newest: dict[tuple[str, int, int], int] = {}
                for worker, rank, generation, stream in self._next:
                    newest[worker, rank, stream] = max(generation, newest.get((worker, rank, stream), 0))
                again.generation = min(newest.values())
        return again

    def accept(self, chunk: job_pb2.StreamLogsResponse) -> job_pb2.StreamLogsResponse | None:
        """The part of the chunk that is new, or ``None``."""
        key = (chunk.worker, chunk.rank, chunk.generation, int(chunk.stream))
        if text := chunk.problem or chunk.note:
            if (key, text) in self._told:
                return None
            self._told.add((key, text))
            return chunk
        end = log_end(chunk)
        seen = self._next.get(key)
        if seen is not None and end <= seen:
            return None
        self._next[key] = end
        if seen is None or chunk.offset >= seen:
            return chunk
        fresh = job_pb2.StreamLogsResponse()
        fresh.CopyFrom(chunk)
        if chunk.line_offsets:
            known = sum(at < seen for at in chunk.line_offsets)
            if known == len(chunk.line_offsets):  # the last line has grown since
                return None
            fresh.ClearField("line_offsets")
            fresh.line_offsets.extend(chunk.line_offsets[known:])
            fresh.offset = fresh.line_offsets[0]
            fresh.data = b"\n".join(chunk.data.split(b"\n")[known:])
            return fresh
        fresh.data = chunk.data[seen - chunk.offset :]
        fresh.offset = seen
        return fresh
