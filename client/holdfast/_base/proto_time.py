"""Durations and times of protobuf as seconds, and back.

Protobuf is loaded by the functions that make messages: commands that print help do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf import duration_pb2, timestamp_pb2


def seconds(message: duration_pb2.Duration | timestamp_pb2.Timestamp) -> float:
    """Return a duration, or a time since the epoch, in seconds; 0 where absent."""
    return message.seconds + message.nanos / 1e9


def duration(seconds: float) -> duration_pb2.Duration:
    """Return so many seconds as a message."""
    from google.protobuf import duration_pb2

    message = duration_pb2.Duration()
    message.FromNanoseconds(int(seconds * 1e9))
    return message


def timestamp(wall_s: float) -> timestamp_pb2.Timestamp:
    """Return a time in seconds since the epoch as a message, to the nanosecond."""
    from google.protobuf import timestamp_pb2

    whole = int(wall_s)
    return timestamp_pb2.Timestamp(seconds=whole, nanos=int((wall_s - whole) * 1e9))
