"""Cuts a stream of bytes into lines. A progress bar ends its lines with a carriage return."""

from __future__ import annotations

import re

LINE_MAX_BYTES = 2048
_ENDS = re.compile(rb"[\r\n]+")


class LineCutter:
    """Cuts one stream into lines; keeps at most ``LINE_MAX_BYTES`` of a line that hasn't ended yet."""

    __slots__ = ("_rest", "_skipping")

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that end in ``data``; empty ones are left out, long ones are cut."""
        *ended, rest = _ENDS.split(data)
        lines: list[str] = []
        if ended:
            if not self._skipping:
                ended[0] = self._rest + ended[0]
            else:
                del ended[0]
            self._rest, self._skipping = b"", False
            lines = [line[:LINE_MAX_BYTES].decode("utf-8", "replace") for line in ended if line]
        if not self._skipping:
            self._rest = (self._rest + rest)[:LINE_MAX_BYTES]
        return lines

    def end(self) -> list[str]:
        """The line that has no end, of a stream that goes on no more; empty without one."""
        rest, self._rest = self._rest[:LINE_MAX_BYTES], b""
        return [rest.decode("utf-8", "replace")] if rest else []

    def skip(self) -> None:
        """Note a gap: the bytes up to the next line end are no whole line."""
        self._rest, self._skipping = b"", True
