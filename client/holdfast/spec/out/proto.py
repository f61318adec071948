"""From the models to protobuf messages: fields have the same names in both, so none is copied by hand."""

from __future__ import annotations

from holdfast.spec.models.job import JobFile, JobSpec
from holdfast.spec.models.scalars import PROTO
from holdfast.v1 import job_pb2, spec_pb2


def to_proto(job: JobSpec) -> spec_pb2.CustomJobSpec:
    """The contract's message; fields that the user left out stay unset."""
    return spec_pb2.CustomJobSpec(**job.model_dump(mode=PROTO, exclude_unset=True, exclude_none=True))


def job_to_proto(job: JobFile) -> job_pb2.CustomJob:
    """What CreateJob takes: all that a user may set."""
    return job_pb2.CustomJob(**job.model_dump(mode=PROTO, exclude_unset=True, exclude_none=True))
