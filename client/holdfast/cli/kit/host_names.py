"""Hosts named by patterns as Slurm writes them: ``gpu-[01-16]``, ``n[0-12/4]``, ``r[a,c]-3,login1``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click

MOST_NAMES = 10_000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_OUTSIDE_COMMA = re.compile(r",(?![^\[\]]*\])")
_SPAN = re.compile(r"(\d+)-(\d+)(?:/(\d+))?")


def expand(words: Iterable[str]) -> list[str]:
    """Every host that the words name, each once, in their order. Raises ``click.BadParameter``."""
    found: dict[str, None] = {}
    for word in words:
        for pattern in _OUTSIDE_COMMA.split(word):
            for name in _expanded(word, pattern):
                found[name] = None
                if len(found) > MOST_NAMES:
                    raise click.BadParameter(f"{word!r} names more than {MOST_NAMES} hosts.")
    return list(found)


def _expanded(word: str, pattern: str) -> list[str]:
    names, at = [""], 0
    for brackets in _BRACKETS.finditer(pattern):
        fixed, choices = pattern[at : brackets.start()], [*_choices(word, brackets[1])]
        if len(names) * len(choices) > MOST_NAMES:
            raise click.BadParameter(f"{word!r} names more than {MOST_NAMES} hosts.")
        names = [name + fixed + choice for name in names for choice in choices]
        at = brackets.end()
    rest = pattern[at:]
    if "[" in rest or "]" in rest or not pattern:
        raise click.BadParameter(f"{word!r} is no name of a host; a pattern is written host-[1-4] or host-[1,3].")
    return [name + rest for name in names]


def _choices(word: str, inside: str) -> Iterator[str]:
    for part in map(str.strip, inside.split(",")):
        if not part:
            raise click.BadParameter(f"{word!r} has nothing between two of its brackets or commas.")
        span = _SPAN.fullmatch(part)
        if span is None:
            yield part
            continue
        first, last, step = int(span[1]), int(span[2]), int(span[3] or 1)
        if last < first or last - first >= MOST_NAMES or not step:
            raise click.BadParameter(f"{word!r}: {part} is no span of numbers that go up, at most {MOST_NAMES}.")
        width = len(span[1]) if span[1].startswith("0") else 0
        yield from (f"{number:0{width}d}" for number in range(first, last + 1, step))
