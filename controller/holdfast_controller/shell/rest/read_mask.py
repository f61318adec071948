"""``readMask``: the fields of jobs that an answer is cut down to, such as ``displayName,jobSpec.scheduling``."""

from __future__ import annotations

import difflib
from typing import Any

from google.protobuf.descriptor import Descriptor
from pydantic.alias_generators import to_camel

from holdfast.errors import InvalidInput, Violation
from holdfast.spec.models.job import JobFile
from holdfast.v1 import job_pb2

MAX_CHARS = 4096
EVERYTHING = "*"
_OF_SERVICE = frozenset(map(to_camel, JobFile.IGNORED))
"""Fields that are printed, or that the reference has and nothing is printed for, beside those of the message."""

Mask = dict[str, "Mask"]
"""Names of the wanted fields, each with those within it; everything within it where there are none."""


def parse_mask(text: str) -> Mask:
    """The mask in a comma-separated list of paths; empty for one that wants everything. Raises ``InvalidInput``."""
    if len(text) > MAX_CHARS:
        raise InvalidInput([Violation("readMask", f"has more than {MAX_CHARS:,} characters")])
    mask: Mask = {}
    whole: list[Mask] = []
    for path in filter(None, map(str.strip, text.split(","))):
        if path == EVERYTHING:
            return {}
        here = mask
        message: Descriptor | None = job_pb2.CustomJob.DESCRIPTOR
        for depth, step in enumerate(path.split(".")):
            name, message = _field(path, step, message, top=depth == 0)
            here = here.setdefault(name, {})
        whole.append(here)
    for wanted in whole:
        wanted.clear()
    return mask


def masked(printed: Any, mask: Mask) -> Any:
    """The wanted fields of a printed job; of each entry where a path reaches a list."""
    if not mask:
        return printed
    if isinstance(printed, list):
        return [masked(each, mask) for each in printed]
    if not isinstance(printed, dict):
        return printed
    return {name: masked(printed[name], inner) for name, inner in mask.items() if name in printed}


def _field(path: str, step: str, message: Descriptor | None, *, top: bool) -> tuple[str, Descriptor | None]:
    """The printed name of a step of a path, and the message that the next one is a field of."""
    if message is None:
        raise _wrong(path, "goes into what has no fields")
    if message.GetOptions().map_entry:
        return step, message.fields_by_name["value"].message_type
    for field in message.fields:
        if step in (field.name, field.json_name):
            return field.json_name, field.message_type
    if top and to_camel(step) in _OF_SERVICE:
        return to_camel(step), None
    near = difflib.get_close_matches(step[:60], [field.json_name for field in message.fields], n=1)
    raise _wrong(path, f"has {step[:60]!r}, which is no field", f"did you mean {near[0]}?" if near else "")


def _wrong(path: str, problem: str, fix: str = "") -> InvalidInput:
    return InvalidInput([Violation("readMask", f"{path[:100]!r} {problem}", fix)])
