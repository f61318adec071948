"""Lines that contain a text are found however a stream is cut into pieces, with their offsets, in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_agent.shell.output.line_search import (
    LONGEST,
    PIECE_BYTES,
    PIECE_LINES,
    Found,
    LineSearch,
    SearchedLog,
)
from holdfast_agent.shell.output.log_reader import LogFile, Wanted
from holdfast_controller.shell.calls.field_bounds import ITEMS


def lines_of(found: list[Found]) -> list[tuple[int, bytes]]:
    """Each line with its offset, and no chunk without both."""
    lines: list[tuple[int, bytes]] = []
    for each in found:
        parts = each.data.splitlines(keepends=True) if b"\r" not in each.data else each.data.split(b"\n")[:-1]
        assert len(parts) == len(each.offsets) > 0
        lines += zip(each.offsets, parts, strict=True)
    return lines


@given(
    st.lists(st.sampled_from([b"a", b"A", b"ab", b"\n", b"x", b"\n\n", b"\xff"]), max_size=40).map(b"".join),
    st.integers(1, 7),
    st.sampled_from(["a", "ab", "aa"]),
    st.booleans(),
)
def test_the_same_lines_are_found_in_pieces_of_any_size(
    data: bytes, size: int, text: str, ignore_case: bool
) -> None:
    search, found = LineSearch(text, ignore_case=ignore_case), []
    for at in range(0, len(data), size):
        found += search.feed(at, data[at : at + size])
    expected, at = [], 0
    for line in data.split(b"\n"):
        if text.encode() in (line.lower() if ignore_case else line):
            expected.append((at, line + b"\n"))
        at += len(line) + 1
    assert lines_of([*found, *search.finish()]) == expected


@pytest.mark.parametrize("text", ["needle", "NEEDLE"])
def test_a_text_is_found_wherever_it_lies_in_a_line_without_an_end(text: str) -> None:
    size = 3 * LONGEST
    for at in [cut + near for cut in range(0, size - 10, LONGEST) for near in range(-20, 20) if cut + near >= 0]:
        data = b"." * at + b"needle" + b"." * (size - at)
        search = LineSearch(text.lower(), ignore_case=text.isupper())
        given = data.upper() if text.isupper() else data
        found = [
            each for start in range(0, size, LONGEST) for each in search.feed(start, given[start : start + LONGEST])
        ]
        lines = lines_of([*found, *search.finish()])
        assert len(lines) == 1 and text.encode() in lines[0][1], at


class Block(bytes):
    """Counts how often it was changed to small letters."""

    lowered = 0

    def lower(self) -> bytes:
        """Count it."""
        self.lowered += 1
        return super().lower()


@pytest.mark.parametrize(
    ("text", "data", "lowered"),
    [("needle", b"no such letters\n", 0), ("needle", b"LINED", 1), ("=NaN", b"loss=0.1 grad=nao", 1)],
)
def test_a_block_that_lacks_a_letter_of_the_text_is_not_looked_through(
    text: str, data: bytes, lowered: int
) -> None:
    block = Block(data)
    assert LineSearch(text, ignore_case=True)._matches(0, block) == []
    assert block.lowered == lowered


def test_what_was_cut_by_the_disk_bound_ends_a_line() -> None:
    search = LineSearch("error")
    assert search.feed(0, b"one err") == []
    assert lines_of(search.feed(4096, b"or\nerror 2\n")) == [(4099, b"error 2\n")]


def test_a_line_without_end_is_held_in_bounded_memory_and_found_in_parts() -> None:
    search, found = LineSearch("needle"), []
    bar = b"\r 50% " * 40_000 + b"needle" + b"\r 51% " * 40_000
    for at in range(0, len(bar), 10_000):
        found += search.feed(at, bar[at : at + 10_000])
        assert len(search._rest) <= LONGEST
    found += search.finish()
    assert len(found) == 1 and b"needle" in found[0].data and len(found[0].data) <= 2 * LONGEST + 1


def test_many_matches_come_in_chunks_of_bounded_size() -> None:
    lines = [f"needle {number:06}\n".encode() for number in range(100_000)]
    found = LineSearch("needle").feed(0, b"".join(lines))
    assert [line for _, line in lines_of(found)] == lines
    assert max(len(each.data) for each in found) <= PIECE_BYTES + LONGEST


def test_short_lines_come_in_pieces_that_a_controller_takes() -> None:
    data = b"a\n" * 100_000
    found = LineSearch("a").feed(0, data)
    assert b"".join(each.data for each in found) == data
    assert max(len(each.offsets) for each in found) == PIECE_LINES <= ITEMS


@pytest.mark.parametrize("end", [None, 8, 0])
def test_a_search_says_when_it_has_come_to_the_end(tmp_path: Path, end: int | None) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"one\ntwo\none and no end")
    log = SearchedLog(LogFile(str(path), Wanted(end=end)), LineSearch("one"))
    first = log.read()
    assert first == (None if end == 0 else Found([0], b"one\n"))
    assert log.read() is None and not log.more
    assert lines_of(log.last()) == ([(8, b"one and no end\n")] if end is None else [])


def test_what_is_found_and_not_read_is_there_and_the_search_goes_on_where_a_line_begins(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n" * 2_500 + b"on")
    log = SearchedLog(LogFile(str(path), Wanted()), LineSearch("one"))
    first = log.read()
    assert first is not None
    rest = list(log.unread())
    assert sum(len(each.offsets) for each in (first, *rest)) == 2_500
    assert (log.position, list(log.unread())) == (10_000, [])
