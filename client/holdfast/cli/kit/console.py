"""The two ends of the terminal: data on stdout, everything for people along the way on stderr.

Written by file descriptor and in whole lines, so that a note never lands in the middle of a rank's output,
and a reader that went away is noticed where it matters.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast._sdk.reconnect import LinkCallback

OUT = 1
ERR = 2


class OutputClosed(Exception):
    """The reader of stdout has closed it."""


def coloured(fd: int) -> bool:
    """Whether colour is welcome there: a terminal, and no ``NO_COLOR``."""
    return os.isatty(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, *, colour: bool) -> str:
    """The text in an SGR style such as ``1;31``."""
    return f"\x1b[{style}m{text}\x1b[0m" if colour and style and text else text


class Console:
    """Keeps apart what goes to one terminal from two sides."""

    def __init__(self) -> None:
        self._device = {fd: _device(fd) for fd in (OUT, ERR)}
        self._mid_line: set[tuple[int, int] | int] = set()
        self._colour = coloured(ERR)
        self._away = False

    def data(self, fd: int, data: bytes) -> None:
        """Write bytes as they are. Raises ``OutputClosed`` if stdout was closed."""
        if not data:
            return
        try:
            _write_all(fd, data)
        except BrokenPipeError as error:
            if fd == OUT:
                raise OutputClosed from error
            return
        if data.endswith(b"\n"):
            self._mid_line.discard(self._device[fd])
        else:
            self._mid_line.add(self._device[fd])

    def mid_line(self, fd: int) -> bool:
        """Whether the last thing written there did not end its line."""
        return self._device[fd] in self._mid_line

    def note(self, text: str) -> None:
        """One line of progress."""
        self._line(styled("holdfast:", "2", colour=self._colour) + f" {text}")

    def warning(self, text: str) -> None:
        """Warn about an input that was accepted but will not have its usual effect."""
        self._line(styled("warning:", "1;33", colour=self._colour) + f" {text}")

    def end_line(self) -> None:
        """Leave the line on which a terminal has echoed ^C."""
        if os.isatty(ERR):
            self._mid_line.add(self._device[ERR])

    def error(self, found: HoldfastError) -> None:
        """Print what went wrong, and in a second line what to do."""
        self._line(styled("error:", "1;31", colour=self._colour) + f" {found.message}")
        if found.fix:
            self._line(f"  {found.fix}")

    def on_link(self, unaffected: str = "The job is not affected; waiting") -> LinkCallback:
        """Says once that the controller is away, and once that it is back, however many streams notice."""

        def on_link(problem: HoldfastError | None) -> None:
            if problem is not None and not self._away:
                self.note(f"{problem.message} {unaffected} for the controller to come back …")
            elif problem is None and self._away:
                self.note("the controller is back.")
            self._away = problem is not None

        return on_link

    def _line(self, text: str) -> None:
        start = b"\n" if self.mid_line(ERR) else b""
        self.data(ERR, start + text.encode(errors="replace") + b"\n")


def _device(fd: int) -> tuple[int, int] | int:
    try:
        status = os.fstat(fd)
    except OSError:
        return fd
    return status.st_dev, status.st_ino


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
