"""Last step of reading a job file: metadata and annotations are applied, and rules across fields are checked.

Works on the fields that are set (absent where unset, None where refused) and completes them in place.
"""

from __future__ import annotations

import enum
from typing import Any

from holdfast.spec.compat.annotations import Requested, requested_by
from holdfast.spec.parse.refusals import Reading
from holdfast.spec.rules import job as rules
from holdfast.spec.wording import Broken, Fields, Place, shown

ONE_OF_TWO = "remove one of the two"


def join(job: dict[str, Any], metadata: Fields, reading: Reading) -> bool:
    """Brings ``metadata`` and what annotations ask for into ``job``, and holds it to the rules that join fields.

    True where ``job`` has more than before.
    """
    origins = _take_metadata(job, metadata, reading)
    if not job.get("job_spec"):
        return False
    for request in requested_by(job):
        asked = request.place if isinstance(request, Broken) else request.origin
        place = origins.get(asked, asked)
        if isinstance(request, Broken):
            reading.refuse(place, request.problem, request.fix)
        elif _grant(job["job_spec"], request, place, reading):
            origins["job_spec", *request.field] = place
    for broken in rules.broken(job["job_spec"]):
        place = ("job_spec", *broken.place)
        reading.refuse(origins.get(place, place), broken.problem, broken.fix)
    return bool(origins)


def _take_metadata(job: dict[str, Any], metadata: Fields, reading: Reading) -> dict[Place, Place]:
    """Copy the metadata's fields into ``job``; return the place in the data of each field that came from there."""
    origins: dict[Place, Place] = {}
    name = metadata.get("name")
    if name is not None:
        if "display_name" not in job:
            origins["display_name",] = ("metadata", "name")
        if job.setdefault("display_name", name) not in (name, None):
            reading.refuse(("metadata", "name"), f"differs from {reading.path(('display_name',))}", ONE_OF_TWO)
    for field in ("annotations", "labels"):
        for key, value in (metadata.get(field) or {}).items():
            kept = job.setdefault(field, {})
            if kept is None:
                continue
            if key not in kept:
                origins[field, key] = ("metadata", field, key)
                kept[key] = value
            elif None not in (kept[key], value) and kept[key] != value:
                other = reading.path((field, key))
                reading.refuse(("metadata", field, key), f"differs from {other}", ONE_OF_TWO)
    return origins


def _grant(job: dict[str, Any], request: Requested, place: Place, reading: Reading) -> bool:
    """Whether the field had no value of its own and now has the requested one. Refuses a contradicting request."""
    *outer, name = request.field
    holder: Any = job
    for step in outer:
        holder = holder.setdefault(step, {})
        if holder is None:
            return False
    if name not in holder:
        holder[name] = request.value
        return True
    has = holder[name].name if isinstance(holder[name], enum.Enum) else holder[name]
    if has is not None and has != request.value and has not in request.agrees and not request.yields:
        other = reading.path(("job_spec", *request.field))
        words = [each if isinstance(each, str) else shown(each) for each in (request.value, has)]
        reading.refuse(place, f"asks for {words[0]}, but {other} is {words[1]}", ONE_OF_TWO)
    return False
