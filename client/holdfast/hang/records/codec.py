"""The detector's values as plain JSON values and back: for journals, recorded vectors and replays.

Works for the frozen dataclasses and the ``Rhythm`` of this package, whatever they hold: enums travel by name,
sets as sorted lists, mappings as objects or, where the key is no string, as pairs. A field that a record lacks
takes its default, so that older records can be read by newer code; one that it has too many is refused.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from holdfast.hang.pipeline.progress_rate import Rhythm

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """The value as dicts, lists, strings, numbers and None."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Rhythm):
        return value._asdict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, frozenset):
        return sorted(to_plain(one) for one in value)
    if isinstance(value, tuple):
        return [to_plain(one) for one in value]
    return value


def from_plain(kind: type[T], plain: Any) -> T:
    """The value that ``to_plain`` made this of. Raises ValueError for a record that isn't one of this kind."""
    try:
        return typing.cast(T, _read(kind, plain))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no record of {kind.__name__}: {error}") from error


def _read(kind: Any, plain: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if plain is None else _read(next(one for one in arguments if one is not types.NoneType), plain)
    if origin is tuple:
        kinds = arguments if arguments[-1] is not Ellipsis else (arguments[0],) * len(plain)
        return tuple(_read(one, item) for one, item in zip(kinds, plain, strict=True))
    if origin is frozenset:
        return frozenset(_read(arguments[0], item) for item in plain)
    if origin is not None and issubclass(origin, Mapping):
        return {key: _read(arguments[1], item) for key, item in plain.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind[plain]
    if is_dataclass(kind) or kind is Rhythm:
        made = typing.cast(type[Any], kind)
        hints = typing.get_type_hints(made)
        return made(**{name: _read(hints[name], item) for name, item in plain.items()})
    return _leaf(kind, plain)


def _leaf(kind: Any, plain: Any) -> Any:
    """A number, a text or a truth value; what is none of the kind would only be found out much later."""
    allowed = {float: (int, float), int: (int,), str: (str,), bool: (bool,)}.get(kind)
    if allowed is None:
        return plain
    if not isinstance(plain, allowed) or (isinstance(plain, bool) and kind is not bool):
        raise TypeError(f"{plain!r:.80} is no {kind.__name__}")
    return plain
