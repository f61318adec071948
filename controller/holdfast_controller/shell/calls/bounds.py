"""Holds messages that users and hosts send to the bounds of ``field_bounds``, before any handler has them.

What a user sends beyond a bound is refused with the field's path. So is what names something in a host's message;
what only explains is cut there, since an exit must not be lost for the length of its last line.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import agent_pb2
from holdfast_controller.shell.calls.field_bounds import EXITS_TOGETHER, Bound, bound_of, skipped

MESSAGE_BYTES = 4 << 20
"""Of one message over gRPC."""
UTF8_MOST = 4
"""Bytes of one character."""
LONGEST_S = 3_650 * 86_400
EARLIEST_S, LATEST_S = 0, 221_845_391_999
"""1970 to the end of the year 8999: far enough from any calendar's end that times can be added to."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A piece of a reading that is left out of a host's stream, since it breaks a bound: it ends the reading."""

    id: int
    problem: str
    size: int


def check(message: Message, *, from_host: bool = False) -> None:
    """Hold a message to its bounds; in one from a host, cut what only explains. Raises ``InvalidInput``."""
    wrong = list(_exceeded(message, "", from_host))
    if wrong:
        raise InvalidInput(wrong[:10], what="What the host says of itself" if from_host else "The request")


async def each(messages: AsyncIterator[Any], *, from_host: bool) -> AsyncIterator[Any]:
    """Messages of a stream within their bounds. Raises ``InvalidInput``; a host's later ones are left out instead.

    An agent does not get rid of a report that ends its session: it would send it again in the next. Of exits that come
    together those within their bounds are kept. A piece of a reading, for which a user waits, becomes ``Refused``.
    """
    first = True
    async for message in messages:
        try:
            check(message, from_host=from_host)
        except InvalidInput as error:
            if first or not from_host:
                raise
            kind = message.WhichOneof("message")
            log.warning("host.message_refused", kind=kind, error=str(error))
            if kind == "chunk":
                yield Refused(message.chunk.id, "; ".join(map(str, error.violations)), message.ByteSize())
            if kind == "exit_reports" and (kept := list(filter(_is_within, message.exit_reports.reports))):
                yield agent_pb2.SessionRequest(exit_reports=agent_pb2.ExitReports(reports=kept[:EXITS_TOGETHER]))
            continue
        first = False
        yield message


def _is_within(message: Message) -> bool:
    return next(_exceeded(message, "", True), None) is None


def _exceeded(message: Message, path: str, from_host: bool) -> Iterator[Violation]:
    # Hosts send thousands of messages a second, and nothing in one is larger than itself.
    small = from_host and message.ByteSize() <= _least(message.DESCRIPTOR)
    walked = _fields(message.DESCRIPTOR, from_host, small)
    for field, value in message.ListFields() if walked else ():
        if (found := walked.get(field.number)) is None:
            continue
        repeated, in_map, bound = found
        here = f"{path}{field.json_name}"
        if in_map:
            yield from _in_map(value, here, bound)
        elif repeated:
            yield from _in_list(message, field, here, bound, from_host)
        elif field.message_type is not None:
            yield from _in_message(value, here, bound, from_host)
        elif problem := _problem(value, bound, from_host):
            if from_host and bound.cut:
                setattr(message, field.name, _cut(value, bound))
            else:
                yield Violation(here, problem, bound.fix)


def _in_map(values: Any, path: str, bound: Bound) -> Iterator[Violation]:
    if len(values) > bound.items:
        yield Violation(path, f"has {len(values):,} entries; at most {bound.items:,} are allowed", bound.fix)
        return
    for key, value in values.items():
        if problem := _problem(key, bound, False) or _problem(value, bound, False):
            yield Violation(path, f"holds an entry that {problem}", bound.fix)
            return


def _in_list(
    message: Message, field: FieldDescriptor, path: str, bound: Bound, from_host: bool
) -> Iterator[Violation]:
    values = getattr(message, field.name)
    if len(values) > bound.items:
        if not (from_host and bound.cut):
            yield Violation(path, f"has {len(values):,} entries; at most {bound.items:,} are allowed", bound.fix)
            return
        kept = values[-bound.items :] if bound.cut == "end" else values[: bound.items]
        del values[:]
        values.extend(kept)
    if field.message_type is None and _are_within(values, bound):
        return
    least = _untimed(field.message_type) if from_host and field.message_type and bound.whole is None else -1
    for index, value in enumerate(values):
        if field.message_type is not None:
            if value.ByteSize() <= least:
                continue
            yield from _in_message(value, f"{path}[{index}]", bound, from_host)
        elif problem := _problem(value, bound, from_host):
            if from_host and bound.cut:
                values[index] = _cut(value, bound)
            else:
                yield Violation(path, problem, bound.fix)
                return


def _are_within(values: Any, bound: Bound) -> bool:
    """Whether all values of a list are certainly within their bound, without a look at each by itself."""
    if not values:
        return True
    if isinstance(values[0], (str, bytes)):
        return max(map(len, values)) * UTF8_MOST <= bound.bytes
    return min(values) >= bound.low and (bound.high is None or max(values) <= bound.high)


def _in_message(message: Message, path: str, bound: Bound, from_host: bool) -> Iterator[Violation]:
    if bound.whole is not None and (size := message.ByteSize()) > bound.whole:
        yield Violation(path, f"has {size:,} bytes; at most {bound.whole:,} are allowed", bound.fix)
        return
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            yield from _in_range(message, path, EARLIEST_S, LATEST_S, "must be a time from 1970 to 8999", from_host)
        case "google.protobuf.Duration":
            said = f"must be at most {LONGEST_S // 86_400:,} days"
            yield from _in_range(message, path, -LONGEST_S, LONGEST_S, said, from_host)
        case _:
            yield from _exceeded(message, f"{path}.", from_host)


def _in_range(message: Any, path: str, low: int, high: int, said: str, from_host: bool) -> Iterator[Violation]:
    if low <= message.seconds <= high and abs(message.nanos) < 1_000_000_000:
        return
    if from_host:
        message.seconds, message.nanos = min(max(message.seconds, low), high), 0
    else:
        yield Violation(path, said)


def _problem(value: Any, bound: Bound, from_host: bool) -> str:
    """The reason why one value is refused, in words that follow the field's path; empty if it is not."""
    if isinstance(value, (str, bytes)):
        size = len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode(errors="replace"))
        return f"has {size:,} bytes; at most {bound.bytes:,} are allowed" if size > bound.bytes else ""
    if isinstance(value, int) and not isinstance(value, bool) and not from_host:
        beyond = value < bound.low or (bound.high is not None and value > bound.high)
        return f"{value} is out of range" if beyond else ""
    return ""


