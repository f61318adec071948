"""``holdfast run`` as a user types it: a process of its own against a controller of the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from fake_controller import FakeController
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    err: str


async def holdfast(controller: FakeController, tmp_path: Path, *words: str, cwd: Path | None = None) -> Result:
    config = controller.write_settings(tmp_path / "client.toml")
    env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}
    with anyio.fail_after(60):
        done = await anyio.run_process(
            [HOLDFAST, *words], env=env, cwd=cwd, check=False, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
    return Result(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize(
    ("state", "error", "status"),
    [
        ("SUCCEEDED", None, 0),
        ("FAILED", job_pb2.JobError(exit_code=7), 7),
        ("FAILED", job_pb2.JobError(exit_code=139), 139),
        ("FAILED", job_pb2.JobError(), 125),
        ("FAILED", job_pb2.JobError(code=4, exit_code=143), 124),
        ("EXPIRED", None, 124),
        ("CANCELLED", None, 130),
    ],
)
async def test_run_exits_as_the_job_ended(
    controller: FakeController, tmp_path: Path, state: str, error: job_pb2.JobError | None, status: int
) -> None:
    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "GangLaunched", "running", "RUNNING")
        controller.write(job.id, b"hello\n")
        if error is not None:
            job.error.CopyFrom(error)
        controller.event(job.id, "JobEnded", state.lower(), state)

    controller.on_create = on_create
    result = await holdfast(controller, tmp_path, "run", "--", "python", "train.py")
    assert result.code == status, result.err
    assert result.out == b"hello\n"
