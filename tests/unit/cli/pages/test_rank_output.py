"""What ranks print: one rank as it is, several in whole lines."""

from __future__ import annotations

import anyio
import pytest

from holdfast.cli.kit.console import ERR, OUT, Console
from holdfast.cli.pages.output_bars import LINE_S, OpenLine
from holdfast.cli.pages.rank_output import RankOutput
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
        output.show(chunk(b"x" * OpenLine.LONGEST_BYTES))
    output.finish()
    assert console.on(OUT).count(b"x") == 3 * OpenLine.LONGEST_BYTES
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


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def bar(number: int) -> bytes:
    return b"\r%3d%%|####" % number


async def later(output: RankOutput, clock: Clock, seconds: float) -> None:
    """Let ``seconds`` pass for the task that keeps bars current."""
    clock.now += seconds
    with anyio.move_on_after(0):
        await output.keep_bars_current()


@pytest.mark.anyio
async def test_a_bar_goes_into_a_pipe_as_a_line_every_few_seconds_and_as_it_was_left(console: Recorder) -> None:
    clock = Clock()
    output = RankOutput(console, many=True, clock=clock)
    for number in range(100):
        output.show(chunk(bar(number), err=True))
        await later(output, clock, 0.1)
    output.show(chunk(bar(100) + b"\n", err=True))
    shown = console.on(ERR).splitlines()
    assert shown[-1] == b"[workerpool0-0 r0] 100%|####"
    assert [line.startswith(b"[workerpool0-0 r0] ") for line in shown] == [True] * len(shown)
    assert 2 <= len(shown) <= 10 / LINE_S + 1
    assert b"\r" not in console.on(ERR)


@pytest.mark.anyio
async def test_the_last_state_of_a_bar_that_stopped_is_shown_though_nothing_follows(console: Recorder) -> None:
    clock = Clock()
    output = RankOutput(console, many=True, clock=clock)
    output.show(chunk(bar(1), err=True))
    await later(output, clock, LINE_S)
    output.show(chunk(bar(55), err=True))
    await later(output, clock, LINE_S - 1)
    assert console.on(ERR).splitlines() == [b"[workerpool0-0 r0]   1%|####"]
    await later(output, clock, 1)
    assert console.on(ERR).splitlines()[1:] == [b"[workerpool0-0 r0]  55%|####"]
    await later(output, clock, 3600)
    assert len(console.on(ERR).splitlines()) == 2


@pytest.mark.anyio
async def test_many_bars_share_the_bound_on_lines(console: Recorder) -> None:
    clock = Clock()
    output = RankOutput(console, many=True, clock=clock)
    for number in range(60):
        for rank in range(100):
            output.show(chunk(bar(number), rank=rank))
        await later(output, clock, 1)
    assert len(console.on(OUT).splitlines()) <= 120


def test_an_old_bar_is_one_line_however_often_it_was_drawn(console: Recorder) -> None:
    output = RankOutput(console, many=False, tail=True)
    for number in range(0, 100, 10):
        output.show(chunk(bar(number), err=True))
    output.show(chunk(bar(100) + b"\ndone\nmore", err=True))
    output.finish()
    assert console.on(ERR) == b"100%|####\ndone\nmore"


def test_of_a_bar_that_has_no_end_yet_the_tail_shows_its_newest_state(console: Recorder) -> None:
    output = RankOutput(console, many=False, tail=True)
    output.show(chunk(b"".join(map(bar, range(50)))))
    output.finish()
    assert console.on(OUT) == b" 49%|####\n"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"plain\r\n", b"plain\r\n"),
        (b"a\rb\rc\n", b"c\n"),
        (b"10%\r20%\r\n", b"20%\r\n"),
        (b"\r 10%|#\r        \rsaved\n", b"saved\n"),
        (b"\r 10%|#\r\x1b[K\n", b" 10%|#\n"),
    ],
)
@pytest.mark.parametrize("size", [1000, 7, 1])
def test_a_line_is_shown_as_a_terminal_would_leave_it(printed: bytes, shown: bytes, size: int) -> None:
    line = OpenLine(1)
    pieces = [printed[at : at + size] for at in range(0, len(printed), size)]
    assert b"".join(part for piece in pieces for part in line.feed(piece)) == shown


def test_an_inner_bar_of_tqdm_takes_no_line_for_each_state() -> None:
    line = OpenLine(1)
    drawn = b"\router 1" + b"".join(b"\n\rinner %d\x1b[A" % number for number in range(50)) + b"\router 2"
    assert line.feed(drawn) == []
    assert line.state() == b"outer 2"
    assert line.feed(b"\n") == [b"outer 2\n"]
