"""The JSON Schema of a job file, for editors and for programs that write such files.

Made from the models' fields by our own few lines: what pydantic generates differs between its versions, and a
published file could not be held to it. ``python -m holdfast.spec.schema`` prints
``docs/users/job.schema.json``.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import sys
import textwrap
import typing
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from holdfast.spec.compat.envelope import Envelope
from holdfast.spec.models.base import Model, model_in
from holdfast.spec.models.job import JobFile, JobSpec, WorkerPoolSpec
from holdfast.spec.models.scalars import Many, Written, scalar_in
from holdfast.spec.rules.job import TASKS


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 with camelCase names: a CustomJob or a bare CustomJobSpec."""
    definitions: dict[str, Any] = {}
    _define(JobFile, definitions)
    job_file = definitions[JobFile.__name__]
    job_file["properties"] |= {to_camel(name): {"readOnly": True} for name in sorted(JobFile.IGNORED)}
    _define(Envelope, definitions)
    around = definitions.pop(Envelope.__name__)["properties"]
    for model in (JobFile, JobSpec):
        # Which of the two a file holds shows in other fields.
        definitions[model.__name__]["properties"] |= around
    definitions[WorkerPoolSpec.__name__]["oneOf"] = [{"required": [to_camel(task)]} for task in TASKS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast job file",
        "anyOf": [_reference(JobFile), _reference(JobSpec)],
        "$defs": definitions,
    }


def json_schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _define(model: type[Model], definitions: dict[str, Any]) -> None:
    """Adds the model's definition and those of the models inside."""
    fields, descriptions = model.model_fields, _descriptions(model)
    required = [to_camel(name) for name, field in fields.items() if field.is_required() and name != "display_name"]
    definitions[model.__name__] = {
        "type": "object",
        "description": model.__doc__,
        "properties": {
            to_camel(name): {"description": descriptions.get(name), **_field(field)}
            for name, field in fields.items()
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }
    for field in fields.values():
        inner = model_in(field.annotation)
        if inner is not None and inner.__name__ not in definitions:
            _define(inner, definitions)


def _field(field: FieldInfo) -> dict[str, Any]:
    described: dict[str, Any]
    kind = typing.get_origin(field.annotation)
    inner = model_in(field.annotation)
    if kind is dict:
        key, value = (scalar_in(part.__metadata__).describe() for part in typing.get_args(field.annotation))
        described = {"type": "object", "propertyNames": key, "additionalProperties": value}
    elif kind is tuple:
        item = typing.get_args(field.annotation)[0]
        items = _reference(inner) if inner else scalar_in(item.__metadata__).describe()
        described = {"type": "array", "items": items}
    elif inner is not None:
        described = _reference(inner)
    else:
        scalar = scalar_in(field.metadata)
        described = scalar.describe()
        if not field.is_required() and field.default not in ("", None):
            described["default"] = scalar.json(field.default) if isinstance(scalar, Written) else field.default
    for limit in field.metadata:
        if isinstance(limit, Many):
            what = "Properties" if kind is dict else "Items"
            described |= {f"min{what}": limit.low, f"max{what}": limit.high}
    if field.examples:
        described["examples"] = field.examples
    return described


def _descriptions(model: type[Model]) -> dict[str, str]:
    """The texts below the fields. pydantic could keep them, but would read every source file upon each import."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _reference(model: type[Model]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{model.__name__}"}


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())
