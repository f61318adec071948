"""Between the models and the protobuf messages, by protobuf's own JSON mapping: no field is copied by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from holdfast.errors import InvalidSpec, Violation
from holdfast.spec.models.job import JobFile, JobSpec
from holdfast.spec.out.writing import to_dict
from holdfast.spec.parse.reader import parse
from holdfast.v1 import job_pb2, spec_pb2

MAX_BYTES = 1 << 20
"""Largest spec that is taken, as for a job file."""

_DURATION_MAX_S = 315_576_000_000
WHAT = "The job spec"
MAX_VIOLATIONS = 10
"""More would not fit into the 8 KiB of trailing metadata that carry them back to a caller."""


def to_proto(job: JobSpec, like: spec_pb2.CustomJobSpec | None = None) -> spec_pb2.CustomJobSpec:
    """The contract's message; fields that the user left out stay unset.

    ``like``: what the job was read from. It is copied where it says the same, which is quicker.
    """
    said, made = to_dict(job), spec_pb2.CustomJobSpec()
    if like is None or not _says(json_format.MessageToDict(like), said):
        return json_format.ParseDict(said, made)
    made.CopyFrom(like)
    made.DiscardUnknownFields()
    return made


def _says(wire: Any, said: Any) -> bool:
    """Whether protobuf's JSON is the same as ours; its 64-bit numbers are text."""
    if isinstance(said, dict):
        return wire.keys() == said.keys() and all(_says(wire[name], value) for name, value in said.items())
    if isinstance(said, list):
        return len(wire) == len(said) and all(map(_says, wire, said))
    return bool(wire == said) or (isinstance(said, int) and wire == str(said))


def from_proto(message: spec_pb2.CustomJobSpec) -> JobSpec:
    """A message's spec, held to the rules of a file. Raises ``InvalidSpec``; paths start with ``jobSpec``."""
    return parse({"jobSpec": _to_json(message, "jobSpec")}, what=WHAT, at_most=MAX_VIOLATIONS).job_spec


def job_to_proto(job: JobFile) -> job_pb2.CustomJob:
    """What CreateJob takes: all that a user may set."""
    return json_format.ParseDict(to_dict(job), job_pb2.CustomJob())


def job_from_proto(message: job_pb2.CustomJob) -> JobFile:
    """What a user may set of a CustomJob, by the rules of a file; other fields are the controller's and ignored.

    Raises ``InvalidSpec``.
    """
    data: dict[str, Any] = {
        "jobSpec": _to_json(message.job_spec, "jobSpec"),
        "labels": dict(message.labels),
        "annotations": dict(message.annotations),
    }
    if message.display_name:
        data["displayName"] = message.display_name
    if message.project:
        data["project"] = message.project
    return parse(data, what=WHAT, at_most=MAX_VIOLATIONS)


def _to_json(message: Message, path: str) -> dict[str, Any]:
    if (size := message.ByteSize()) > MAX_BYTES:
        raise InvalidSpec([Violation(path, f"has {size:,} bytes; at most {MAX_BYTES:,} are allowed")], what=WHAT)
    # Durations that protobuf's JSON cannot express would end in an error without a path.
    if bad := list(_bad_durations(message, path)):
        raise InvalidSpec(bad, what=WHAT)
    return json_format.MessageToDict(message)


def _bad_durations(message: Message, path: str) -> Iterator[Violation]:
    for field, value in message.ListFields():
        here = f"{path}.{field.json_name}"
        if field.message_type is None or (
            field.message_type.has_options and field.message_type.GetOptions().map_entry
        ):
            continue
        many = value if not isinstance(value, Message) else [value]
        for index, inner in enumerate(many):
            place = here if many is not value else f"{here}[{index}]"
            if not isinstance(inner, Duration):
                yield from _bad_durations(inner, place)
            elif not _is_duration(inner):
                yield Violation(place, "is no valid duration", "seconds and nanoseconds within range, of one sign")


def _is_duration(value: Duration) -> bool:
    in_range = abs(value.seconds) <= _DURATION_MAX_S and abs(value.nanos) < 10**9
    return in_range and value.seconds * value.nanos >= 0
