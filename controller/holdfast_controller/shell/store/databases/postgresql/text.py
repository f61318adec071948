"""Text as PostgreSQL can hold it, which has no NUL."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Json
from psycopg.types.string import StrDumperUnknown, TextLoader
from sqlalchemy.dialects import postgresql

from holdfast_controller.shell.store.records import Record, row_of
from holdfast_controller.shell.store.schema import events

_NUL, _MARK = "\0", "\ue000"
"""PostgreSQL's text holds no NUL, which an error message or a reason may have: it is stored as the mark and 0."""


def storable(text: str) -> str:
    """Text as PostgreSQL can hold it; ``stored`` gives it back."""
    if _NUL in text or _MARK in text:
        return text.replace(_MARK, f"{_MARK}1").replace(_NUL, f"{_MARK}0")
    return text


def stored(text: str) -> str:
    """The text that ``storable`` was given."""
    return text.replace(f"{_MARK}0", _NUL).replace(f"{_MARK}1", _MARK) if _MARK in text else text


class Dumper(StrDumperUnknown):
    """Writes ``str`` as it can be stored."""

    def dump(self, obj: str) -> Any:
        """The bytes to send."""
        return super().dump(storable(obj))


class Loader(TextLoader):
    """Reads text as it was before ``Dumper``."""

    def load(self, data: Any) -> Any:
        """The text that was stored."""
        return stored(super().load(data))  # type: ignore[arg-type]


def storable_value(value: object) -> object:
    """``storable`` where it is text."""
    return storable(value) if isinstance(value, str) else value


def as_rows(records: Sequence[Record]) -> Json:
    """Events as the parameter of ``APPEND``."""
    names = events.columns.keys()
    return Json(
        [dict(zip(names, map(storable_value, row_of(record)), strict=True)) for record in records], _AS_JSON
    )


_NAMES = ", ".join(events.columns.keys())
_TYPES = ", ".join(f"{c.name} {c.type.compile(postgresql.dialect())}" for c in events.columns)  # type: ignore[no-untyped-call]
APPEND = f"INSERT INTO events ({_NAMES}) SELECT {_NAMES} FROM json_to_recordset(%s) AS new ({_TYPES})"
"""Writes events to the end of the log."""
_AS_JSON = functools.partial(json.dumps, ensure_ascii=False)
