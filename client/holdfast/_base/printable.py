"""Text of others, made safe to show: the one place that decides what a terminal, a log or a chat may be sent.

What a host, a worker or another user has written can hold characters that do more than appear: escape sequences set
the title, write the clipboard, move the cursor and ask the terminal to type an answer; line ends forge lines of ours;
bidirectional controls change the order of what is read; characters of no width make two names look alike. Text is
cleaned where it comes in, and once more where it is shown.

``agent/holdfast_agent/shim/processes.py`` has a twin, because a shim imports nothing of ours.
"""

from __future__ import annotations

import codecs
import functools
import json
import re
from typing import Any

REPLACEMENT = "?"
_JOINERS = "\u200c\u200d"
"""Letters of some languages and many emoji need them; without them the same signs stand side by side."""
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Unicode calls them visible, fonts draw nothing: enough of them push text to where a line of ours would begin."""
_SGR = re.compile(r"(\x1b\[[0-9;:]{0,32}m)")
"""Colours and weights, the only escape sequence of ours."""
_RESET = "\x1b[0m"
_RESETS = frozenset({"\x1b[m", "\x1b[0m", "\x1b[00m"})


def is_safe(text: str) -> bool:
    """Whether the text is shown as it is: no line end, control character, or character that can't be seen."""
    return text.isprintable() and (text.isascii() or not any(c in text for c in _BLANK))


def _shown(character: str) -> str:
    if character in _JOINERS:
        return ""
    return character if character.isprintable() and character not in _BLANK else REPLACEMENT


def one_line(text: str, most: int | None = None) -> str:
    """The text on one line that is safe to show, each run of white space one blank; cut to ``most`` characters."""
    if most is not None and len(text) > 8 * most + 64:
        text = text[: 8 * most + 64] + "…"  # what follows is cut in any case
    line = " ".join(text.split())
    if not is_safe(line):
        line = "".join(map(_shown, line))
    return line if most is None or len(line) <= most else line[: most - 1] + "…"


def spaced_line(text: str) -> str:
    """The text on one line that is safe to show, its spacing kept: tabs are expanded, line ends are blanks."""
    if is_safe(text):
        return text
    text = text.expandtabs()
    return "".join(" " if c.isspace() else _shown(c) for c in text)


def styled_line(text: str, *, colour: bool) -> str:
    """``spaced_line`` that keeps our own colours, and ends them with the line; none without ``colour``."""
    if "\x1b" not in text:
        return spaced_line(text)
    parts, styled = [], False
    for index, part in enumerate(_SGR.split(text)):
        if index % 2 == 0:
            parts.append(spaced_line(part))
        elif colour:
            parts.append(part)
            styled = part not in _RESETS
    return "".join(parts) + (_RESET if styled else "")


def json_text(data: Any, **options: Any) -> str:
    """JSON that reads back as ``data`` and is safe to show: letters as they are, all else as ``\\uXXXX``."""
    text = _encoder(**options).encode(data)
    if is_safe(text.replace("\n", "")):
        return text
    # Outside of strings JSON has ASCII alone, and its line ends are those of ``indent``.
    return text.translate({ord(c): _escaped(c) for c in set(text) - {"\n"} if _shown(c) != c})


@functools.lru_cache(maxsize=8)
def _encoder(**options: Any) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, **options)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class StreamFilter:
    """A program's output on its way to a terminal, chunk by chunk.

    Colours, tabs, backspaces, carriage returns and the erasing of a line pass, so that progress bars look as they
    should. All else that drives a terminal is left out: titles, the clipboard, queries, other screens, the cursor
    outside its line. What is no UTF-8 is shown as U+FFFD. An escape sequence without an end is given up where its
    line ends, or after ``LONGEST`` characters. ``plain`` passes colours alone, for lines that begin with words of ours.
    """

    LONGEST = 4096
    """Characters of a sequence that are left out with it: a program that opens one must not silence itself."""

    def __init__(self, *, plain: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        """The beginning of an escape sequence."""
        self.styled = False
        """Whether a colour is on."""
        self._plain = plain

    def feed(self, data: bytes) -> bytes:
        """Return the part of the chunk, and of those before it, that may be written now."""
        text = _REPEATED.sub("\x1b", self._kept + self._decoder.decode(data))
        self._kept = ""
        parts: list[str] = []
        at = 0
        while (start := _ACTIVE.search(text, at)) is not None:
            parts.append(text[at : start.start()])
            at = start.start()
            if start[0] not in _OPENERS:
                parts.append(self._character(start[0]))
                at += 1
                continue
            whole = _SEQUENCE.match(text, at)
            if whole is None and len(text) - at < self.LONGEST:
                self._kept = text[at:]
                at = len(text)
                break
            # Without its end only the opener is left out, and the rest is read as text.
            parts.append(self._sequence(whole[0]) if whole is not None else "")
            at = whole.end() if whole is not None else at + 1
        parts.append(text[at:])
        return "".join(parts).encode("utf-8", "replace")

    def _character(self, character: str) -> str:
        if character in "\n\t" or (character in "\r\b" and not self._plain):
            return character
        if character in _JOINERS:
            return character
        return "" if character < " " or character == "\x7f" else REPLACEMENT

    def _sequence(self, sequence: str) -> str:
        if _SGR.fullmatch(sequence):
            self.styled = sequence not in _RESETS
            return sequence
        return sequence if not self._plain and _IN_LINE.fullmatch(sequence) else ""


_REPEATED = re.compile("\x1b{2,}")
"""Of escapes in a row only the last can open a sequence."""
_OPENERS = "\x1b\x90\x98\x9b\x9d\x9e\x9f"
_ACTIVE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
"""What is not written as it is. Far cheaper than to ask of each character of a stream; a test compares both."""
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[\x20-\x3f]*[\x40-\x7e]"  # CSI
    # OSC, DCS, SOS, PM, APC
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\\\|\x9c|(?=[\n\x1b\x80-\x9f]))"
    "|\x1b[\x20-\x2f]*[\x30-\x4f\x51-\x57\x59\x5a\\\\\x60-\x7e]"
    "|\x1b[\x20-\x2f]*(?=[^\x20-\x7e])"
    "|(?:\x1b\\[|\x9b)[\x20-\x3f]*(?=[^\x20-\x7e])"  # broken off
)
"""A whole escape sequence, in linear time: no two of its parts can take the same character."""
_IN_LINE = re.compile(r"\x1b\[(?:[0-2]?K|[0-9]{0,4}[CDG])")
"""Erase in line; the cursor forth, back, and to a column: none of them leaves the line."""
