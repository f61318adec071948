"""``holdfast top``: a live screen of hosts, jobs and what needs attention."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import OUT, coloured, say

if TYPE_CHECKING:
    from holdfast.cli.top.feed import Feed
    from holdfast.client import Client

_INSTEAD = "See the same with: holdfast status, holdfast ps, or once with: holdfast top --once"


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and end, for scripts. COLUMNS and LINES are its size.")
def top(once: bool) -> None:
    """Watch hosts, jobs and what needs attention on a live screen.

    Each GPU's load, each job's state, step, goodput and health, why a job waits, and what needs a person. Keys move,
    sort and filter, and lead to a job's logs, stacks, hangs and events; ? lists them, q leaves.

    Takes the extra `top`: pip install 'holdfast[top]'. The client's packages have it; --once needs none.
    """
    if once:
        with_client(_once)
        return
    if os.environ.get("TERM", "dumb") == "dumb":
        raise click.UsageError(f"This terminal can't be drawn on (TERM is dumb or unset). {_INSTEAD}")
    if not all(os.isatty(fd) for fd in (0, 1, 2)):
        raise click.UsageError(f"A live screen takes a terminal. {_INSTEAD}")
    from holdfast._base import extras

    extras.require("holdfast top", "top")
    sys.exit(with_client(_live))


async def _once(client: Client) -> None:
    import time

    from holdfast.cli.top.board import Board
    from holdfast.cli.top.feed import Feed
    from holdfast.cli.top.frame import Look, frame

    size = shutil.get_terminal_size()
    look = Look(size.columns, size.lines, colour=coloured(OUT), unicode=takes_unicode(os.environ))
    board = Board()
    feed = Feed(client, board)
    await feed.load()
    await feed.load_hosts()
    frame(board, time.time(), look)  # says what is in view
    await feed.load_in_view()
    say(*(line.rstrip() for line in frame(board, time.time(), look)))


async def _live(client: Client) -> int:
    from holdfast.cli.top.board import Board
    from holdfast.cli.top.feed import Feed
    from holdfast.cli.top.screen import live

    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # a shell's words of a size that changes
    board = Board()

    def feed_of(changed: Callable[[], None]) -> Feed:
        return Feed(client, board, changed=changed)

    return await live(board, feed_of, colour=coloured(OUT), unicode=takes_unicode(os.environ))


def takes_unicode(environment: os._Environ[str] | dict[str, str]) -> bool:
    """Whether the locale says that the terminal takes UTF-8. Python sets LC_CTYPE to C.UTF-8 where no locale is."""
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if environment.get("LC_CTYPE") == "C.UTF-8" and not environment.get("LC_ALL"):
        locale = environment.get("LANG") or ""
    return re.search(r"utf-?8", locale, re.IGNORECASE) is not None
