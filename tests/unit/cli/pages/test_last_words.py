"""What is shown of a rank that has failed and was not in view."""

from __future__ import annotations

from holdfast.cli.pages.last_words import LastWords
from holdfast.v1 import job_pb2

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "ValueError: bad batch",
]


def shown(out: list[str], err: list[str], *, offset: int = 0) -> tuple[list[str], list[str], bool]:
    """What is picked of two streams, and whether lines were left out; each comes in small pieces."""
    said = LastWords()
    for stream, lines in ((job_pb2.LOG_STREAM_STDOUT, out), (job_pb2.LOG_STREAM_STDERR, err)):
        data = "".join(line + "\n" for line in lines).encode()
        for at in range(0, len(data), 50):
            piece = data[at : at + 50]
            said.add(job_pb2.StreamLogsResponse(stream=stream, offset=offset + at, data=piece))
    found = {int(each.stream): each.data.decode().splitlines() for each in said.chunks()}
    return found.get(job_pb2.LOG_STREAM_STDOUT, []), found.get(job_pb2.LOG_STREAM_STDERR, []), said.shortened


def test_the_last_lines_and_the_whole_traceback() -> None:
    steps = [f"step {step}" for step in range(68)]
    deep = [TRACEBACK[0], *(f"  frame {n}" for n in range(40)), TRACEBACK[-1]]
    out, err, shortened = shown(steps, ["starting", *deep])
    assert out == steps[-LastWords.LAST_LINES :]
    assert err == deep
    assert shortened


def test_an_exception_behind_another_one_is_not_cut_off() -> None:
    chained = [
        *TRACEBACK,
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *TRACEBACK,
    ]
    assert shown([], ["x"] * 5 + chained + ["cleaning up"] * 20) == ([], [*chained, *["cleaning up"] * 20], True)


def test_stderr_without_a_traceback() -> None:
    assert shown(["a"], ["woe"] * 30) == (["a"], ["woe"] * LastWords.LAST_LINES, True)


def test_little_output_is_shown_whole() -> None:
    assert shown(["out"], ["no end"]) == (["out"], ["no end"], False)
    assert shown([], []) == ([], [], False)


def test_lines_before_the_tail_count_as_left_out() -> None:
    assert shown(["out"], [], offset=100) == (["out"], [], True)


def test_of_a_line_without_end_the_last_part_is_kept() -> None:
    said, piece = LastWords(), b"x" * 128 * 1024
    for at in range(64):
        said.add(job_pb2.StreamLogsResponse(offset=at * len(piece), data=piece))
        assert all(len(tail.data) <= 3 * LastWords.MOST_BYTES for tail in said._tails.values())
    (shown,) = said.chunks()
    assert shown.data == b"x" * LastWords.MOST_BYTES + b"\n"
    assert shown.offset + LastWords.MOST_BYTES == 64 * len(piece)
    assert said.shortened
