"""The models, the protobuf contract, the JSON Schema and the documentation say the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pydantic.alias_generators import to_camel

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.spec import schema
from holdfast.spec.models import job as models
from holdfast.spec.models.base import Model, model_in
from holdfast.spec.models.scalars import Choice, Flag, Seconds, Text, Whole, scalar_in
from holdfast.spec.rules.job import TASKS
from holdfast.v1 import job_pb2, spec_pb2

ROOT = Path(__file__).parents[3]
MESSAGES = spec_pb2.DESCRIPTOR.message_types_by_name
MODEL_OF = {name: getattr(spec, "JobSpec" if name == "CustomJobSpec" else name) for name in MESSAGES}


def kind_in_proto(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "map of " + kind_in_proto(field.message_type.fields_by_name["value"])
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return str(field.enum_type.full_name)
    return {
        FieldDescriptor.TYPE_STRING: "string",
        FieldDescriptor.TYPE_BOOL: "bool",
        FieldDescriptor.TYPE_INT32: "int32",
        FieldDescriptor.TYPE_INT64: "int64",
    }[field.type]


def kind_in_model(model: type[Model], name: str) -> str:
    """The protobuf type that the model's annotation stands for."""
    field = model.model_fields[name]
    if (inner := model_in(field.annotation)) is not None:
        return "holdfast.v1." + next(proto for proto, of in MODEL_OF.items() if of is inner)
    if typing.get_origin(field.annotation) is dict:
        _, value = typing.get_args(field.annotation)
        assert isinstance(scalar_in(value.__metadata__), Text)
        return "map of string"
    many = typing.get_origin(field.annotation) is tuple
    match scalar_in(typing.get_args(field.annotation)[0].__metadata__ if many else field.metadata):
        case Text():
            return "string"
        case Flag():
            return "bool"
        case Whole(bits=bits):
            return f"int{bits}"
        case Seconds():
            return "google.protobuf.Duration"
        case Choice(of=enum):
            return f"holdfast.v1.{enum.__name__}"
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("name", MESSAGES)
def test_each_model_mirrors_its_message(name: str) -> None:
    message: Descriptor = MESSAGES[name]
    model: type[Model] = MODEL_OF[name]

    assert list(model.model_fields) == [field.name for field in message.fields]
    for field in message.fields:
        many = typing.get_origin(model.model_fields[field.name].annotation) in (tuple, dict)
        assert field.json_name == model.model_fields[field.name].alias
        assert kind_in_model(model, field.name) == kind_in_proto(field)
        assert many == (
            field.label == FieldDescriptor.LABEL_REPEATED if hasattr(field, "label") else field.is_repeated
        )


def test_each_enum_mirrors_the_contract() -> None:
    enums = spec_pb2.DESCRIPTOR.enum_types_by_name
    assert {"HangAction", "RestartScope", "SuccessPolicy"} <= set(enums)
    for name, enum in enums.items():
        assert [value.name for value in enum.values][1:] == [member.value for member in getattr(spec, name)]


def test_the_one_task_is_a_oneof() -> None:
    [task] = MESSAGES["WorkerPoolSpec"].oneofs
    assert tuple(field.name for field in task.fields) == TASKS


def test_every_field_of_a_custom_job_is_read_or_ignored_on_purpose() -> None:
    fields = {field.name for field in job_pb2.CustomJob.DESCRIPTOR.fields}
    assert fields - set(models.JobFile.model_fields) <= models.JobFile.IGNORED
    assert set(models.JobFile.model_fields) <= fields


def test_the_published_schema_is_up_to_date() -> None:
    published = (ROOT / "docs/users/job.schema.json").read_text()
    assert json.loads(published) == spec.json_schema(), (
        "run: .venv/bin/python -m holdfast.spec.schema > docs/users/job.schema.json"
    )
    assert published == schema.json_schema_text()


def test_the_schema_describes_every_field() -> None:
    for name, definition in spec.json_schema()["$defs"].items():
        for field, described in definition["properties"].items():
            assert "description" in described or "readOnly" in described, f"{name}.{field}"


def test_the_schema_knows_what_another_service_puts_around_a_job() -> None:
    definitions = spec.json_schema()["$defs"]
    for name in ("JobFile", "JobSpec"):
        assert {"kind", "metadata"} <= definitions[name]["properties"].keys()
        assert not {"kind", "metadata"} & set(definitions[name]["required"])
    assert list(definitions["Metadata"]["properties"]) == ["name", "annotations", "labels"]


def test_the_documentation_names_every_field() -> None:
    text = (ROOT / "docs/users/job-file.md").read_text()
    for model in (*MODEL_OF.values(), models.JobFile):
        for name in model.model_fields:
            assert f"`{to_camel(name)}`" in text, name


def test_the_documentations_examples_are_valid() -> None:
    text = (ROOT / "docs/users/job-file.md").read_text()
    examples = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        spec.parse_text(example, source="docs/users/job-file.md")


def job() -> dict[str, Any]:
    pool = {
        "replicaCount": 1,
        "machineSpec": {"memoryMb": "4096", "cpuCount": 2},
        "processSpec": {"command": ["x"], "env": [{"name": "A", "value": ""}]},
    }
    return {
        "displayName": "d",
        "jobSpec": {
            "workerPoolSpecs": [pool],
            "scheduling": {"timeout": "1.5h", "gracePeriod": 0},
            "faultTolerance": {"maxWorkerRestarts": 0},
            "successPolicy": "ALL",
        },
        "labels": {"a": "b"},
    }


