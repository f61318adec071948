"""The numbers that scripts rely on."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.kit.exit_status import of_job
from holdfast.v1 import job_pb2


@pytest.mark.parametrize(
    ("state", "error", "status"),
    [
        ("SUCCEEDED", {}, 0),
        ("FAILED", {"exit_code": 7}, 7),
        ("FAILED", {"exit_code": 139}, 139),
        ("FAILED", {}, 125),
        ("FAILED", {"exit_code": 0}, 125),
        ("FAILED", {"exit_code": 256}, 125),
        ("FAILED", {"code": 4}, 124),
        ("FAILED", {"code": 4, "exit_code": 143}, 124),
        ("EXPIRED", {}, 124),
        ("CANCELLED", {"code": 1}, 130),
        ("CANCELLED", {"code": 1, "exit_code": 143}, 130),
        ("PARTIALLY_SUCCEEDED", {}, 125),
    ],
)
def test_a_job_that_has_ended(state: str, error: dict[str, Any], status: int) -> None:
    job = job_pb2.CustomJob(state=job_pb2.JobState.Value(f"JOB_STATE_{state}"))
    if error:
        job.error.CopyFrom(job_pb2.JobError(**error))
    assert of_job(job) == status
