"""A job's own step pattern, matched in time linear in the line, whatever the pattern.

A pattern comes from a user and meets every line of output, in the agent's loop. Python's matcher tries every way in
which a pattern can share a line among its parts, cannot be stopped, and takes for ever for ``(a+)+b``. RE2 has no
such patterns. What it leaves out is what cannot be matched in linear time: references back to a group, look-ahead
and look-behind, atomic groups. Compiling is bounded, too: RE2 writes repeats out, and Python's compiler walks through
every character of a class that ignores case, so it only parses.
"""

from __future__ import annotations

import functools
import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Protocol

MAX_STEP_LINE = 256
"""Characters of a line that are matched against a step pattern."""
MAX_CHARS = 1024
"""Of a pattern."""
MAX_BYTES = 1 << 17
"""Memory of one compiled pattern: some 5,000 of RE2's instructions, which take milliseconds to compile."""


class BadPattern(ValueError):
    """A step pattern that cannot be used; the message continues a sentence that begins with the field's name."""

    fix = r"such as step=(\d+)"


class NeedsBacktracking(BadPattern):
    """A pattern of Python's that no matcher with linear time knows."""


class TooLarge(BadPattern):
    """A pattern with repeats that amount to too much."""

    fix = r"use fewer or smaller repeats: \d+ is as good as \d{1,500}"


class StepPattern(Protocol):
    """A compiled pattern, of RE2 or of Python."""

    @property
    def groups(self) -> int:
        """Number of groups in the pattern."""

    def search(self, text: str) -> Any:
        """Return the first match in ``text``, or None."""


def compiled(pattern: str) -> StepPattern:
    """Compile a pattern that both RE2 and Python's ``re`` know, in milliseconds. Raises ``BadPattern``.

    Python reads it first because its errors name the position, and because agents of release 0.1 match with it.
    """
    if len(pattern) > MAX_CHARS:
        raise BadPattern(f"has {len(pattern):,} characters; at most {MAX_CHARS:,} are allowed")
    try:
        _parser.parse(pattern)
    except RecursionError as error:
        raise BadPattern("is no regular expression: maximum recursion depth exceeded") from error
    except (re.error, OverflowError) as error:
        raise BadPattern(f"is no regular expression: {str(error)[:200]}") from error
    import re2  # only for a job that has a pattern: 3 MB that other agents and commands need not hold

    try:
        found: StepPattern = re2.compile(pattern, _options())
    except re2.error as error:
        raise _refused(error) from error
    except UnicodeEncodeError as error:
        raise BadPattern("is no regular expression: it holds half of a surrogate pair") from error
    return found


def compiled_earlier(pattern: str) -> StepPattern:
    """Compile a pattern that a controller has accepted, which may have been one of release 0.1.

    That release matched with Python's ``re`` and refused what could take long. Raises ``BadPattern``.
    """
    try:
        return compiled(pattern)
    except NeedsBacktracking as refused:
        try:
            return re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            raise refused from None


@functools.cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_BYTES
    return options


def _refused(error: Exception) -> BadPattern:
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    if re.search(r"invalid escape sequence: \\\d|\(\?P$|\(\?P=|\(\?\(", text):
        return NeedsBacktracking("refers back to one of its groups, which step patterns (RE2 syntax) cannot do")
    if re.search(r"\(\?(<?[=!]|>)", text):
        return NeedsBacktracking(
            "has a look-ahead, look-behind or atomic group, which step patterns (RE2 syntax) cannot have"
        )
    if "pattern too large" in text:
        return TooLarge("is too large: its repeats, written out, take more memory than a pattern may")
    return BadPattern(f"is no regular expression: {text[:200]}")
