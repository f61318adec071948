"""What a person reads along the way: short lines on stderr, so that stdout carries data only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.link import LinkCallback


def plain() -> bool:
    """Whether stderr takes no colour."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not sys.stderr.isatty()


def note(text: str) -> None:
    """One line of progress."""
    _write(f"holdfast: {text}" if plain() else f"\x1b[2mholdfast:\x1b[0m {text}")


def error(found: HoldfastError) -> None:
    """What went wrong, and in a second line what to do."""
    _write(f"error: {found.message}" if plain() else f"\x1b[1;31merror:\x1b[0m {found.message}")
    if found.fix:
        _write(f"  {found.fix}")


def link_notes() -> LinkCallback:
    """Says once that the controller is away, and once that it is back, however many streams notice."""
    away = False

    def on_link(problem: HoldfastError | None) -> None:
        nonlocal away
        if problem is not None and not away:
            note(f"{problem.message} The job is not affected; waiting for the controller to come back …")
        elif problem is None and away:
            note("the controller is back.")
        away = problem is not None

    return on_link


def _write(line: str) -> None:
    # One write for a line, so that it never mixes with a rank's output.
    try:
        os.write(2, (line + "\n").encode(errors="replace"))
    except OSError:
        pass  # nobody reads stderr; the job is more important
