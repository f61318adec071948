"""Aligned columns for people; on a terminal they are cut to its width, elsewhere nothing is lost."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast.cli.kit.console import OUT, coloured, say_text, styled

_GAP = "  "
_LEAST = 8
"""Narrower than this a column says nothing."""


@dataclass(frozen=True, slots=True)
class Column:
    """``give``: may be cut on a terminal; the widest such column gives first. ``right``: for numbers."""

    title: str
    give: bool = False
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with an SGR style such as ``32``."""

    text: str
    style: str = ""


Row = Sequence[Cell | str]


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; ``None`` when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def render(columns: Sequence[Column], rows: Iterable[Row], *, width: int | None, colour: bool) -> str:
    """The table as lines, each within ``width`` unless that is ``None``."""
    cells = [[_cell(c) for c in row] for row in rows]
    widths = [max(cell_len(c.title), *(cell_len(row[i].text) for row in cells), 0) for i, c in enumerate(columns)]
    if width is not None:
        _narrow(columns, widths, width - len(_GAP) * (len(columns) - 1))
    head = [Cell(c.title, "2") for c in columns]
    return "".join(_line(columns, widths, line, colour) + "\n" for line in [head, *cells])


def write(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """The table on stdout."""
    say_text(render(columns, rows, width=terminal_width(), colour=coloured(OUT)))


def cut(text: str, width: int) -> str:
    """The text within ``width`` cells, ending in … when it was longer."""
    if cell_len(text) <= width:
        return text
    kept, taken = [], 0
    for character in text:
        taken += cell_len(character)
        if taken >= width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def cell_len(text: str) -> int:
    """How many cells of a terminal the text takes: two for a wide character, none for what is drawn on another."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in unicodedata.normalize("NFC", text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _narrow(columns: Sequence[Column], widths: list[int], room: int) -> None:
    giving = [i for i, column in enumerate(columns) if column.give]
    while sum(widths) > room and giving:
        widest = max(giving, key=lambda i: widths[i])
        if widths[widest] <= max(_LEAST, len(columns[widest].title)):
            return
        others = sorted((widths[i] for i in giving if i != widest), reverse=True)
        # Down to its rival at most, so that two long columns share what there is.
        floor = max(_LEAST, len(columns[widest].title), others[0] - 1 if others and others[0] > _LEAST else 0)
        widths[widest] = max(min(floor, widths[widest] - 1), widths[widest] - (sum(widths) - room))


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Cell], colour: bool) -> str:
    parts = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        text = cut(cell.text, width)
        padding = " " * (width - cell_len(text))
        shown = styled(text, cell.style, colour=colour)
        parts.append(padding + shown if column.right else shown + padding)
    return _GAP.join(parts).rstrip()


def _cell(value: Cell | str) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    return Cell(one_line(cell.text), cell.style)
