"""Frozen dataclasses as plain JSON values and back: for journals, recordings, evidence and the GPU helper's answers.

It works for dataclasses and named tuples whatever they hold: enums travel by name, sets as sorted lists, mappings
as objects. A field that a record lacks takes its default, so that newer code reads older records; a field that a
record has too many is refused, unless the format says otherwise. No library: msgspec and cattrs know neither enums
by name nor defaults left out of dataclasses, and the agent has to stay small.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar

from holdfast._base.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Format:
    """How values are written and read."""

    camel: bool = False
    """Keys are camelCase."""
    without_defaults: bool = False
    """A field that has its default value is left out."""
    digits: int | None = None
    """Floats are rounded to so many digits after the point."""
    skip_unknown: bool = False
    """Keys that no field has are passed over when reading, instead of refused."""
    complete: bool = False
    """A record that lacks a field is refused, even if the field has a default."""
    write: Mapping[type, Callable[[Any], Any]] = field(default_factory=dict)
    """Writers of single types, in place of the usual ones."""
    read: Mapping[type, Callable[[Any], Any]] = field(default_factory=dict)
    """Readers of single types, in place of the usual ones."""


PLAIN = Format()


class _Wrong(ValueError):
    """A value that does not fit its type, with the path to it."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path.removeprefix('.')}: {problem}" if path else problem)
        self.problem, self.path = problem, path


def to_plain(value: object, form: Format = PLAIN) -> Any:
    """Return the value as dicts, lists, strings, numbers and None."""
    if (write := form.write.get(type(value))) is not None:
        return write(value)
    if isinstance(value, enum.Enum):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        held = ((one, getattr(value, one.name)) for one in fields(value))
        return {
            _key(one.name, form): to_plain(item, form)
            for one, item in held
            if not (form.without_defaults and item == one.default)
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {_key(name, form): to_plain(item, form) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): to_plain(one, form) for key, one in value.items()}
    if isinstance(value, frozenset):
        return sorted(to_plain(one, form) for one in value)
    if isinstance(value, tuple):
        return [to_plain(one, form) for one in value]
    if isinstance(value, float) and form.digits is not None:
        return round(value, form.digits)
    return value


def from_plain(kind: type[T], plain: Any, form: Format = PLAIN) -> T:
    """Return the value that ``to_plain`` made this of. Raises ``ValueError`` that names the field that is wrong."""
    try:
        return typing.cast(T, _read(kind, plain, form))
    except _Wrong as error:
        raise ValueError(f"no record of {getattr(kind, '__name__', kind)}: {error}") from error


def _read(kind: Any, plain: Any, form: Format) -> Any:
    if kind in form.read:
        return form.read[kind](plain)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(one for one in arguments if one is not types.NoneType)
        return None if plain is None else _read(inner, plain, form)
    if origin is tuple:
        items = _checked(list, plain)
        kinds = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(items)
        if len(kinds) != len(items):
            raise _Wrong(f"has {len(items)} items, not {len(kinds)}")
        pairs = zip(kinds, items, strict=True)
        return tuple(_within(f"[{at}]", one, item, form) for at, (one, item) in enumerate(pairs))
    if origin is frozenset:
        return frozenset(_within("[]", arguments[0], item, form) for item in _checked(list, plain))
    if origin is not None and issubclass(origin, Mapping):
        return {key: _within(f"[{key}]", arguments[1], item, form) for key, item in _checked(dict, plain).items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if not isinstance(plain, str) or plain not in kind.__members__:
            raise _Wrong(f"{plain!r:.80} is no {kind.__name__}")
        return kind[plain]
    if is_dataclass(kind) or hasattr(kind, "_asdict"):
        return _made(kind, _checked(dict, plain), form)
    return _leaf(kind, plain)


def _made(kind: Any, plain: dict[str, Any], form: Format) -> Any:
    hints = _hints(kind, form.camel)
    if not form.skip_unknown and (unknown := [key for key in plain if key not in hints]):
        raise _Wrong(f"has no field {unknown[0]!r:.80}")
    if form.complete and (missing := [key for key in hints if key not in plain]):
        raise _Wrong(f"lacks the field {missing[0]!r}")
    values = {
        name: _within(f".{key}", hint, plain[key], form) for key, (name, hint) in hints.items() if key in plain
    }
    try:
        return kind(**values)
    except TypeError as error:  # a field without a default is missing
        raise _Wrong(str(error)) from error


def _within(step: str, kind: Any, plain: Any, form: Format) -> Any:
    """Read a part, and say where it is if it is wrong."""
    try:
        return _read(kind, plain, form)
    except _Wrong as error:
        raise _Wrong(error.problem, step + error.path) from error


@functools.cache
def _hints(kind: type, camel: bool) -> dict[str, tuple[str, Any]]:
    """Key in a record → (field, type)."""
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else typing.cast(Any, kind)._fields
    hints = typing.get_type_hints(kind)
    return {_camel(name) if camel else name: (name, hints[name]) for name in names}


def _key(name: str, form: Format) -> str:
    return _camel(name) if form.camel else name


@functools.cache
def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _leaf(kind: Any, plain: Any) -> Any:
    """A number, a text or a truth value; what is none of the kind would only be found out much later."""
    if kind is float and type(plain) is int:
        return float(plain)
    return _checked(kind, plain) if kind in (float, int, str, bool) else plain


def _checked(kind: type, plain: Any) -> Any:
    if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
        raise _Wrong(f"{plain!r:.80} is no {kind.__name__}")
    return plain
