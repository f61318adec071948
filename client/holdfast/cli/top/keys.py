"""The keys of the live screen, and the effect of each on the board."""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass
from holdfast.cli.top.board import HOST_ORDERS, JOB_ORDERS, ROWS, ROWS_MOST, Board, Group, Pane

SEARCH_MOST = 100

HELP = (
    ("↑ ↓ PgUp PgDn Home End", "move; also k j, and g G for the first and the last row"),
    ("Tab  1 2 3", "the next list; jobs, hosts, what needs attention"),
    ("/", "only rows with a text: of jobs in id, name, owner, project, label and host; Esc shows all again"),
    ("s", "sort by something else"),
    ("f", "all jobs, those that run, that wait, or that have ended"),
    ("Enter", "job show, or host show"),
    ("l", "logs of the job, followed; Ctrl-C comes back"),
    ("t", "stacks of the job's ranks, taken now"),
    ("h", "hangs of the job"),
    ("e", "events of the job or the host"),
    ("?", "these lines"),
    ("q", "leave"),
)


class Ask(enum.Enum):
    """Effects of keys beyond another frame."""

    QUIT = "quit"
    # The controller is asked for the list of jobs again.
    JOBS = "jobs"


@dataclass(frozen=True)
class Run:
    """A command of ``holdfast`` to run in place of the screen."""

    words: tuple[str, ...]


_COMMANDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("job", "enter"): ("job", "show", "--"),
    ("job", "l"): ("logs", "--follow", "--tail", "100", "--"),
    ("job", "t"): ("job", "stacks", "--"),
    ("job", "h"): ("job", "hangs", "--"),
    ("job", "e"): ("job", "events", "--"),
    ("host", "enter"): ("host", "show", "--"),
    ("host", "e"): ("host", "events", "--"),
}
"""By what the chosen row is about, and key."""
_PANES = {"1": Pane.JOBS, "2": Pane.HOSTS, "3": Pane.ALERTS}


def press(board: Board, key: str, character: str, now: float) -> Ask | Run | None:
    """Change the board as the key wants. ``key`` is Textual's name of it, ``character`` what it types, if anything."""
    board.note = ""
    if board.typing is not None:
        return _typed(board, board.typing, key, character)
    if board.helps:
        board.helps = False
        return Ask.QUIT if key == "q" else None
    match character or key:
        case "q" | "\x03":
            return Ask.QUIT
        case "?":
            board.helps = True
        case "/":
            board.typing = board.search[board.pane]
        case "s":
            orders = {Pane.JOBS: len(JOB_ORDERS), Pane.HOSTS: len(HOST_ORDERS), Pane.ALERTS: 1}[board.pane]
            board.orders[board.pane] = (board.orders[board.pane] + 1) % orders
        case "f":
            groups = list(Group)
            board.group = groups[(groups.index(board.group) + 1) % len(groups)]
            board.pane, board.limit = Pane.JOBS, ROWS
            return Ask.JOBS
        case "1" | "2" | "3":
            board.pane = _PANES[character]
        case _:
            return _moved(board, key, character, now)
    return None


def _moved(board: Board, key: str, character: str, now: float) -> Ask | Run | None:
    name = {"j": "down", "k": "up", "g": "home", "G": "end"}.get(character, key)
    panes = list(Pane)
    match name:
        case "tab" | "shift+tab":
            by = 1 if name == "tab" else -1
            board.pane = panes[(panes.index(board.pane) + by) % len(panes)]
        case "up" | "down" | "pageup" | "pagedown" | "home" | "end":
            return _move(board, name, now)
        case "escape" if board.search[board.pane]:
            return _search(board, "")
        case "enter" | "l" | "t" | "h" | "e":
            return _command(board, name, now)
    return None


def _move(board: Board, name: str, now: float) -> Ask | None:
    keys = board.keys(board.pane, now)
    if not keys:
        return None
    chosen, page = board.chosen.get(board.pane), max(1, board.heights[board.pane] - 1)
    place = keys.index(chosen) if chosen in keys else min(board.places[board.pane], len(keys) - 1)
    by = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -len(keys), "end": len(keys)}[name]
    last = len(keys) - 1
    board.places[board.pane] = min(max(0, place + by), last)
    board.chosen[board.pane] = keys[board.places[board.pane]]
    if board.pane is not Pane.JOBS or by < 0 or place + by < last or not board.more_jobs:
        return None
    if board.limit >= ROWS_MOST:
        board.note = f"No more than {ROWS_MOST} jobs of a group are loaded; / and f leave others."
        return None
    board.limit = min(board.limit + ROWS, ROWS_MOST)
    return Ask.JOBS


def _typed(board: Board, text: str, key: str, character: str) -> Ask | None:
    """One key of a text that is typed. Hosts and alerts follow it at once, jobs when it is complete."""
    match key:
        case "enter":
            board.typing = None
            return _search(board, text)
        case "escape" | "ctrl+c":
            board.typing = None
            return _search(board, "")
        case "backspace" | "ctrl+h":
            text = text[:-1]
        case "ctrl+u":
            text = ""
        case _ if character.isprintable():
            text = (text + character)[:SEARCH_MOST]
    board.typing = text
    if board.pane is not Pane.JOBS:
        board.search[board.pane] = text
    return None


def _search(board: Board, text: str) -> Ask | None:
    changed = board.search[board.pane] != text
    board.search[board.pane] = text
    if board.pane is Pane.JOBS and changed:
        board.limit = ROWS
        return Ask.JOBS
    return None


def _command(board: Board, name: str, now: float) -> Run | None:
    kind, subject = board.target(now)
    words = _COMMANDS.get((kind, name))
    if words is None:
        board.note = {"": "No row is chosen.", "host": "That is for jobs; of a host: Enter, e."}.get(kind, "")
        return None
    return Run((*words, subject))
