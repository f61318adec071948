"""The door for words of others: what comes in is one safe line in each field of text, before anything reads it.

Events, states, histories and notifications are made of such fields, and pass through many hands afterwards.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from holdfast._base.printable import is_safe, one_line, spaced_line

M = TypeVar("M", bound=Message)
_SPACED = frozenset({"stderr_tail"})
"""Lines of programs, whose indentation tells something."""


def clean(message: M) -> M:
    """The message itself, with each text in it made one line that is safe to show. Bytes are left as they are."""
    fields = _fields_with_text(message.DESCRIPTOR)
    if fields.texts and not is_safe("".join(fields.read_texts(message))):
        for name in fields.texts:
            if not is_safe(text := getattr(message, name)):
                setattr(message, name, one_line(text))
    for name, line in fields.lists:
        if not all(map(is_safe, texts := getattr(message, name))):
            texts[:] = [line(each) for each in texts]
    for name in fields.messages:
        if message.HasField(name):
            clean(getattr(message, name))
    for name in fields.repeated:
        for each in getattr(message, name):
            clean(each)
    for name, of_messages in fields.maps:
        _clean_map(getattr(message, name), of_messages=of_messages)
    return message


@dataclass
class _Fields:
    """Names of a message's fields, by how text is found in them; those that have none are left out."""

    texts: list[str] = field(default_factory=list)
    lists: list[tuple[str, Callable[[str], str]]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    maps: list[tuple[str, bool]] = field(default_factory=list)
    """Each with whether its values are messages."""

    @functools.cached_property
    def read_texts(self) -> Callable[[Message], Iterable[str]]:
        """Gets all ``texts``, of which there are some: one text is safe just where its parts are."""
        return operator.attrgetter(*self.texts)


@functools.cache
def _fields_with_text(kind: Descriptor) -> _Fields:
    """Looked up once for each kind: thousands of messages come in a second."""
    found = _Fields()
    for each in kind.fields:
        repeated = isinstance(each.default_value, list)  # other ways to tell depend on the release
        if each.type == FieldDescriptor.TYPE_STRING:
            if repeated:
                found.lists.append((each.name, spaced_line if each.name in _SPACED else one_line))
            else:
                found.texts.append(each.name)
        elif (inner := each.message_type) is None or not _may_have_text(inner):
            continue
        elif inner.GetOptions().map_entry:
            of_messages = inner.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE
            found.maps.append((each.name, of_messages))
        else:
            (found.repeated if repeated else found.messages).append(each.name)
    return found


def _may_have_text(kind: Descriptor) -> bool:
    """Whether it is more than figures, as a time is."""
    return any(each.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE) for each in kind.fields)


def _clean_map(entries: Any, *, of_messages: bool) -> None:
    for key, value in list(entries.items()):
        if of_messages:
            clean(value)
            continue
        cleaned = tuple(one_line(each) if isinstance(each, str) else each for each in (key, value))
        if cleaned != (key, value):
            del entries[key]
            entries[cleaned[0]] = cleaned[1]
