"""The two ends of the terminal: data on stdout, everything for people along the way on stderr.

What goes there passes one of the functions here, which leave out whatever would drive the reader's terminal or forge a
line. Notes and output are written by file descriptor and in whole lines, so that a note never lands in the middle of
a rank's output, and a reader that went away is noticed where it matters.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import traceback
from typing import TYPE_CHECKING, TextIO

import click

from holdfast._base.printable import StreamFilter, one_line, styled_line
from holdfast.errors import HoldfastError, InvalidInput, StorageFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._sdk.reconnect import LinkCallback
    from holdfast.cli.kit.live_lines import LiveLines

OUT = 1
ERR = 2
NOTE_MOST = 4_000
"""Characters of one note; a longer one would hide those before it."""
_PADDING = re.compile(" {4,}")
"""Blanks that could push what follows to where another line would begin."""


class OutputClosed(Exception):
    """The reader of stdout has closed it."""


def open_closed() -> None:
    """Have what was closed of stdin, stdout and stderr lead nowhere; else a socket gets its number, and our lines."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w"))


def discard_output() -> None:
    """Have stdout lead nowhere, once its reader has gone: what is still buffered for it causes no error at the end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, OUT)
    os.close(null)


def coloured(fd: int) -> bool:
    """Whether colour is welcome there: a terminal, and no ``NO_COLOR``."""
    return os.isatty(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, *, colour: bool) -> str:
    """The text in an SGR style such as ``1;31``."""
    return f"\x1b[{style}m{text}\x1b[0m" if colour and style and text else text


def say(*lines: str, err: bool = False) -> None:
    """Print each text as one line, on stdout unless ``err``; of escape sequences only colours of ours are kept."""
    colour = coloured(ERR if err else OUT)
    text = "".join(styled_line(line, colour=colour) + "\n" for line in lines)
    _put((sys.stderr if err else sys.stdout), text.encode("utf-8", "replace"))


def say_text(text: str, *, err: bool = False) -> None:
    """Print a text of many lines, each as ``say`` does."""
    if text:
        say(*text.removesuffix("\n").split("\n"), err=err)


def transient(text: str) -> None:
    """Show ``text`` in place of the line that stderr's terminal is at; nothing where stderr is no terminal."""
    if os.isatty(ERR):
        click.echo(f"\r\x1b[K{one_line(text)}".encode(), nl=False, err=True)


def show_fault(error: BaseException) -> None:
    """Print the traceback of a fault of ours on stderr."""
    say_text("".join(traceback.format_exception(error)), err=True)


