"""Specs that come as protobuf messages: their fields as plain data, which one reading turns into the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from holdfast.errors import InvalidSpec, Violation
from holdfast.spec.models.job import JobFile
from holdfast.spec.parse.reader import parse
from holdfast.v1 import job_pb2

MAX_BYTES = 1 << 20
"""Largest spec that is taken, as for a job file."""
MAX_VIOLATIONS = 10
"""More would not fit into the 8 KiB of trailing metadata that carry them back to a caller."""
WHAT = "The job spec"


def job_from_proto(message: job_pb2.CustomJob) -> JobFile:
    """The fields of a CustomJob that a user may set, held to the rules of a file; the controller's are ignored.

    Raises ``InvalidSpec``.
    """
    if (size := message.job_spec.ByteSize()) > MAX_BYTES:
        problem = f"has {size:,} bytes; at most {MAX_BYTES:,} are allowed"
        raise InvalidSpec([Violation("jobSpec", problem)], what=WHAT)
    wrong: list[Violation] = []
    data: dict[str, Any] = {
        "jobSpec": _fields(message.job_spec, "jobSpec", wrong),
        "labels": dict(message.labels),
        "annotations": dict(message.annotations),
    }
    if wrong:
        raise InvalidSpec(wrong, what=WHAT)
    if message.display_name:
        data["displayName"] = message.display_name
    if message.project:
        data["project"] = message.project
    if message.HasField("encryption_spec"):
        data["encryptionSpec"] = _fields(message.encryption_spec, "encryptionSpec", [])
    return parse(data, what=WHAT, at_most=MAX_VIOLATIONS)


def _fields(message: Message, path: str, wrong: list[Violation]) -> dict[str, Any]:
    """The fields that are set, as a job file has them; durations that no text can express go to ``wrong``."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        here = f"{path}.{field.json_name}"
        if isinstance(value, Mapping):
            found[field.json_name] = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found[field.json_name] = [
                _value(field, item, f"{here}[{index}]", wrong) for index, item in enumerate(value)
            ]
        else:
            found[field.json_name] = _value(field, value, here, wrong)
    return found


def _value(field: FieldDescriptor, value: Any, path: str, wrong: list[Violation]) -> Any:
    if isinstance(value, Duration):
        try:
            return value.ToJsonString()
        except ValueError:
            fix = "seconds and nanoseconds within range, of one sign"
            wrong.append(Violation(path, "is no valid duration", fix))
            return None
    if isinstance(value, Message):
        return _fields(value, path, wrong)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
