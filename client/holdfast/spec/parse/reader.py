"""From plain data to a job file, or to every complaint about it at once.

The walk follows the models' own fields: it takes both spellings of a name, remembers which one the user wrote,
reads each value by the scalar in the field's annotation and goes on after whatever is refused. Rules that join
fields (``joining``) then run on all that could be read. Only where nothing was wrong are the models made. The walk
never follows the data beyond the fields that exist, so no input, however deep or wide, costs more than its size.
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from holdfast.errors import InvalidSpec, Violation
from holdfast.spec.compat.envelope import Envelope
from holdfast.spec.models.base import Model, model_in
from holdfast.spec.models.job import JobFile, JobSpec
from holdfast.spec.parse import field_names
from holdfast.spec.parse.scalars import Many, Refused, plain, scalar_in, shown
from holdfast.spec.rules import cross_field
from holdfast.spec.rules.violation import Place

MAX_VIOLATIONS = 50
"""More are counted, not listed."""

_OUTPUT_ONLY = JobFile.OUTPUT_ONLY.union(map(to_camel, JobFile.OUTPUT_ONLY))


class Table(dict[str, Any]):
    """A mapping from a text in which some keys stood more than once."""

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(values)
        self.repeated: list[str] = []


def parse(data: object, *, what: str = "The job spec", name: str = "job", at_most: int = MAX_VIOLATIONS) -> JobFile:
    """The job file in ``data``: a CustomJob, or a bare CustomJobSpec, which gets ``name`` as its display name.

    Raises ``InvalidSpec`` with every violation, its path spelled as in ``data``; after ``at_most`` they are only
    counted.
    """
    walk = _Walk()
    wrapping: dict[str, Any] = {}
    if isinstance(data, Mapping) and not data.keys().isdisjoint(Envelope.model_fields):
        outer, data = _unwrapped(data)
        wrapping = walk.model(Envelope, outer, ()) or {}
    if isinstance(data, Mapping) and _is_bare(data):
        read: dict[str, Any] | None = {"job_spec": walk.model(JobSpec, data, ())}
        walk.spec_place = ()
    else:
        read = walk.model(JobFile, data, ())
    if read is not None:
        cross_field.join(read, wrapping.get("metadata") or {}, walk)
    if walk.violations or read is None:
        raise InvalidSpec(_listed(walk.violations, at_most), what=what)
    return JobFile.model_validate({"display_name": name, **read})


def _unwrapped(data: Mapping[Any, Any]) -> tuple[Table, Table]:
    """(what another service puts around a job, the job)."""
    outer, inner = Table(), Table()
    for key, value in data.items():
        (outer if key in Envelope.model_fields else inner)[key] = value
    for key in getattr(data, "repeated", ()):
        (outer if key in Envelope.model_fields else inner).repeated.append(key)
    return outer, inner


def _is_bare(data: Mapping[Any, Any]) -> bool:
    """Whether the pools stand at the top, or other parts of a spec with no sign of a CustomJob around them."""
    if "jobSpec" in data or "job_spec" in data:
        return False
    if "workerPoolSpecs" in data or "worker_pool_specs" in data:
        return True
    return any(key in field_names.names(JobSpec) for key in data) and not any(
        key in field_names.names(JobFile) for key in data
    )


def _listed(violations: list[Violation], at_most: int) -> list[Violation]:
    if len(violations) <= at_most:
        return violations
    return [*violations[: at_most - 1], Violation("", f"and {len(violations) - at_most + 1:,} more")]


class _Part(NamedTuple):
    """A model's field, and what its annotation says: found out once, not for each job."""

    field: FieldInfo
    required: bool
    kind: object
    """``dict`` or ``tuple``, for a field that is one."""
    inner: type[Model] | None


@functools.cache
def _parts(model: type[Model]) -> dict[str, _Part]:
    return {
        name: _Part(
            field,
            field.is_required(),
            typing.get_origin(field.annotation),
            model_in(field.annotation),
        )
        for name, field in model.model_fields.items()
    }


