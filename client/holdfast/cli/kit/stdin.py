"""Stdin: read within a bound, and empty where the command was started without one."""

from __future__ import annotations

import sys


def is_terminal() -> bool:
    """Whether a user can be asked there."""
    return sys.stdin is not None and sys.stdin.isatty()


def read(most: int) -> bytes:
    """The bytes that stand there, at most so many."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read(most)


def job_text() -> str:
    """The text of a job file. Raises ``InvalidSpec`` where it is too large or is not UTF-8."""
    from holdfast.spec.parse import text

    return text.decoded(read(text.MAX_BYTES + 1), "stdin")
