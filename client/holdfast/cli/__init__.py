"""The ``holdfast`` command. Nothing here imports gRPC or pydantic before a command needs it."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

PYTHON = (3, 11)
OUR_FAILURE = 125


def main() -> None:
    """The entry point. An impatient Ctrl-C ends it quietly, even while it is still being loaded."""
    if sys.version_info[:2] < PYTHON:
        _without_us(sys.argv[1:])
    try:
        from holdfast.cli import app

        app.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _without_us(words: list[str]) -> None:
    """Say that this Python is too old to load any of us, and run what a guard was to run where that is wanted."""
    host, found, needed = os.uname()[1], ".".join(map(str, sys.version_info[:2])), ".".join(map(str, PYTHON))
    sys.stderr.write(
        f"holdfast: {sys.executable} on {host} is Python {found}, and Holdfast needs {needed} or later.\n"
    )
    options, command = (
        (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    )
    if options[:1] == ["guard"] and "--or-run" in options and command:
        sys.stderr.write("holdfast: the command runs without a guard: nothing is restarted, and no hang is seen\n")
        sys.stderr.flush()
        os.execvp(command[0], command)
    sys.exit(OUR_FAILURE)
