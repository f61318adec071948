"""The program with messages on the page about Python does what the page says; the others run in tests/e2e."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
from tests.integration.client.fake_controller import FakeController

from holdfast.v1 import job_pb2

PAGE = Path(__file__).parents[3] / "docs/users/python.md"


async def run(controller: FakeController, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    *_, program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    config = controller.write_settings(tmp_path / "client.toml")
    env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}
    with anyio.fail_after(60):
        return await anyio.run_process([sys.executable, "-c", program], env=env, check=False)


async def test_it_submits_a_job_and_follows_it_to_its_end(controller: FakeController, tmp_path: Path) -> None:
    async def ends(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "JobEnded", "all ranks have exited 0", "SUCCEEDED")

    controller.on_create = ends
    done = await run(controller, tmp_path)
    assert done.stdout.decode().splitlines() == [
        "submitted",
        "all ranks have exited 0",
        "j1 JOB_STATE_SUCCEEDED",
    ], done.stderr
    assert done.returncode == 0
    pool = controller.jobs["j1"].job_spec.worker_pool_specs[0]
    assert (pool.machine_spec.accelerator_count, pool.processes_per_worker) == (8, 8)


async def test_without_a_cluster_it_says_what_to_do(controller: FakeController, tmp_path: Path) -> None:
    await controller.stop()
    done = await run(controller, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"UNAVAILABLE: ")
