"""What ranks print: one rank as it is, several in whole lines."""

from __future__ import annotations

import pytest

from holdfast.cli.jobs.rank_output import LONGEST_LINE_BYTES, RankOutput
from holdfast.cli.kit.console import ERR, OUT, Console
from holdfast.v1 import job_pb2


class Recorder(Console):
    """A console that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, bytes]] = []
        self.notes: list[str] = []

    def data(self, fd: int, data: bytes) -> None:
        if data:
            self.written.append((fd, data))

    def mid_line(self, fd: int) -> bool:
        here = [data for where, data in self.written if where == fd]
        return bool(here) and not here[-1].endswith(b"\n")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def on(self, fd: int) -> bytes:
        return b"".join(data for where, data in self.written if where == fd)


@pytest.fixture
def console() -> Recorder:
    return Recorder()


def chunk(
    data: bytes,
    *,
    rank: int = 0,
    worker: str = "workerpool0-0",
    generation: int = 1,
    offset: int = 0,
    err: bool = False,
) -> job_pb2.StreamLogsResponse:
    stream = job_pb2.LOG_STREAM_STDERR if err else job_pb2.LOG_STREAM_STDOUT
    return job_pb2.StreamLogsResponse(
        worker=worker, rank=rank, generation=generation, stream=stream, offset=offset, data=data
    )


def test_a_lone_rank_passes_byte_for_byte(console: Recorder) -> None:
    output = RankOutput(console, many=False)
    for piece in (b"\x00\xff half", b" line\r50%", b"\n"):
        output.show(chunk(piece))
    output.show(chunk(b"oops", err=True))
    output.finish()
    assert console.on(OUT) == b"\x00\xff half line\r50%\n"
    assert console.on(ERR) == b"oops"


def test_several_ranks_come_in_whole_lines(console: Recorder) -> None:
    output = RankOutput(console, many=True)
    output.show(chunk(b"a1 "))
    output.show(chunk(b"b1\nb2 ", rank=1, worker="workerpool1-0"))
    output.show(chunk(b"a1\na2\n"))
    output.finish()
    assert console.on(OUT).splitlines() == [
        b"[workerpool1-0 r1] b1",
        b"[workerpool0-0 r0] a1 a1",
        b"[workerpool0-0 r0] a2",
        b"[workerpool1-0 r1] b2 ",
    ]


def test_bytes_that_are_no_text_survive_among_several(console: Recorder) -> None:
    output = RankOutput(console, many=True)
    output.show(chunk(b"\xff\x00\xfe\n"))
    assert console.on(OUT) == b"[workerpool0-0 r0] \xff\x00\xfe\n"


def test_the_two_streams_of_a_rank_are_kept_apart(console: Recorder) -> None:
    output = RankOutput(console, many=True)
    output.show(chunk(b"out "))
    output.show(chunk(b"err\n", err=True))
    output.show(chunk(b"put\n"))
    assert console.on(OUT) == b"[workerpool0-0 r0] out put\n"
    assert console.on(ERR) == b"[workerpool0-0 r0] err\n"


def test_a_new_generation_ends_the_line_of_the_old(console: Recorder) -> None:
    output = RankOutput(console, many=True)
    output.show(chunk(b"died here"))
    output.show(chunk(b"again\n", generation=2))
    assert console.on(OUT).splitlines() == [b"[workerpool0-0 r0] died here", b"[workerpool0-0 r0] again"]


def test_a_line_that_never_ends_is_shown_in_pieces(console: Recorder) -> None:
    output = RankOutput(console, many=True)
    for _ in range(3):
        output.show(chunk(b"x" * LONGEST_LINE_BYTES))
    output.finish()
    assert console.on(OUT).count(b"x") == 3 * LONGEST_LINE_BYTES
    assert console.on(OUT).count(b"\n") == 2


def test_a_second_rank_in_view_starts_on_a_line_of_its_own(console: Recorder) -> None:
    output = RankOutput(console, many=False)
    output.show(chunk(b"50%"))
    output.several()
    output.show(chunk(b"boom\n", rank=3, worker="workerpool1-0"))
    output.show(chunk(b"100%\n", offset=3))
    assert console.on(OUT) == b"50%\n[workerpool1-0 r3] boom\n[workerpool0-0 r0] 100%\n"


def test_bytes_lost_to_the_bound_are_told(console: Recorder) -> None:
    output = RankOutput(console, many=False)
    output.show(chunk(b"abc"))
    output.show(chunk(b"xyz", offset=103))
    assert console.notes == ["workerpool0-0 rank 0: 100 bytes are gone; the log's bound cut them"]


def test_a_stream_that_cannot_be_read_is_told(console: Recorder) -> None:
    gone = job_pb2.StreamLogsResponse(worker="workerpool1-0", rank=1, problem="host-1 is not connected")
    RankOutput(console, many=True).show(gone)
    assert console.notes == ["workerpool1-0 rank 1: host-1 is not connected"]
    assert console.written == []
