"""The job spec: read a file, hold it to every rule, print it again.

``parse_file``, ``parse_text`` and ``parse`` give a ``JobFile`` or raise ``InvalidSpec`` with everything that is
wrong, each with its path and a fix. Importing this loads pydantic, but neither protobuf nor PyYAML.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from holdfast._base.job_file.choices import (
    DependencyEnd,
    HangAction,
    NotificationEvent,
    NumaBinding,
    RestartScope,
    SuccessPolicy,
    UnderuseAction,
    UnderuseShare,
)
from holdfast.spec.compat.ignored_fields import warnings
from holdfast.spec.models.ignored import (
    DiskSpec,
    DnsPeeringConfig,
    EncryptionSpec,
    LustreMount,
    NfsMount,
    OutputDirectory,
    PscInterfaceConfig,
    ReservationAffinity,
)
from holdfast.spec.models.job import (
    ContainerSpec,
    EnvVar,
    JobFile,
    JobSpec,
    MachineSpec,
    ProcessSpec,
    PythonPackageSpec,
    WorkerPoolSpec,
    to_dict,
)
from holdfast.spec.models.lifecycle import (
    Backoff,
    Dependency,
    DisconnectPolicy,
    FaultTolerance,
    HangDetection,
    HostSelector,
    Placement,
    PlacementMode,
    Scheduling,
    SchedulingStrategy,
    Segment,
    Underuse,
    WarmMode,
    WarmStart,
    WarningSignal,
)
from holdfast.spec.models.notifications import Notification
from holdfast.spec.models.packaging import PackagedCode
from holdfast.spec.models.scalars import PROTO
from holdfast.spec.models.secret_env import SecretEnvVar
from holdfast.spec.parse.reader import parse
from holdfast.spec.rules.arrays import read_array

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2, spec_pb2

__all__ = [
    "Backoff",
    "ContainerSpec",
    "Dependency",
    "DependencyEnd",
    "DisconnectPolicy",
    "DiskSpec",
    "DnsPeeringConfig",
    "EncryptionSpec",
    "EnvVar",
    "FaultTolerance",
    "HangAction",
    "HangDetection",
    "HostSelector",
    "JobFile",
    "JobSpec",
    "LustreMount",
    "MachineSpec",
    "NfsMount",
    "Notification",
    "NotificationEvent",
    "NumaBinding",
    "OutputDirectory",
    "PackagedCode",
    "Placement",
    "PlacementMode",
    "ProcessSpec",
    "PscInterfaceConfig",
    "PythonPackageSpec",
    "ReservationAffinity",
    "RestartScope",
    "Scheduling",
    "SchedulingStrategy",
    "SecretEnvVar",
    "Segment",
    "SuccessPolicy",
    "Underuse",
    "UnderuseAction",
    "UnderuseShare",
    "WarmMode",
    "WarmStart",
    "WarningSignal",
    "WorkerPoolSpec",
    "from_proto",
    "job_from_proto",
    "job_to_proto",
    "json_schema",
    "load_text",
    "name_of",
    "parse",
    "parse_file",
    "parse_text",
    "read_array",
    "text_of",
    "to_dict",
    "to_proto",
    "warnings",
]


def parse_file(path: str | os.PathLike[str]) -> JobFile:
    """The job in a YAML or JSON file of at most 1 MiB; a bare spec is named after the file.

    Raises ``InvalidSpec``, also where the file can't be read.
    """
    return parse_text(text_of(path), source=str(path))


def text_of(path: str | os.PathLike[str]) -> str:
    """The text of a job file of at most 1 MiB. Raises ``InvalidSpec``."""
    from holdfast.spec.parse import text

    return text.read_file(path)


def load_text(text: str, *, source: str) -> object:
    """The plain data of a job file's text, for ``parse``. Raises ``InvalidSpec``."""
    from holdfast.spec.parse import text as reader

    return reader.load(text, source=source)


def parse_text(text: str, *, source: str) -> JobFile:
    """The job in a text, by the rules of ``parse_file``. ``source`` names it in messages: a path, or "stdin"."""
    return parse(load_text(text, source=source), what=source, name=name_of(source))


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a job file, with camelCase names; ``docs/users/job.schema.json`` holds it."""
    from holdfast.spec import schema

    return schema.json_schema()


def to_proto(job: JobSpec) -> spec_pb2.CustomJobSpec:
    """The contract's message; fields that the user left out stay unset."""
    from holdfast.v1 import spec_pb2

    return spec_pb2.CustomJobSpec(**job.model_dump(mode=PROTO, exclude_unset=True, exclude_none=True))


def from_proto(message: spec_pb2.CustomJobSpec) -> JobSpec:
    """The spec in a message, held to the same rules as a file. Raises ``InvalidSpec``."""
    from holdfast.v1 import job_pb2

    return job_from_proto(job_pb2.CustomJob(job_spec=message)).job_spec


def job_to_proto(job: JobFile) -> job_pb2.CustomJob:
    """The CustomJob that CreateJob takes, with all fields that a user may set."""
    from holdfast.v1 import job_pb2

    return job_pb2.CustomJob(**job.model_dump(mode=PROTO, exclude_unset=True, exclude_none=True))


def job_from_proto(message: job_pb2.CustomJob) -> JobFile:
    """The fields of a CustomJob that a user may set, held to the rules of a file. Raises ``InvalidSpec``."""
    from holdfast.spec.parse import proto

    return proto.job_from_proto(message)


def name_of(source: str) -> str:
    """A display name for a job without one."""
    path = PurePath(source)
    if path.suffix not in (".yaml", ".yml", ".json"):
        return "job"
    return re.sub(r"[^\w.@+-]+", "-", path.stem)[:128].strip("-") or "job"
