"""The JSON Schema of a job file, for editors and for programs that write such files.

``python -m holdfast.spec.schema`` prints it as ``docs/job.schema.json`` holds it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from holdfast.spec.models import JobFile, JobSpec, Model, model_in
from holdfast.spec.scalars import Scalar


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 with camelCase names: a CustomJob or a bare CustomJobSpec."""
    _, generated = models_json_schema([(JobFile, "validation"), (JobSpec, "validation")], by_alias=True)
    defs = generated["$defs"]
    for model in _models(JobFile):
        _tidy(defs[model.__name__], model)
    job_file = defs[JobFile.__name__]
    job_file["required"] = ["jobSpec"]
    job_file["properties"] |= {to_camel(name): {"readOnly": True} for name in sorted(JobFile.OUTPUT_ONLY)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast job file",
        "anyOf": [{"$ref": "#/$defs/JobFile"}, {"$ref": "#/$defs/JobSpec"}],
        "$defs": defs,
    }


def json_schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _models(model: type[Model]) -> set[type[Model]]:
    inner = {found for field in model.model_fields.values() if (found := model_in(field.annotation)) is not None}
    return {model}.union(*map(_models, inner))


def _tidy(schema: dict[str, Any], model: type[Model]) -> None:
    """What pydantic's versions write differently, or in a way that helps nobody, in one form of ours."""
    for name, field in model.model_fields.items():
        described = schema["properties"][to_camel(name)]
        described.pop("title", None)
        described.pop("default", None)
        scalar = next((item for item in field.metadata if isinstance(item, Scalar)), None)
        if scalar is not None and not field.is_required() and field.default != "":
            described["default"] = scalar.print(field.default)
        if (inner := model_in(field.annotation)) is not None and described.get("type") != "array":
            schema["properties"][to_camel(name)] = {"$ref": f"#/$defs/{inner.__name__}"}
        if field.description:
            schema["properties"][to_camel(name)]["description"] = field.description
    schema.pop("title", None)


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())
