"""Progress bars of several ranks: the newest state of each, at a bounded rate.

A bar is a line that its program draws again and again behind a carriage return. On a terminal the bars are redrawn
in place, below the output. Into a pipe or a file a bar's state goes as a line every few seconds, if it has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast._base.printable import StreamFilter
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.live_lines import can_redraw

REDRAW_S = 0.2
"""Between two drawings on a terminal."""
LINE_S = 5.0
"""Between two lines of one bar, where they can't be drawn in place."""
LINES_PER_S = 2.0
"""Of all bars together, there: with many of them each is shown less often."""

_CONTROL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|$)")
"""Also the beginning of a sequence, whose end comes with the next chunk."""
_UP = b"\x1b[A"

BarKey = tuple[str, int, int]
"""Worker, rank, stream."""


def last_state(line: bytes) -> bytes:
    """The line as it was last drawn, with its end: what came before a carriage return is left out."""
    text = line.rstrip(b"\r\n")
    return _states(text)[-1] + line[len(text) :] if b"\r" in text else line


def _states(text: bytes) -> list[bytes]:
    """The last state that shows something, last in the list; ``[b""]`` without any."""
    return [part for part in text.split(b"\r") if not _is_blank(part)] or [b""]


def _is_blank(part: bytes) -> bool:
    return not _CONTROL.sub(b"", part).strip()


@dataclass(slots=True)
class OpenLine:
    """The line that one stream has begun. Of a bar only what is needed for its newest state is kept."""

    LONGEST_BYTES = 64 * 1024
    """A longer line is given out in pieces: a program that never ends its line must not fill our memory."""

    generation: int
    text: bytes = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, each with its end; of a bar, as it was last drawn."""
        data = self.text + data
        *lines, rest = _unnested(data.split(b"\n"))
        self.text = _compact(rest)
        done = [last_state(line + b"\n") for line in lines]
        if len(self.text) > self.LONGEST_BYTES:
            done.append(self.take() + b"\n")
        return done

    def state(self) -> bytes:
        """The newest state of a bar; empty if the line is none."""
        return _states(self.text)[-1] if b"\r" in self.text else b""

    def take(self) -> bytes:
        """The unfinished line, taken out; of a bar, its newest state."""
        text, self.text = self.text, b""
        return last_state(text)


def _unnested(lines: list[bytes]) -> list[bytes]:
    """The lines; those that go up again, as tqdm's inner bars do, are further states of the line that they go to."""
    found: list[bytes] = []
    for line in lines:
        ups = min(line.count(_UP), len(found))
        if ups:
            line = found[-ups] + b"\r" + line.replace(_UP, b"\r")
            del found[-ups:]
        found.append(line)
    return found


def _compact(text: bytes) -> bytes:
    """The part of an unfinished line that its newest state can depend on."""
    if b"\r" not in text:
        return text
    parts = text.split(b"\r")
    shown = [at for at, part in enumerate(parts) if not _is_blank(part)]
    return b"\r" + b"\r".join(parts[shown[-1] :] if shown else parts[-1:])


@dataclass(slots=True)
class _Bar:
    fd: int
    since: float
    """When it was shown last; at first, when it began."""
    state: bytes
    changed: bool = True


@dataclass(slots=True)
class ProgressBars:
    """The bars of all ranks in view. ``prefix`` is what a line of a rank begins with; times are monotonic seconds."""

    console: Console
    prefix: Callable[[BarKey], str]
    write: Callable[[int, BarKey, bytes], None]
    _bars: dict[BarKey, _Bar] = field(default_factory=dict)
    _drawn: dict[int, float] = field(default_factory=dict)
    """By terminal: when the bars were drawn last."""

    def update(self, key: BarKey, fd: int, state: bytes, now: float) -> None:
        """Take a bar's newest state; without one its line is complete."""
        bar = self._bars.get(key)
        if not state:
            if bar is not None:
                del self._bars[key]
                if can_redraw(bar.fd):
                    self._draw(bar.fd, now)
        elif bar is None:
            self._bars[key] = _Bar(fd, now, state)
        elif bar.state != state:
            bar.state, bar.changed = state, True

    def show(self, now: float) -> float | None:
        """Show what is due. Returns the seconds until more is; ``None`` if nothing has changed."""
        due: list[float] = []
        line_s = max(LINE_S, len(self._bars) / LINES_PER_S)
        for fd in {bar.fd for bar in self._bars.values() if bar.changed}:
            if can_redraw(fd):
                at = self._drawn.get(fd, 0.0) + REDRAW_S
                if at <= now:
                    self._draw(fd, now)
                else:
                    due.append(at)
                continue
            for key, bar in list(self._bars.items()):
                if bar.fd != fd or not bar.changed:
                    continue
                if bar.since + line_s <= now:
                    bar.since, bar.changed = now, False
                    self.write(fd, key, bar.state + b"\n")
                else:
                    due.append(bar.since + line_s)
        return max(0.0, min(due) - now) if due else None

    def _draw(self, fd: int, now: float) -> None:
        self._drawn[fd] = now
        lines = []
        for key, bar in sorted(self._bars.items(), key=lambda item: item[0][1:]):
            if bar.fd == fd:
                bar.changed = False
                text = StreamFilter(plain=True).feed(_CONTROL.sub(b"", bar.state)).decode("utf-8", "replace")
                lines.append(self.prefix(key) + text.expandtabs().rstrip())
        self.console.live(fd, lines)