class Console:
    """Keeps apart what goes to one terminal from two sides."""

    def __init__(self, *, raw: bool = False) -> None:
        """``raw``: what a rank writes may drive the terminal, because the user gave it that."""
        self._device = {fd: _device(fd) for fd in (OUT, ERR)}
        self._mid_line: set[tuple[int, int] | int] = set()
        self._colour = coloured(ERR)
        self._away = False
        self._filters = {fd: StreamFilter() for fd in (OUT, ERR) if os.isatty(fd) and not raw}
        self._live: dict[tuple[int, int] | int, LiveLines] = {}

    def data(self, fd: int, data: bytes) -> None:
        """Write bytes as they are; to a terminal without what would drive it.

        Raises ``OutputClosed`` if stdout was closed, and ``StorageFull`` if it takes no more.
        """
        self._write(fd, self._filters[fd].feed(data) if fd in self._filters else data)

    def _write(self, fd: int, data: bytes) -> None:
        if not data:
            return
        shown = data
        if live := self._live.get(self._device[fd]):
            shown = live.erase() + data + (live.draw() if data.endswith(b"\n") else b"")
        try:
            _write_all(fd, shown)
        except BrokenPipeError as error:
            if fd == OUT:
                raise OutputClosed from error
            return
        if data.endswith(b"\n"):
            self._mid_line.discard(self._device[fd])
        else:
            self._mid_line.add(self._device[fd])

    def live(self, fd: int, lines: Sequence[str]) -> None:
        """Keep these lines, in place of those before, below all that is written to the terminal ``fd``."""
        from holdfast.cli.kit.live_lines import LiveLines

        if lines and self.mid_line(fd):
            self._write(fd, b"\n")
        live = self._live.setdefault(self._device[fd], LiveLines(fd))
        with contextlib.suppress(BrokenPipeError, OSError):
            _write_all(fd, live.change(lines))

    def end_live(self) -> None:
        """Erase the lines that are kept below all else."""
        for fd in (OUT, ERR):
            if live := self._live.pop(self._device[fd], None):
                with contextlib.suppress(BrokenPipeError, OSError):
                    _write_all(fd, live.erase())

    def end_style(self) -> None:
        """Leave the colours that a rank's output has left on."""
        for fd, each in self._filters.items():
            if each.styled:
                each.styled = False
                with contextlib.suppress(BrokenPipeError):
                    _write_all(fd, b"\x1b[0m")

    def mid_line(self, fd: int) -> bool:
        """Whether the last thing written there did not end its line."""
        return self._device[fd] in self._mid_line

    def note(self, text: str) -> None:
        """One line of progress."""
        self._line("holdfast:", "2", text)

    def warning(self, text: str) -> None:
        """Warn about an input that was accepted but will not have its usual effect."""
        self._line("warning:", "1;33", text)

    def end_line(self) -> None:
        """Leave the line on which a terminal has echoed ^C."""
        self.end_live()
        if os.isatty(ERR):
            self._mid_line.add(self._device[ERR])

    def error(self, found: HoldfastError) -> None:
        """Print what went wrong, and below it, indented, each violation or further line, and what to do."""
        first, *more = found.message.split("\n")
        if isinstance(found, InvalidInput):
            more = [str(violation) for violation in found.violations]
        self._line("error:", "1;31", first)
        for line in [*more, *([found.fix] if found.fix else [])]:
            self._line(" ", "", line.lstrip())

    def on_link(
        self, meanwhile: str = "The job is not affected; waiting for the controller to come back"
    ) -> LinkCallback:
        """Says once that the controller is away, and once that it is back, however many streams notice."""

        def on_link(problem: HoldfastError | None) -> None:
            if problem is not None and not self._away:
                self.note(f"{problem.message} {meanwhile} …")
            elif problem is None and self._away:
                self.note("the controller is back.")
            self._away = problem is not None

        return on_link

    def _line(self, label: str, style: str, text: str) -> None:
        """A line of ours, whatever the text holds; never in the middle of another, nor in a rank's colours."""
        text = styled_line(text, colour=False)
        begun = len(text) - len(text.lstrip(" "))
        text = text[:begun] + _PADDING.sub("   ", text[begun:])
        if len(text) > NOTE_MOST:
            text = text[: NOTE_MOST - 1] + "…"
        start = "\n" if self.mid_line(ERR) else ""
        self.end_style()
        self._write(ERR, f"{start}{styled(label, style, colour=self._colour)} {text}\n".encode(errors="replace"))


def _device(fd: int) -> tuple[int, int] | int:
    try:
        status = os.fstat(fd)
    except OSError:
        return fd
    return status.st_dev, status.st_ino


def _write_all(fd: int, data: bytes) -> None:
    """Raises ``BrokenPipeError``, and ``StorageFull`` for output that can't be written. Notes are lost then."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # another program has made it so, and reads slowly
            select.select((), (fd,), ())
        except BrokenPipeError:
            raise
        except OSError as error:
            if fd == ERR:
                return
            fix = "Make room for it, or write it elsewhere."
            raise StorageFull(f"The output can't be written whole: {error.strerror}.", fix=fix) from error


def _put(stream: TextIO | None, data: bytes) -> None:
    """Write all of it, also where Python's output is unbuffered: a short write is no error there."""
    if stream is None:  # as in a program that calls us
        return
    stream.flush()
    try:
        fd = stream.fileno()
    except (OSError, ValueError):  # no file, as in a program that calls us
        click.echo(data, file=stream, nl=False)
    else:
        _write_all(fd, data)
