"""Words of others on their way to a terminal, a log or a program: nothing in them acts, and programs lose nothing."""

from __future__ import annotations

import functools
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._base.printable import StreamFilter, is_safe, json_text, one_line, spaced_line, styled_line
from holdfast_agent.shim.processes import printable

VISIBLE_MARKS = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Unicode calls these signs of Arabic, Syriac and Kaithi formats, but they are drawn."""


@functools.cache
def unsafe() -> list[str]:
    """Every control and format character; a third of a second, so not for each process that only collects tests."""
    every = map(chr, range(sys.maxunicode + 1))
    return [character for character in every if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")]


any_text = st.text(st.characters() | st.deferred(lambda: st.sampled_from(unsafe())))


@given(any_text)
def test_a_line_is_safe_whatever_was_given(text: str) -> None:
    for line in (one_line(text), one_line(text, 20), spaced_line(text), styled_line(text, colour=False)):
        assert is_safe(line)
    assert len(one_line(text, 20)) <= 20
    assert one_line(one_line(text)) == one_line(text)


def test_every_control_and_format_character_is_taken_out() -> None:
    for character in unsafe():
        for clean in (one_line, spaced_line, printable):
            assert character not in clean(f"a{character}b"), f"{ord(character):04x}"
        if ord(character) not in VISIBLE_MARKS and character not in "\t\n\r\b\u200c\u200d":
            left = StreamFilter().feed(f"a{character}b\x1b\\\n".encode()).decode()
            assert character not in left, f"{ord(character):04x}"


def test_words_stay_as_they_are() -> None:
    for text in ("Größe 東京 – naïve “x” 100 % 🚀 ‹a› °", "a  b"):
        assert spaced_line(text) == text
    assert one_line("  a \t b\nc  ") == "a b c"
    assert one_line("می\u200cخواهم 👨\u200d👩") == "میخواهم 👨👩"
    assert spaced_line("\tdef f():") == "        def f():"


def test_blanks_that_unicode_calls_letters_push_nothing_to_the_next_line() -> None:
    assert one_line("a" + "\u2800\u3164" * 50 + "holdfast: done").count("?") == 100


def test_only_colours_of_ours_pass_and_they_end_with_the_line() -> None:
    assert styled_line("\x1b[31mred\x1b[0m", colour=True) == "\x1b[31mred\x1b[0m"
    assert styled_line("\x1b[31mred", colour=True) == "\x1b[31mred\x1b[0m"
    assert styled_line("\x1b[31mred\x1b[2J\x1b]0;x\x07", colour=False) == "red?[2J?]0;x?"


@given(
    st.recursive(
        any_text | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(any_text, inner)
    )
)
def test_json_reads_back_and_is_safe_to_show(data: object) -> None:
    for options in ({}, {"indent": 2}):
        text = json_text(data, **options)
        assert json.loads(text) == data
        assert all(map(is_safe, text.split("\n")))


# Streams

BAR = "\x1b[32m 10%\x1b[0m\r\x1b[K\x1b[32m 20%\x1b[0m\x1b[5G\b|\n"


def test_colours_and_progress_bars_pass() -> None:
    assert StreamFilter().feed(BAR.encode()) == BAR.encode()
    assert StreamFilter(plain=True).feed(BAR.encode()) == b"\x1b[32m 10%\x1b[0m\x1b[32m 20%\x1b[0m|\n"


@pytest.mark.parametrize(
    "sequence",
    [
        *("\x1b]0;title\x07", "\x1b]0;title\x1b\\", "\x1b]52;c;aGk=\x07", "\x1b]8;;http://x\x1b\\", "\x9d0;t\x9c"),
        *("\x1b[6n", "\x1b[c", "\x1b[2J", "\x1b[H", "\x1b[3A", "\x1b[1;1H", "\x1b[?1049h", "\x1b[?25l", "\x9b5n"),
        *(
            "\x1bc",
            "\x1b7",
            "\x1bM",
            "\x1b(0",
            "\x1b#8",
            "\x1bP1$r\x1b\\",
            "\x1b_x\x1b\\",
            "\x1b^x\x1b\\",
            "\x1bXx\x1b\\",
        ),
        *("\x07", "\x0e", "\x00", "\x7f", "\x0b", "\x0c", "\x1b[200~", "\x1b[21t", "\x1b[>c"),
    ],
)
def test_what_drives_a_terminal_is_left_out_however_it_is_cut(sequence: str) -> None:
    whole = f"a{sequence}b\n".encode()
    assert StreamFilter().feed(whole) == b"ab\n"
    bytewise = StreamFilter()
    assert b"".join(bytewise.feed(whole[i : i + 1]) for i in range(len(whole))) == b"ab\n"


def test_a_sequence_without_an_end_silences_no_more_than_its_line() -> None:
    assert StreamFilter().feed(b"a\x1b]0;never\nb\n") == b"a\nb\n"
    endless = StreamFilter().feed(b"\x1b]" + b"x" * 3 * StreamFilter.LONGEST)
    assert endless.count(b"x") == 3 * StreamFilter.LONGEST
    assert StreamFilter().feed(b"\x1b[31\xc3\xa9\n") == "é\n".encode()


def test_what_is_no_utf_8_is_shown_as_such_and_letters_may_be_cut_anywhere() -> None:
    stream = StreamFilter()
    assert (stream.feed(b"\xff\xc3"), stream.feed(b"\xa9")) == ("\ufffd".encode(), "é".encode())


@given(
    st.lists(
        st.binary() | st.sampled_from([b"\x1b[", b"\x1b]", b"\xc2\x9d", b"\xc2\x9b", b"0;", b"m", b"\n", b"\x1b"])
    )
)
def test_no_stream_gets_anything_else_through(chunks: list[bytes]) -> None:
    stream = StreamFilter()
    text = b"".join(map(stream.feed, chunks)).decode()
    left = re.sub(r"\x1b\[(?:[0-9;:]*m|[0-2]?K|[0-9]{0,4}[CDG])", "", text)
    passed = {*unsafe()} - {*"\n\t\r\b\u200c\u200d"} - {chr(mark) for mark in VISIBLE_MARKS}
    assert passed.isdisjoint(left)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["\x9d", "\x1b]", "\x1b[", "\x1b", "\x9b0;", "\x1b    ", "\x1bP\x1b", "\u202e", "\x1b]x\x9d"]
)
def test_a_stream_of_openers_takes_time_in_proportion(piece: str) -> None:
    """So many that anything else would outlast the time that a test has."""
    StreamFilter().feed(piece.encode() * (1_000_000 // len(piece.encode())))
