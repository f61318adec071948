"""Hosts named by patterns: ``gpu-[01-16]``, ``rack[a,c]-3``."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

MOST_NAMES = 10_000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d+)-(\d+)")


def expand(words: Iterable[str]) -> list[str]:
    """Every host that the words name, each once, in their order. Raises ``click.BadParameter``."""
    found: dict[str, None] = {}
    for word in words:
        for name in _expanded(word):
            found[name] = None
            if len(found) > MOST_NAMES:
                raise click.BadParameter(f"{word!r} names more than {MOST_NAMES} hosts.")
    return list(found)


def _expanded(word: str) -> list[str]:
    names, at = [""], 0
    for brackets in _BRACKETS.finditer(word):
        fixed, choices = word[at : brackets.start()], _choices(word, brackets[1])
        if len(names) * len(choices) > MOST_NAMES:
            raise click.BadParameter(f"{word!r} names more than {MOST_NAMES} hosts.")
        names = [name + fixed + choice for name in names for choice in choices]
        at = brackets.end()
    rest = word[at:]
    if "[" in rest or "]" in rest or not word:
        raise click.BadParameter(f"{word!r} is no name of a host; a pattern is written host-[1-4] or host-[1,3].")
    return [name + rest for name in names]


def _choices(word: str, inside: str) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        span = _SPAN.fullmatch(part.strip())
        if span is None:
            if not part.strip():
                raise click.BadParameter(f"{word!r} has nothing between two of its brackets or commas.")
            found.append(part.strip())
            continue
        first, last = int(span[1]), int(span[2])
        if last < first or last - first >= MOST_NAMES:
            raise click.BadParameter(f"{word!r}: {part} is no span of numbers that go up, at most {MOST_NAMES}.")
        width = len(span[1]) if span[1].startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return found
