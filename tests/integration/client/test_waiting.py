"""``holdfast wait`` and ``job.wait`` of jobs that have ended, in the order of their ends, and of those that go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast._api.aio import AsyncClient
from holdfast.errors import WaitTimeout
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio


@pytest.fixture
async def jobs(controller: FakeController) -> FakeController:
    """Of three jobs the second failed at 100 s, the first succeeded at 200 s, and the third runs."""
    for name, state, end_s in (
        ("j1", job_pb2.JOB_STATE_SUCCEEDED, 200),
        ("j2", job_pb2.JOB_STATE_FAILED, 100),
        ("j3", job_pb2.JOB_STATE_RUNNING, 0),
    ):
        job = job_pb2.CustomJob(id=name, display_name=name, state=state)
        if end_s:
            job.end_time.FromSeconds(end_s)
        controller.add_job(job)
    return controller


async def wait(controller: FakeController, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    config = controller.write_settings(tmp_path / "client.toml")
    env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}
    with anyio.fail_after(180):
        return await anyio.run_process([sys.executable, "-m", "holdfast", "wait", *words], env=env, check=False)


async def test_jobs_that_have_ended_are_never_called_not_ended(jobs: FakeController, tmp_path: Path) -> None:
    done = await wait(jobs, tmp_path, "--timeout", "0", "-o", "json", "j1", "j2")
    assert done.returncode != 124 and b"time is over" not in done.stderr
    assert [each["id"] for each in json.loads(done.stdout)] == ["j2", "j1"], "in the order of their ends"

    running = await wait(jobs, tmp_path, "--timeout", "0", "j1", "j2", "j3")
    assert running.returncode == 124
    assert b"not ended yet: j3\n" in running.stderr


async def test_any_gives_the_one_that_ended_first(jobs: FakeController, tmp_path: Path) -> None:
    done = await wait(jobs, tmp_path, "--any", "j3", "j1", "j2")
    assert done.returncode not in (0, 124)
    assert done.stdout.split()[:2] == [b"j2", b"FAILED"]


async def test_a_timeout_of_0_asks_whether_it_has_ended(jobs: FakeController) -> None:
    async with AsyncClient(settings=jobs.settings()) as client:
        assert (await client.wait("j1", timeout=0)).state == "SUCCEEDED"
        with pytest.raises(WaitTimeout, match="j3 has not ended within 0 s"):
            await client.wait("j3", timeout=0)