def test_a_job_becomes_the_message_that_was_meant() -> None:
    read = spec.parse(job())
    message = spec.job_to_proto(read)

    assert message.display_name == "d"
    assert dict(message.labels) == {"a": "b"}
    assert message.job_spec == spec.to_proto(read.job_spec)
    [pool] = message.job_spec.worker_pool_specs
    assert pool.WhichOneof("task") == "process_spec"
    assert pool.machine_spec.memory_mb == 4096
    assert message.job_spec.scheduling.timeout.ToTimedelta().total_seconds() == 5400
    assert message.job_spec.scheduling.HasField("grace_period")
    assert not message.job_spec.scheduling.HasField("end_grace")
    assert message.job_spec.fault_tolerance.HasField("max_worker_restarts")
    assert message.job_spec.success_policy == spec_pb2.SUCCESS_POLICY_ALL
    assert spec.job_from_proto(message) == read
    assert spec.from_proto(message.job_spec) == read.job_spec


def test_what_the_controller_adds_to_a_custom_job_is_ignored() -> None:
    message = spec.job_to_proto(spec.parse(job()))
    message.id = "7"
    message.state = job_pb2.JOB_STATE_RUNNING
    assert spec.job_from_proto(message) == spec.parse(job())


def test_a_message_without_a_name_gets_one() -> None:
    message = spec.job_to_proto(spec.parse(job()))
    message.display_name = ""
    assert spec.job_from_proto(message).display_name == "job"


def test_messages_are_held_to_the_rules_of_files() -> None:
    message = spec_pb2.CustomJobSpec(
        worker_pool_specs=[spec_pb2.WorkerPoolSpec(process_spec=spec_pb2.ProcessSpec(command=[""]))],
        success_policy=7,  # type: ignore[arg-type]
    )
    message.scheduling.timeout.seconds = -1
    with pytest.raises(InvalidSpec) as caught:
        spec.from_proto(message)
    assert [str(violation) for violation in caught.value.violations] == [
        "jobSpec.workerPoolSpecs[0].replicaCount: is missing (such as replicaCount: 1)",
        'jobSpec.scheduling.timeout: must be a duration, not "-1s" (write seconds, or "90s", "15m", "2h")',
        "jobSpec.successPolicy: must be PRIMARY or ALL, not 7",
        "jobSpec.workerPoolSpecs[0].processSpec.command[0]: must name a program; it is empty",
    ]


def test_an_empty_message_is_refused() -> None:
    for read in (
        lambda: spec.from_proto(spec_pb2.CustomJobSpec()),
        lambda: spec.job_from_proto(job_pb2.CustomJob()),
    ):
        with pytest.raises(InvalidSpec, match=r"jobSpec\.workerPoolSpecs: is missing"):
            read()


@pytest.mark.parametrize(("seconds", "nanos"), [(2**62, 0), (1, -1), (0, 2**31 - 1)])
def test_impossible_durations_are_refused_with_their_path(seconds: int, nanos: int) -> None:
    message = spec.to_proto(spec.parse(job()).job_spec)
    message.scheduling.end_grace.seconds = seconds
    message.scheduling.end_grace.nanos = nanos
    with pytest.raises(InvalidSpec, match=r"jobSpec\.scheduling\.endGrace: is no valid duration"):
        spec.from_proto(message)


def test_huge_messages_are_refused() -> None:
    message = spec.to_proto(spec.parse(job()).job_spec)
    message.worker_pool_specs[0].process_spec.args.extend(["x" * 1000] * 1100)
    with pytest.raises(InvalidSpec, match="at most 1,048,576 are allowed"):
        spec.from_proto(message)


def test_complaints_about_a_message_fit_into_a_status() -> None:
    message = spec.to_proto(spec.parse(job()).job_spec)
    message.worker_pool_specs[0].process_spec.env.extend(spec_pb2.EnvVar(name="-" * 1000) for _ in range(99))
    with pytest.raises(InvalidSpec) as caught:
        spec.from_proto(message)
    assert len(caught.value.violations) == 10
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize(
    "module", ["holdfast", "holdfast.cli", "holdfast._base.job_file.launcher", "holdfast._base.job_file.expand"]
)
def test_light_modules_do_not_load_pydantic(module: str) -> None:
    code = (
        "import importlib.util, sys\n"
        f"if importlib.util.find_spec({module!r}): import {module}\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_spec_does_not_load_protobuf() -> None:
    code = "import holdfast.spec, sys; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_fields_of_a_newer_client_are_not_kept() -> None:
    message, newer = spec.to_proto(spec.parse(job()).job_spec), spec_pb2.CustomJobSpec()
    newer.ParseFromString(message.SerializeToString() + b"\xfa\x7f\x01x")  # field 2047

    assert newer.SerializeToString() != message.SerializeToString()
    assert spec.to_proto(spec.from_proto(newer)).SerializeToString() == message.SerializeToString()


@pytest.mark.parametrize(
    ("written", "printed"), [("0.1s", "0.100s"), (1e-9, "0.000000001s"), ("3650d", "315360000s")]
)
def test_durations_keep_their_nanoseconds_in_messages(written: object, printed: str) -> None:
    read = spec.parse({**job(), "jobSpec": {**job()["jobSpec"], "scheduling": {"timeout": written}}})
    assert spec.to_proto(read.job_spec).scheduling.timeout.ToJsonString() == printed


def test_empty_parts_stay_set_in_messages() -> None:
    read = spec.parse({**job(), "jobSpec": {**job()["jobSpec"], "scheduling": {}}})
    assert spec.to_proto(read.job_spec).HasField("scheduling")