class _Walk:
    """One pass over the data. ``None`` stands for whatever was refused."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.spelled: dict[Place, str] = {}
        self.spec_place: Place = ("job_spec",)
        """Where the spec stands in the data."""

    def refuse(self, place: Place, problem: str, fix: str = "") -> None:
        self.violations.append(Violation(self.path(place), problem, fix))

    def path(self, place: Place) -> str:
        """The place as the user spelled it."""
        return field_names.path(place, self.spelled)

    def model(self, model: type[Model], data: object, place: Place) -> dict[str, Any] | None:
        """The fields that are set, under their own names."""
        if not isinstance(data, Mapping):
            self.refuse(place, f"must be a mapping of fields to values, not {shown(data)}")
            return None
        read: dict[str, Any] = {}
        parts = _parts(model)
        for name, value in self._fields(model, data, place).items():
            part = parts[name]
            # As in protobuf's JSON, null means unset; but text that YAML took for null is a trap to be named.
            if plain(value) is None and part.field.annotation is not str:
                continue
            refused = len(self.violations)
            got = self._value(part, value, (*place, name))
            # Some values say "unset" in words; a job that says so equals one that says nothing.
            if got is not None or len(self.violations) > refused:
                read[name] = got
        for name, part in parts.items():
            # A bare spec and a nameless job are named after their file.
            if part.required and name not in read and name != "display_name":
                self.refuse((*place, name), "is missing", _example(name, part.field))
                read[name] = None
        return read

    def _fields(self, model: type[Model], data: Mapping[Any, Any], place: Place) -> dict[str, object]:
        """The data's values under the model's names; complains of every other key."""
        known = field_names.names(model)
        found: dict[str, object] = {}
        for key, value in data.items():
            if not isinstance(key, str):
                self.refuse(place, f"has {shown(key)} for a field's name; names are text")
            elif (name := known.get(key)) is None:
                if model is not JobFile or key not in _OUTPUT_ONLY:
                    self.spelled[(*place, key)] = key
                    # Guessing is slow; nobody reads a guess beyond what is listed.
                    fix = field_names.guess(key, model) if len(self.violations) < MAX_VIOLATIONS else ""
                    self.refuse((*place, key), "is no known field", fix)
            elif name in found:
                other = self.spelled[(*place, name)]
                self.refuse((*place, name), f"is given twice, as {other} and as {key}", "keep one of them")
            else:
                self.spelled[(*place, name)] = key
                found[name] = value
        self._repeated(data, place)
        return found

    def _repeated(self, data: object, place: Place) -> None:
        for key in getattr(data, "repeated", ()):
            self.spelled[(*place, key)] = key
            self.refuse((*place, key), "is given twice", "keep one of them")

    def _value(self, part: _Part, value: object, place: Place) -> Any:
        """One field's value: a model, a list, a mapping or a scalar."""
        field, inner = part.field, part.inner
        if part.kind is dict:
            return self._labels(field, value, place)
        if part.kind is tuple:
            return self._list(field, inner, value, place)
        if inner is not None:
            return self.model(inner, value, place)
        return self._scalar(field.metadata, value, place)

    def _scalar(self, metadata: Iterable[object], value: object, place: Place) -> Any:
        try:
            return scalar_in(metadata).read(value)
        except Refused as refused:
            self.refuse(place, refused.problem, refused.fix)
            return None

    def _list(self, field: FieldInfo, inner: type[Model] | None, value: object, place: Place) -> list[Any] | None:
        if not isinstance(value, (list, tuple)):
            self.refuse(place, f"must be a list, not {shown(value)}", _as_list(inner, value))
            return None
        if not self._counted(field, len(value), place):
            return None
        if inner is not None:
            return [self.model(inner, item, (*place, index)) for index, item in enumerate(value)]
        metadata = typing.get_args(field.annotation)[0].__metadata__
        items = [self._scalar(metadata, item, (*place, index)) for index, item in enumerate(value)]
        return None if None in items else items

    def _labels(self, field: FieldInfo, value: object, place: Place) -> dict[str, str] | None:
        if not isinstance(value, Mapping):
            self.refuse(place, f"must be a mapping of names to text, not {shown(value)}")
            return None
        if not self._counted(field, len(value), place):
            return None
        key_type, value_type = typing.get_args(field.annotation)
        read = {}
        for key, item in value.items():
            name = self._scalar(key_type.__metadata__, key, place)
            if name is not None:
                self.spelled[(*place, name)] = name
                read[name] = self._scalar(value_type.__metadata__, item, (*place, name))
        self._repeated(value, place)
        return read

    def _counted(self, field: FieldInfo, count: int, place: Place) -> bool:
        try:
            for limit in field.metadata:
                if isinstance(limit, Many):
                    limit.check(count)
        except Refused as refused:
            self.refuse(place, refused.problem, refused.fix)
            return False
        return True


def _example(name: str, field: FieldInfo) -> str:
    """What to write where a field is missing."""
    if not field.examples:
        return f"add {to_camel(name)}"
    return f"such as {to_camel(name)}: {json.dumps(field.examples[0])}"


def _as_list(inner: type[Model] | None, value: object) -> str:
    """How to turn a lone value into the list that was asked for."""
    if inner is not None:
        return "start each entry with a dash in YAML, or put it in [ ]"
    if isinstance(value, str) and value:
        return f"such as {json.dumps(value[:60].split(), ensure_ascii=not value.isprintable())}"
    return ""
