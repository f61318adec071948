"""From plain data to a job file, or to every complaint about it at once.

pydantic reads the data into the models in one pass; its errors become violations in ``refusals``. Rules that join
fields (``joining``) run on all that could be read: where fields were refused, the rest is read again without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from holdfast.errors import InvalidSpec
from holdfast.spec.compat.envelope import Envelope
from holdfast.spec.models.base import RULES_FOLLOW, Model, both_spellings
from holdfast.spec.models.job import JobFile, JobSpec
from holdfast.spec.parse import joining
from holdfast.spec.parse.refusals import MAX_VIOLATIONS, Reading, errors_of, masked
from holdfast.spec.wording import Table

_OF_FILE, _OF_SPEC = both_spellings(JobFile.model_fields), both_spellings(JobSpec.model_fields)
_OF_NAME, _OF_JOB_SPEC = both_spellings(["display_name"]), both_spellings(["job_spec"])


def parse(data: object, *, what: str = "The job spec", name: str = "job", at_most: int = MAX_VIOLATIONS) -> JobFile:
    """The job file in ``data``: a CustomJob, or a bare CustomJobSpec, which gets ``name`` as its display name.

    Raises ``InvalidSpec`` with every violation, its path spelled as in ``data``; after ``at_most`` they are only
    counted.
    """
    reading = Reading(data, at_most)
    metadata: dict[str, Any] = {}
    if isinstance(data, Mapping) and not data.keys().isdisjoint(Envelope.model_fields):
        around, data = _unwrapped(data)
        _, envelope = _read(Envelope, around, reading)
        metadata = envelope.get("metadata") or {}
    if isinstance(data, Mapping) and _is_bare(data):
        data = {"job_spec": data}
        reading.bare = True
    named = isinstance(data, Mapping) and not data.keys().isdisjoint(_OF_NAME)
    if isinstance(data, dict) and not named:
        data = _also(data, "display_name", name)
    job, fields = _read(JobFile, data, reading)
    if not named:
        fields.pop("display_name", None)
    joined = bool(fields) and joining.join(fields, metadata, reading)
    if reading.count:
        raise InvalidSpec(reading.violations(), what=what)
    if joined:
        job = JobFile.model_validate({"display_name": name, **fields}, context=RULES_FOLLOW)
    assert isinstance(job, JobFile)
    return job


def _read(model: type[Model], data: object, reading: Reading) -> tuple[Model | None, dict[str, Any]]:
    """The model, if nothing was wrong, and its fields that are set: None stands for whatever was refused."""
    try:
        read = model.model_validate(data, context=RULES_FOLLOW)
        return read, read.model_dump(exclude_unset=True, exclude_none=True)
    except ValidationError as error:
        errors = errors_of(error)
    reading.take(errors, model, data)
    if not isinstance(data, dict):
        return None, {}
    try:
        rest = model.model_validate(masked(data, errors), context=RULES_FOLLOW)
    except ValidationError:
        # Half of a surrogate pair in a key hides it, or what else is wrong beside it.
        return None, {}
    return None, rest.model_dump(exclude_unset=True, warnings=False)


def _unwrapped(data: Mapping[Any, Any]) -> tuple[Table, Table]:
    """(what another service puts around a job, the job)."""
    outer, inner = Table(), Table()
    for key, value in data.items():
        (outer if key in Envelope.model_fields else inner)[key] = value
    for key in getattr(data, "repeated", ()):
        (outer if key in Envelope.model_fields else inner).repeated.append(key)
    return outer, inner


def _also(data: dict[str, Any], key: str, value: object) -> Table:
    """The same mapping with one more key."""
    made = Table({**data, key: value})
    made.repeated = list(getattr(data, "repeated", ()))
    return made


def _is_bare(data: Mapping[Any, Any]) -> bool:
    """Whether the pools are at the top, or other parts of a spec with no sign of a CustomJob around them."""
    if not data.keys().isdisjoint(_OF_JOB_SPEC):
        return False
    if "workerPoolSpecs" in data or "worker_pool_specs" in data:
        return True
    return not data.keys().isdisjoint(_OF_SPEC) and data.keys().isdisjoint(_OF_FILE)
