"""The live screen in a terminal: Textual reads keys, follows the window's size and restores the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence

import anyio.to_thread
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from holdfast.cli.kit.console import say
from holdfast.cli.top.board import Board
from holdfast.cli.top.feed import Feed
from holdfast.cli.top.frame import Look, frame
from holdfast.cli.top.keys import Ask, Run, press

DRAW_S = 0.25
"""At the least between two frames, but for keys, which are answered at once."""
AGES_S = 1.0
"""Without news a frame is drawn so often: ages grow. Of a frame only lines that differ are sent."""


class Lines(Widget, can_focus=True):
    """The whole screen, line by line."""

    DEFAULT_CSS = "Lines { width: 100%; height: 100%; }"

    def __init__(self, press: Callable[[str, str], None], resized: Callable[[], None]) -> None:
        super().__init__()
        self._press = press
        self._resized = resized
        self._strips: list[Strip] = []
        self._lines: list[str] = []

    def show(self, lines: Sequence[str]) -> None:
        """Draw these lines in place of those before, as far as they differ."""
        width = self.size.width
        before, self._lines = self._lines, list(lines)
        old, self._strips = self._strips, []
        for y, line in enumerate(self._lines):
            same = y < len(old) and before[y] == line and old[y].cell_length == width
            self._strips.append(old[y] if same else self._strip(line, width))
            if not same:
                self.refresh(Region(0, y, width, 1))
        if len(before) > len(self._lines):
            self.refresh()

    def _strip(self, line: str, width: int) -> Strip:
        text = Text.from_ansi(line, no_wrap=True, end="")
        return Strip(text.render(self.app.console)).adjust_cell_length(width)

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def on_resize(self) -> None:
        self._resized()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self._press(event.key, event.character or "")


class Screen(App[None]):
    """The program. ``feed`` is asked for what the user wants to see."""

    CSS = "Screen { overflow: hidden; background: ansi_default; color: ansi_default; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = []  # noqa: RUF012  # as the base class has it

    def __init__(self, board: Board, feed: Feed, *, colour: bool, unicode: bool) -> None:
        super().__init__(ansi_color=True)
        self._board = board
        self._feed = feed
        self._look = colour, unicode
        self._drawn_at = 0.0
        self._news = True
        self._runs = False

    def compose(self) -> ComposeResult:
        yield Lines(self._pressed, self.draw)

    def on_mount(self) -> None:
        self.query_one(Lines).focus()
        self.set_interval(DRAW_S, self._tick)

    def news(self) -> None:
        """Note that the next frame differs."""
        self._news = True

    def _tick(self) -> None:
        if self._news or time.monotonic() - self._drawn_at >= AGES_S:
            self.draw()

    def draw(self) -> None:
        """Draw a frame now."""
        lines = self.query_one(Lines)
        if self._runs or not lines.size.width:
            return
        self._news, self._drawn_at = False, time.monotonic()
        colour, unicode = self._look
        look = Look(lines.size.width, lines.size.height, colour=colour, unicode=unicode)
        lines.show(frame(self._board, time.time(), look))
        self._feed.looked()

    def _pressed(self, key: str, character: str) -> None:
        match press(self._board, key, character, time.time()):
            case Ask.QUIT:
                self.exit()
            case Ask.JOBS:
                self._feed.ask_for_jobs()
            case Run(words):
                self.run_worker(self._run(words), exclusive=True)
        self.draw()

    async def _run(self, words: Sequence[str]) -> None:
        """Run a command of ours in place of the screen, and come back when the user has read it."""
        self._runs = True
        try:
            with self.suspend():
                await anyio.to_thread.run_sync(run_command, words)
        finally:
            self._runs = False
        self.refresh(layout=True)
        self.draw()


def run_command(words: Sequence[str]) -> None:
    """Run ``holdfast`` with these words on this terminal, then wait for a key. Ctrl-C ends the command alone."""
    subprocess.run([sys.executable, "-P", "-m", "holdfast", *words], check=False)
    with contextlib.suppress(OSError, termios.error):  # the terminal is gone
        _read_key("Back to holdfast top: any key.")


def _read_key(prompt: str) -> None:
    """Wait for one key on the terminal, Ctrl-C included; none that follows the prompt is lost."""
    before = termios.tcgetattr(0)
    changed = termios.tcgetattr(0)
    changed[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    try:
        termios.tcsetattr(0, termios.TCSANOW, changed)
        say("", prompt, err=True)
        os.read(0, 64)
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


async def live(board: Board, feed_of: Callable[[Callable[[], None]], Feed], *, colour: bool, unicode: bool) -> int:
    """Show the board until the user leaves; the exit status, 128+n where signal n ended it.

    The terminal is as it was then. Raises ``HoldfastError`` where the controller does not answer at first.
    """
    screens: list[Screen] = []

    def changed() -> None:
        for screen in screens:
            screen.news()

    feed = feed_of(changed)
    await feed.load()
    screen = Screen(board, feed, colour=colour, unicode=unicode)
    screens.append(screen)
    with _signals(screen) as ended_by:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.follow)
            await screen.run_async(mouse=False)  # the terminal's own selection of text goes on
            tasks.cancel_scope.cancel()
    return 128 + ended_by[0] if ended_by else screen.return_code or 0


@contextlib.contextmanager
def _signals(screen: Screen) -> Iterator[list[int]]:
    """Leave the screen in order upon SIGTERM and SIGHUP, which are listed; Ctrl-C is for a command that runs."""
    loop, ended_by = asyncio.get_running_loop(), list[int]()

    def leave(number: int) -> None:
        ended_by.append(number)
        screen.exit()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave, number)
    # A handler, unlike SIG_IGN, is not inherited by the command.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield ended_by
    finally:
        signal.signal(signal.SIGINT, before)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
