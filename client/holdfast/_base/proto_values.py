"""Values of protobuf: durations and times as seconds, and back; enums by their names.

A newer peer may send values of enums that this release doesn't know: those go by their number.

Protobuf is loaded by the functions that make messages: commands that print help do without it.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf import duration_pb2, timestamp_pb2

EARLIEST_S, LATEST_S = -62_135_424_000, 253_402_214_400
"""January 3 of year 1 and December 31 of year 9999: what a message of a time may hold and every time zone can show."""
LONGEST_S = 315_576_000_000
"""The most, in seconds, that a message of a duration may hold: ten thousand years."""

Kind = Any
"""An enum of a generated module, such as ``job_pb2.JobState``: a wrapper at run time, a class to the type checker."""


def seconds(message: duration_pb2.Duration | timestamp_pb2.Timestamp) -> float:
    """Return a duration, or a time since the epoch, in seconds; 0 where absent."""
    return message.seconds + message.nanos / 1e9


def duration(seconds: float) -> duration_pb2.Duration:
    """Return so many seconds as a message; what is longer than the most that one can hold, as that."""
    from google.protobuf import duration_pb2

    message = duration_pb2.Duration()
    message.FromNanoseconds(int(min(max(-LONGEST_S, seconds), LONGEST_S) * 1e9))
    return message


def timestamp(wall_s: float) -> timestamp_pb2.Timestamp:
    """Return a time in seconds since the epoch as a message, to the nanosecond; see ``showable``."""
    from google.protobuf import timestamp_pb2

    inside = showable(wall_s)
    whole = math.floor(inside)
    return timestamp_pb2.Timestamp(seconds=whole, nanos=int((inside - whole) * 1e9))


def showable(wall_s: float) -> float:
    """The time, or the nearest that can be shown: a message with one beyond can be neither read nor made JSON."""
    return min(max(EARLIEST_S, wall_s), LATEST_S)


def full_name(kind: Kind, value: int) -> str:
    """Return ``JOB_STATE_RUNNING``; the number as text where this release knows no such value."""
    known = kind.DESCRIPTOR.values_by_number.get(value)
    return str(value) if known is None else str(known.name)


def short_name(kind: Kind, value: int) -> str:
    """Return ``RUNNING`` of ``JOB_STATE_RUNNING``; the number as text where this release knows no such value."""
    return full_name(kind, value).removeprefix(_prefix(kind))


@functools.cache
def _prefix(kind: Kind) -> str:
    return str(kind.DESCRIPTOR.values_by_number[0].name).removesuffix("UNSPECIFIED")
