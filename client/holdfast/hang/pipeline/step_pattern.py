"""Whether a job's own step pattern can be matched in bounded time, told before the job runs.

Python's matcher tries every way in which a pattern can share a text out among its parts, and can't be stopped. The
ways are counted from the pattern's own structure: a loop over something that repeats or has alternatives itself has
ever more of them with each character, and is refused. Of other loops only those count of which the text doesn't say
where they end, since what follows could go on with the same character: two of these are tried against each other at
some ten thousand places of a line, which takes milliseconds; three take seconds, and are refused.
"""

from __future__ import annotations

import re
import re._parser as parser  # type: ignore[import-not-found]  # the only reader of patterns that there is
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_STEP_LINE = 256
"""So much of a line is matched against a step pattern: what is tried grows with its cube."""
MAX_LOOSE = 2
"""Loops without a sure end, in one pattern."""
MAX_CHOICES = (10, 6, 2)
"""Optional parts and alternatives in one pattern, by its loose loops: each can double what is tried."""

_OTHER = 128
_ALL = (1 << (_OTHER + 1)) - 1
"""A set of characters: a bit for each of ASCII, and one for all others."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Something that takes characters of ``chars``: once, maybe, or again and again."""

    chars: int
    maybe: bool = False
    loop: bool = False


class _Refused(Exception):
    """Why a pattern may take for ever."""


def why_endless(pattern: str) -> str:
    """Why matching could take very long, in words that go on from the field's name; empty where it can't.

    Raises ``re.error`` for what is no regular expression.
    """
    tree = parser.parse(pattern)
    fold = bool(tree.state.flags & re.IGNORECASE)
    try:
        parts, choices = _sequence(tree, fold=fold), _choices(tree)
    except _Refused as refused:
        return str(refused)
    loose = sum(part.loop and bool(part.chars & _following(parts[at + 1 :])) for at, part in enumerate(parts))
    if loose > MAX_LOOSE:
        return f"has {loose} parts such as .* whose end is not sure, which can take very long"
    if choices > MAX_CHOICES[loose]:
        return f"has {choices} optional parts or alternatives, which can take very long"
    return ""


def _following(parts: list[_Part]) -> int:
    """What may come next; nothing at the end, where a match is complete."""
    chars = 0
    for part in parts:
        chars |= part.chars
        if not part.maybe:
            break
    return chars


def _sequence(items: Any, *, fold: bool) -> list[_Part]:
    return [part for op, value in items for part in _parts(str(op), value, fold=fold)]


def _parts(op: str, value: Any, *, fold: bool) -> Iterator[_Part]:
    match op:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            yield from _repeated(*value, fold=fold)
        case "SUBPATTERN":
            yield from _sequence(value[-1], fold=fold)
        case "ATOMIC_GROUP":
            yield from _sequence(value, fold=fold)
        case "BRANCH":
            for way in value[1]:
                for part in _sequence(way, fold=fold):
                    yield _Part(part.chars, True, part.loop)
        case "ASSERT" | "ASSERT_NOT":
            if _varies(value[1]):
                raise _Refused("repeats something in a look-ahead or look-behind, which can take very long")
            yield _Part(_ALL)  # Takes nothing, and may fail whatever comes next.
        case "AT":
            yield _Part(_ALL)
        case "GROUPREF" | "GROUPREF_EXISTS":
            raise _Refused("refers back to one of its groups, which can take very long")
        case _:
            yield _Part(_chars(op, value, fold=fold))


def _repeated(least: int, most: int, items: Any, *, fold: bool) -> Iterator[_Part]:
    inner = _sequence(items, fold=fold)
    if most == 1:
        yield from (_Part(part.chars, least == 0 or part.maybe, part.loop) for part in inner)
        return
    if _varies(items):
        raise _Refused("repeats something that repeats or has alternatives itself, which can take for ever")
    chars = 0
    for part in inner:
        chars |= part.chars
    yield _Part(chars, least == 0, least != most)


def _varies(items: Any) -> bool:
    """Whether it can match texts of several lengths, or in several ways."""
    for op, value in items:
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                if value[0] != value[1] or _varies(value[2]):
                    return True
            case "SUBPATTERN":
                if _varies(value[-1]):
                    return True
            case "ATOMIC_GROUP":
                if _varies(value):
                    return True
            case "BRANCH" | "GROUPREF" | "GROUPREF_EXISTS" | "ASSERT" | "ASSERT_NOT":
                return True
    return False


def _choices(items: Any) -> int:
    """Optional parts, and alternatives beyond the first."""
    found = 0
    for op, value in items:
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                found += (value[0] == 0 and value[1] == 1) + _choices(value[2])
            case "SUBPATTERN":
                found += _choices(value[-1])
            case "ATOMIC_GROUP":
                found += _choices(value)
            case "BRANCH":
                found += len(value[1]) - 1 + sum(_choices(way) for way in value[1])
    return found


# -- Characters --------------------------------------------------------------------------------------------------


def _chars(op: str, value: Any, *, fold: bool) -> int:
    match op:
        case "LITERAL":
            return _bit(value, fold=fold)
        case "NOT_LITERAL":
            return _ALL if value >= _OTHER else _ALL & ~_bit(value, fold=fold)
        case "RANGE":
            low, high = value
            chars = _OTHER_BIT if high >= _OTHER else 0
            for code in range(low, min(high, _OTHER - 1) + 1):
                chars |= _bit(code, fold=fold)
            return chars
        case "CATEGORY":
            return _category(str(value))
        case "IN":
            return _set(value, fold=fold)
        case _:
            return _ALL


def _set(members: Any, *, fold: bool) -> int:
    negated = bool(members) and str(members[0][0]) == "NEGATE"
    chars = 0
    for op, value in members[negated:]:
        chars |= _chars(str(op), value, fold=fold)
    # Of the characters beyond ASCII some are left whatever was named of them.
    return (_ALL & ~chars) | _OTHER_BIT if negated else chars


_OTHER_BIT = 1 << _OTHER


def _bit(code: int, *, fold: bool) -> int:
    if not fold or code >= _OTHER:
        return 1 << min(code, _OTHER)
    # Some letters beyond ASCII fold into it, such as the Kelvin sign.
    return 1 << ord(chr(code).lower()) | 1 << ord(chr(code).upper()) | (_OTHER_BIT if chr(code).isalpha() else 0)


def _category(name: str) -> int:
    kind = name.rpartition("_")[2]
    test = {"DIGIT": str.isdigit, "SPACE": str.isspace}.get(kind, lambda c: c.isalnum() or c == "_")
    chars = sum(1 << code for code in range(_OTHER) if test(chr(code)))
    return (_ALL & ~chars if "_NOT_" in name else chars) | _OTHER_BIT
