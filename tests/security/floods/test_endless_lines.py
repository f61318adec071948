"""A rank prints a line without end: whatever shows it to its user holds a little of it at a time."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._api.log_lines import LogLines
from holdfast.cli.kit.console import Console
from holdfast.cli.pages.last_words import LastWords
from holdfast.cli.pages.rank_output import RankOutput
from holdfast.v1 import job_pb2

CHUNK = b"x" * (128 << 10)
CHUNKS = 512
HELD_MOST = 4 << 20


def python_api() -> Callable[[Any], object]:
    return LogLines().take


def last_words() -> Callable[[Any], object]:
    return LastWords().add


def command_line() -> Callable[[Any], object]:
    return RankOutput(Console(), many=True).show


def bar() -> Callable[[Any], object]:
    """Drawn again and again behind carriage returns, and never ended."""
    show = RankOutput(Console(), many=True).show
    return lambda chunk: show(job_pb2.StreamLogsResponse(offset=chunk.offset, data=b"\r" + chunk.data[1:]))


@pytest.mark.parametrize("reader", [python_api, last_words, command_line, bar])
def test_a_line_without_end_is_held_in_pieces(
    reader: Callable[[], Callable[[Any], object]], capfd: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull, "wb") as nothing, capfd.disabled():
        saved = os.dup(1)
        os.dup2(nothing.fileno(), 1)
        try:
            take = reader()
            tracemalloc.start()
            for number in range(CHUNKS):
                take(job_pb2.StreamLogsResponse(offset=number * len(CHUNK), data=CHUNK))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            os.dup2(saved, 1)
            os.close(saved)
    assert peak < HELD_MOST
