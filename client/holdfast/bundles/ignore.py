"""Decides which files of a folder are left out: patterns as in ``.gitignore``, one a line, later ones before earlier.

``*`` and ``?`` match within a name, ``[…]`` one of some characters, ``**`` any number of directories. A pattern
with a slash at its start or within counts from the folder of its file; any other matches a name at any depth. A
slash at its end: directories only. ``!`` takes back in what an earlier pattern left out. ``#`` begins a comment.

A test holds this to git itself over random patterns. The pathspec library differs from git there in four sets
of a hundred, and raises an error for ``[z-a]``, which git takes for a pattern that matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast._base.dataclass import dataclass

FILES = (".holdfastignore", ".gitignore")
"""Of a folder the first that is there counts."""
DEFAULTS = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[co]",
    ".venv/",
    "venv/",
    "node_modules/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".ipynb_checkpoints/",
    "*.egg-info/",
    ".DS_Store",
)
"""Left out unless a pattern takes them back in."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file: a pattern of paths that leaves them out or takes them back."""

    regex: re.Pattern[str]
    leaves_out: bool
    directories_only: bool


@dataclass(frozen=True, slots=True)
class Ignore:
    """All patterns that count, in order."""

    patterns: tuple[Pattern, ...]

    def leaves_out(self, path: str, *, is_directory: bool) -> bool:
        """Whether ``path``, relative to the folder, stays behind; not asked for what is below one that does."""
        left_out = False
        for pattern in self.patterns:
            if pattern.leaves_out != left_out and (is_directory or not pattern.directories_only):
                left_out ^= pattern.regex.fullmatch(path) is not None
        return left_out


def read(lines: Iterable[str], *, defaults: bool = True) -> Ignore:
    """The patterns of a file's lines, after the defaults."""
    wanted = [*(DEFAULTS if defaults else ()), *lines]
    return Ignore(tuple(pattern for line in wanted if (pattern := _pattern(line)) is not None))


def _pattern(line: str) -> Pattern | None:
    text = line.rstrip("\r\n")
    text = text if text.endswith("\\ ") else text.rstrip()
    if not text or text.startswith("#"):
        return None
    leaves_out = not text.startswith("!")
    text = text if leaves_out else text[1:]
    directories_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    try:
        regex = re.compile(("" if anchored else "(?:.*/)?") + _translated(text.lstrip("/")), re.DOTALL)
    except re.error:
        return None
    return Pattern(regex, leaves_out, directories_only)


def _translated(text: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        stars = len(text) - at - len(text[at:].lstrip("*")) + 1 if character == "*" else 0
        starts_part = at == 1 or text[at - 2] == "/"
        if stars > 1 and starts_part and text[at + stars - 1 : at + stars] == "/":
            parts.append("(?:[^/]+/)*")
            at += stars
        elif stars > 1 and starts_part and at + stars - 1 == len(text):
            parts.append(".+")
            at = len(text)
        elif stars:
            parts.append("[^/]*")
            at += stars - 1
        elif character == "?":
            parts.append("[^/]")
        elif (
            character == "[" and (end := text.find("]", at + 2 if text[at : at + 1] in ("!", "]") else at + 1)) > 0
        ):
            inside = text[at:end].replace("\\", "\\\\").replace("[", "\\[")
            inside = "^" + inside[1:] if inside[:1] in ("!", "^") else inside
            parts.append(f"(?!/)[{inside}]")
            at = end + 1
        elif character == "\\" and at < len(text):
            parts.append(re.escape(text[at]))
            at += 1
        else:
            parts.append(re.escape(character))
    return "".join(parts)
