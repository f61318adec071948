"""Durations and times of protobuf as seconds, and back.

Protobuf is loaded by the functions that make messages: commands that print help do without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf import duration_pb2, timestamp_pb2

EARLIEST_S, LATEST_S = -62_135_424_000, 253_402_214_400
"""January 3 of year 1 and December 31 of year 9999: what a message of a time may hold and every time zone can show."""
LONGEST_S = 315_576_000_000
"""The most, in seconds, that a message of a duration may hold: ten thousand years."""


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
