"""Ranks' output reaches a task's own stdout and stderr as it was written."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.guard.forward import CHUNK, Forwarder

PATIENCE_S = 180.0


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe: what is forwarded comes out of the first."""
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        os.close(descriptor)


def write(logs: Path, name: str, text: bytes) -> None:
    path = logs / "job" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text)


def test_output_comes_while_it_is_written_from_new_launches_too(tmp_path: Path, ends: tuple[int, int]) -> None:
    forwarder = Forwarder(tmp_path, several=False, targets=(ends[1], ends[1]))
    forwarder.start()

    write(tmp_path, "g1/worker.r0.out", b"no line end")
    assert os.read(ends[0], CHUNK) == b"no line end"
    write(tmp_path, "g1/worker.r0.out", b", now\n")
    assert os.read(ends[0], CHUNK) == b", now\n"
    write(tmp_path, "g2/worker.r0.err", b"again\n")
    assert os.read(ends[0], CHUNK) == b"again\n"
    forwarder.finish(PATIENCE_S)


def test_of_several_ranks_only_whole_lines_come_until_the_end(tmp_path: Path, ends: tuple[int, int]) -> None:
    forwarder = Forwarder(tmp_path, several=True, targets=(ends[1], ends[1]))
    write(tmp_path, "g1/worker.r0.out", b"one\nhalf")
    write(tmp_path, "g1/worker.r1.out", b"two\n")
    forwarder.start()
    assert [os.read(ends[0], 4) for _ in range(2)] == [b"one\n", b"two\n"]

    write(tmp_path, "g1/worker.r0.out", b" and half")
    forwarder.finish(PATIENCE_S)

    assert os.read(ends[0], CHUNK) == b"half and half"


def test_what_was_cut_off_the_head_of_a_file_is_left_out(tmp_path: Path, ends: tuple[int, int]) -> None:
    forwarder = Forwarder(tmp_path, several=False, targets=(ends[1], ends[1]))
    write(tmp_path, "g1/worker.r0.out", b"")
    path = tmp_path / "job/g1/worker.r0.out"
    with path.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"the rest\n")

    forwarder.start()
    forwarder.finish(PATIENCE_S)

    assert os.read(ends[0], CHUNK).lstrip(b"\0") == b"the rest\n"


def test_what_follows_a_cut_to_nothing_comes(tmp_path: Path, ends: tuple[int, int]) -> None:
    forwarder = Forwarder(tmp_path, several=False, targets=(ends[1], ends[1]))
    forwarder.start()
    write(tmp_path, "g1/worker.r0.out", b"many words\n")
    assert os.read(ends[0], CHUNK) == b"many words\n"

    (tmp_path / "job/g1/worker.r0.out").write_bytes(b"saved\n")  # as `echo saved > /dev/stdout` does
    assert select.select([ends[0]], [], [], PATIENCE_S)[0]
    forwarder.finish(PATIENCE_S)

    assert os.read(ends[0], CHUNK) == b"saved\n"


def test_a_reader_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    forwarder = Forwarder(tmp_path, several=False, targets=(writing, writing))
    write(tmp_path, "g1/worker.r0.out", b"text\n")
    forwarder.start()

    forwarder.finish(PATIENCE_S)

    os.close(writing)
