"""The ``holdfast`` command. Nothing here imports gRPC or pydantic before a command needs it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

PYTHON = (3, 11)
OUR_FAILURE = 125


def main() -> None:
    """The entry point. An impatient Ctrl-C ends it quietly, even while it is still being loaded."""
    if sys.version_info[:2] < PYTHON:
        found, needed = (".".join(map(str, each[:2])) for each in (sys.version_info, PYTHON))
        _without_us(sys.argv[1:], f"is Python {found}, and Holdfast needs {needed} or later")
    try:
        from holdfast.cli import app
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "holdfast":
            raise
        _without_us(sys.argv[1:], f"can't load Holdfast's packages: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        app.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _without_us(words: list[str], why: str) -> NoReturn:
    """Say why this Python can't load all of us, and run what a guard was to run where that is wanted."""
    cure = "Run it by the Python that it was installed with: /path/to/python -m holdfast"
    sys.stderr.write(f"holdfast: {sys.executable} on {os.uname()[1]} {why}. {cure}\n")
    options, command = (
        (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    )
    if options[:1] == ["guard"] and "--or-run" in options and command:
        sys.stderr.write("holdfast: the command runs without a guard: nothing is restarted, and no hang is seen\n")
        sys.stderr.flush()
        os.execvp(command[0], command)
    sys.exit(OUR_FAILURE)
