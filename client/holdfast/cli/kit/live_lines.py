"""Lines at the bottom of a terminal that are drawn again in place, below everything else that is written there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.cli.kit.table import cut

MOST = 8
"""Lines at a time; the last of them counts those that are left out."""


def can_redraw(fd: int) -> bool:
    """Whether ``fd`` is a terminal on which lines can be drawn again."""
    return os.isatty(fd) and os.environ.get("TERM", "dumb") != "dumb"


class LiveLines:
    """The lines at the bottom of one terminal. Methods return the bytes that have to be written there."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: Sequence[str] = ()
        self._drawn = 0

    def change(self, lines: Sequence[str]) -> bytes:
        """Take these lines in place of those before; each holds nothing that drives a terminal."""
        gone = self.erase()
        self._lines = lines
        return gone + self.draw()

    def draw(self) -> bytes:
        """Draw the lines; the cursor stays at the end of the last one, so that no line is left empty below."""
        if not self._lines:
            return b""
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            columns, rows = 0, 0
        columns, rows = columns or 80, rows or 24  # the size of a pseudo-terminal may be unset
        most = max(1, min(MOST, rows // 2))
        shown = list(self._lines[:most])
        if len(self._lines) > most:
            shown[-1] = f"… and {len(self._lines) - most + 1} more"
        self._drawn = len(shown)
        return "\n".join(cut(line, columns - 1) for line in shown).encode("utf-8", "replace")

    def erase(self) -> bytes:
        """Erase what is drawn; the cursor is where its first line began."""
        drawn, self._drawn = self._drawn, 0
        return b"\r\x1b[K" + b"\x1b[A\x1b[K" * (drawn - 1) if drawn else b""
