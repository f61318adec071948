"""Finds the lines of a stream that contain a text, as its bytes come by. Memory is bounded, whatever the lines are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast_agent.shell.output.log_reader import LogFile

LONGEST = 64 << 10
"""Longer lines count as several: the output of a progress bar may have no line end at all."""
PIECE_BYTES, PIECE_LINES = 128 << 10, 1_000
"""The most of one piece: a controller refuses a message with more lines."""
BLOCK_BYTES = 64 << 10
"""Read at a time: a line in two letters costs so much time that more would hold up other readers."""
READ_FOR_S = 0.1
"""One call looks for a match for so long, so that those who wait for it wait no longer."""


@dataclass(frozen=True, slots=True)
class Found:
    """Lines that match, each with its line end, and the offset of each in the stream."""

    offsets: list[int]
    data: bytes


class LineSearch:
    """Keeps lines that contain ``text``; with ``ignore_case`` the letters a to z stand for A to Z too."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        needle = text.encode()
        self._needle = needle.lower() if ignore_case else needle
        self._ignore_case = ignore_case
        single = [bytes([byte]) for byte in set(self._needle)]
        self._forms = [{each, each.upper()} if ignore_case else {each} for each in single]
        """Each byte of the text, with its capital letter where that counts as the same."""
        self._at = 0
        self._rest = b""

    @property
    def position(self) -> int | None:
        """The place at which a line begins whose end is not known; None where there is none."""
        return self._at if self._rest else None

    def feed(self, offset: int, data: bytes) -> list[Found]:
        """The lines that match, as far as their ends are known. A gap before ``offset`` ends a line."""
        found = self.finish() if self._rest and offset != self._at + len(self._rest) else []
        if not self._rest:
            self._at = offset
        block = self._rest + data
        end = block.rfind(b"\n") + 1
        if len(block) - end > LONGEST:
            end = self._cut(block)
        found += self._matches(self._at, block[:end])
        self._at, self._rest = self._at + end, block[end:]
        return found

    def finish(self) -> list[Found]:
        """The line that has no end, if it matches."""
        at, rest = self._at, self._rest
        self._at, self._rest = at + len(rest), b""
        return self._matches(at, rest)

    def _cut(self, block: bytes) -> int:
        """The place to cut a line that is too long: no match lies on both sides."""
        size = len(self._needle)
        end = len(block) - size
        first = max(0, end - size + 1)
        around = block[first : end + size - 1]
        hit = (around.lower() if self._ignore_case else around).find(self._needle)
        return end if hit < 0 else first + hit + size

    def _may_match(self, block: bytes) -> bool:
        """Whether the block has each byte of the text: a single byte is found faster than a text."""
        return all(any(form in block for form in forms) for forms in self._forms)

    def _matches(self, at: int, block: bytes) -> list[Found]:
        if not self._may_match(block):
            return []
        text = block.lower() if self._ignore_case else block
        found: list[Found] = []
        offsets: list[int] = []
        lines: list[bytes] = []
        size = end = 0
        hit = text.find(self._needle)
        while hit >= 0:
            begin = max(end, block.rfind(b"\n", end, hit) + 1, hit - LONGEST)
            end = block.find(b"\n", hit, hit + LONGEST) + 1 or min(len(block), hit + LONGEST)
            line = block[begin:end]
            offsets.append(at + begin)
            lines.append(line if line.endswith(b"\n") else line + b"\n")
            size += len(line)
            hit = text.find(self._needle, end)
            if size >= PIECE_BYTES or len(lines) >= PIECE_LINES or hit < 0:
                found.append(Found(offsets, b"".join(lines)))
                offsets, lines, size = [], [], 0
        return found


class SearchedLog:
    """An open stream of which only the lines of a search are read. May block on a busy disk: call it in a thread."""

    def __init__(self, file: LogFile, search: LineSearch) -> None:
        self._file, self._search = file, search
        self._found: deque[Found] = deque()
        self.spent_s = 0.0
        """Time that was spent with reading."""
        self.more = True
        """The end has not been reached."""

    @property
    def position(self) -> int:
        """First byte that was not searched: where a line begins whose end has not been read."""
        begun = self._search.position
        return self._file.position if begun is None else begun

    def unread(self) -> Iterator[Found]:
        """Lines that were found and not read, which they then are."""
        while self._found:
            yield self._found.popleft()

    def read(self) -> Found | None:
        """The next lines; None where none was found within a moment, or up to the present end."""
        began = time.monotonic()
        self.more = True
        while not self._found and time.monotonic() < began + READ_FOR_S:
            offset, data = self._file.read(BLOCK_BYTES)
            if not data:
                self.more = False
                break
            self._found += self._search.feed(offset, data)
        self.spent_s += time.monotonic() - began
        return self._found.popleft() if self._found else None

    def last(self) -> list[Found]:
        """The last line, where it has no end."""
        return self._search.finish()
