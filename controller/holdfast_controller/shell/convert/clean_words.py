"""The door for words of others: what comes in is one safe line in each field of text, before anything reads it.

Events, states, histories and notifications are made of such fields, and pass through many hands afterwards.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from holdfast._base.printable import is_safe, one_line, spaced_line

M = TypeVar("M", bound=Message)
_SPACED = frozenset({"stderr_tail"})
"""Lines of programs, whose indentation tells something."""


def clean(message: M) -> M:
    """The message itself, with each text in it made one line that is safe to show. Bytes are left as they are."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            _clean_text(message, field, value)
        elif field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        elif (entry := field.message_type) is not None and entry.GetOptions().map_entry:
            of_messages = entry.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE
            _clean_map(value, of_messages=of_messages)
        elif isinstance(field.default_value, list):  # repeated; other ways to tell depend on the release
            for each in value:
                clean(each)
        else:
            clean(value)
    return message


def _clean_text(message: Any, field: FieldDescriptor, value: Any) -> None:
    line = spaced_line if field.name in _SPACED else one_line
    if isinstance(value, str):
        if not is_safe(value):
            setattr(message, field.name, line(value))
    elif not all(map(is_safe, value)):
        getattr(message, field.name)[:] = [line(each) for each in value]


def _clean_map(entries: Any, *, of_messages: bool) -> None:
    for key, value in list(entries.items()):
        if of_messages:
            clean(value)
            continue
        cleaned = tuple(one_line(each) if isinstance(each, str) else each for each in (key, value))
        if cleaned != (key, value):
            del entries[key]
            entries[cleaned[0]] = cleaned[1]
