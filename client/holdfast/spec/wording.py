"""Kinds of text in a job file, values in a few words for messages, and complaints without a path.

The lowest layer of ``spec``: it knows no field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast._base.dataclass import dataclass

_SHOWN = 60

Fields = Mapping[str, Any]
"""A model's fields by snake_case name: absent where unset, None where the value was refused."""
Place = tuple[str | int, ...]
"""Field names, keys and indexes from the top to a value."""


class Refused(ValueError):
    """A value breaks the rules of its field. ``problem`` and ``fix`` go into the field's violation."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(f"{problem} ({fix})" if fix else problem)
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that the spec breaks, at a place counted from the spec."""

    place: Place
    problem: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Unquoted:
    """A YAML scalar without quotes that YAML takes for something else than text."""

    value: bool | int | float | str | None
    """As read; text where YAML's reading (octal, base 60) is hardly what was meant."""
    written: str
    kind: str
    """``number``, ``boolean`` or ``null``."""


class Table(dict[str, Any]):
    """A mapping from a text in which some keys may have been repeated."""

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(values)
        self.repeated: list[str] = []


def plain(value: object) -> object:
    """The value behind an ``Unquoted``; anything else as it is."""
    return value.value if isinstance(value, Unquoted) else value


def shown(value: object) -> str:
    """``value`` in a few words, for a message. Never long, whatever was given."""
    match value:
        case Unquoted():
            return shortened(value.written) if value.written else "nothing"
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if abs(value) >= 10**20:
            return "a huge number"
        case int() | float():
            return str(value)
        case str():
            return json.dumps(shortened(value), ensure_ascii=not value.isprintable())
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return shortened(type(value).__name__)


def shortened(text: str) -> str:
    """The first characters of a long text."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def written_duration(seconds: float) -> str:
    """Whole seconds as a person writes them: ``3600`` is ``1 h``."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 if unit == "days" else 1) * length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    return f"{round(seconds, 6):.12g} s"
