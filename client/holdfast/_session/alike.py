"""The codec of fields that a value and its message call the same: they are named once, where the value is."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message


class Alike:
    """The fields that a value and its message have in common: plain ones, of the same name."""

    def __init__(self, ours: type[Any], wire: type[Message], but: Collection[str] = ()) -> None:
        """``but``: fields of the same name whose values differ."""
        names = {field.name for field in dataclasses.fields(ours)}.difference(but)
        found = [f for f in wire.DESCRIPTOR.fields if f.name in names and not f.message_type and not f.enum_type]
        self._names = [field.name for field in found]
        self._read = attrgetter(*self._names)
        self._many = [field.name for field in found if isinstance(field.default_value, list)]
        self._optional = [field.name for field in found if field.has_presence]

    def encode(self, value: Any) -> dict[str, Any]:
        """Arguments of the message."""
        return dict(zip(self._names, self._read(value), strict=True))

    def decode(self, message: Any) -> dict[str, Any]:
        """Arguments of the value; None for what is optional and not there."""
        found: dict[str, Any] = dict(zip(self._names, self._read(message), strict=True))
        for name in self._many:
            found[name] = tuple(found[name])
        for name in self._optional:
            if not message.HasField(name):
                found[name] = None
        return found
