"""The live screen in a terminal without a terminal: keys, sizes, and what is drawn."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import cast

import pytest
from tests.unit.cli.top.boards import board, host, job
from tests.unit.cli.top.test_feed import Controller

from holdfast.cli.top import screen as live
from holdfast.cli.top.board import Board
from holdfast.cli.top.feed import Feed
from holdfast.cli.top.screen import Lines, Screen
from holdfast.client import Client


def screen_of(shown: Board) -> Screen:
    feed = Feed(cast("Client", Controller(shown)), shown)
    return Screen(shown, feed, colour=True, unicode=True)


def seen(screen: Screen) -> list[str]:
    """The lines as they are on the terminal."""
    lines = screen.query_one(Lines)
    return [lines.render_line(y).text.rstrip() for y in range(lines.size.height)]


async def test_keys_and_sizes_change_what_is_seen() -> None:
    screen = screen_of(board(host("h1"), job("a"), job("b")))
    async with screen.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert len(seen(screen)) == 24
        assert any(line.startswith("> a") for line in seen(screen))
        await pilot.press("down")
        assert any(line.startswith("> b") for line in seen(screen))
        await pilot.press("tab")
        assert any(line.startswith("> h1") for line in seen(screen))
        await pilot.press("1", "slash", "x", "q")
        assert seen(screen)[-1] == "/xq_"
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert len(seen(screen)) == 60 and any("h1" in line for line in seen(screen))
        await pilot.press("escape", "q")
    assert screen.return_code == 0


async def test_news_are_drawn_without_a_key() -> None:
    shown = board(job("a"))
    screen = screen_of(shown)
    async with screen.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        shown.problem = "You may not look around."
        screen.news()
        while not any("You may not look around." in line for line in seen(screen)):
            await asyncio.sleep(0.01)
            await pilot.pause()


async def test_a_key_runs_a_command_in_place_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(live, "run_command", ran.append)
    screen = screen_of(board(job("a")))
    monkeypatch.setattr(Screen, "suspend", lambda self: _Suspended())
    async with screen.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press("h")
        await screen.workers.wait_for_complete()
        await pilot.press("down")
        assert any(line.startswith("> a") for line in seen(screen))
    assert ran == [("job", "hangs", "--", "a")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_leaves_the_screen_in_order(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, number)]
    left = asyncio.Event()
    screen = screen_of(board())
    monkeypatch.setattr(screen, "exit", left.set)
    with live._signals(screen) as ended_by:
        os.kill(os.getpid(), signal.SIGINT)  # is for a command that runs, not for the screen
        os.kill(os.getpid(), number)
        await left.wait()
        assert ended_by == [number]
    assert [signal.getsignal(each) for each in (signal.SIGINT, number)] == before


class _Suspended:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...