def _cut(value: Any, bound: Bound) -> Any:
    """The kept end of a text, with a sign that it is no whole one."""
    if isinstance(value, bytes):
        return value[-bound.bytes :] if bound.cut == "end" else value[: bound.bytes]
    data, kept = value.encode(errors="replace"), bound.bytes - 3
    if bound.cut == "end":
        return data[-bound.bytes :].decode(errors="ignore")
    return data[:kept].decode(errors="ignore") + "…"


@functools.cache
def _fields(of: Descriptor, from_host: bool, small: bool = False) -> dict[int, tuple[bool, bool, Bound]]:
    """The fields that are walked, by number: whether it is a list, whether it is a map, and its bound.

    In a ``small`` message only those with a time in them, whose range its size says nothing of.
    """
    walked = _WALKED if from_host else _WALKED | _NUMBERS
    return {
        field.number: (is_list(field), is_map(field), bound_of(field))
        for field in of.fields
        if not skipped(field)
        and (field.message_type is not None or field.cpp_type in walked or is_list(field))
        and not (small and not any(each.full_name in _TIMES for each in _within(field)))
    }


@functools.cache
def _least(of: Descriptor) -> int:
    """The bytes of a message from a host up to which no field of it, or in it, can hold too many bytes or entries."""
    found = MESSAGE_BYTES
    for each in (of, *(each for field in of.fields if not skipped(field) for each in _within(field))):
        for number, (repeated, in_map, bound) in _fields(each, True).items():
            found = min(found, bound.items if repeated else found, bound.whole or found)
            if in_map or each.fields_by_number[number].cpp_type == FieldDescriptor.CPPTYPE_STRING:
                found = min(found, bound.bytes)
    return found


@functools.cache
def _untimed(of: Descriptor) -> int:
    """The same for a message without times, in which nothing is walked then; else -1."""
    return _least(of) if not _fields(of, True, True) else -1


def _within(field: FieldDescriptor) -> list[Descriptor]:
    """The messages that a field may hold, and that these may hold, each once."""
    found: dict[str, Descriptor] = {}
    left = [field]
    while left:
        each = left.pop()
        if is_map(each) or (of := each.message_type) is None or of.full_name in found:
            continue
        found[of.full_name] = of
        left += [inner for inner in of.fields if not skipped(inner)]
    return list(found.values())


_TIMES = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_WALKED = frozenset({FieldDescriptor.CPPTYPE_STRING})
_NUMBERS = {getattr(FieldDescriptor, f"CPPTYPE_{name}") for name in ("INT32", "INT64", "UINT32", "UINT64")}


_REPEATED = 3
"""Label of a repeated field, as protobuf before release 6 tells it."""


def is_list(field: FieldDescriptor) -> bool:
    """Whether it is repeated, as maps are."""
    found = getattr(field, "is_repeated", None)
    return bool(getattr(field, "label", 0) == _REPEATED if found is None else found)


def is_map(field: FieldDescriptor) -> bool:
    """Whether it is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry
