"""Who stays with a job to its end goes on where a restored controller has lost what was heard of it last."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController
from tests.integration.client.test_run_command import Command, holdfast, result_of, until
from tests.integration.client.test_waiting import wait

from holdfast._api.aio import AsyncClient
from holdfast.v1 import job_pb2

__all__ = ["holdfast"]
pytestmark = pytest.mark.anyio


async def restore(controller: FakeController, job_id: str, streams: int) -> None:
    """The controller goes away and comes back, and ``streams`` are open to it again."""
    await controller.stop()
    controller.oldest_cursor = controller.jobs[job_id].cursor + 1
    controller.event(job_id, "JobUnsure", "restored", "RUNNING")
    await controller.start()
    await until(lambda: controller.open_streams == streams)


async def test_waits_go_on(controller: FakeController, tmp_path: Path) -> None:
    controller.add_job(job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_RUNNING))
    said: list[tuple[int, bytes]] = []

    async def typed() -> None:
        done = await wait(controller, tmp_path, "j1")
        said.append((done.returncode, done.stdout))

    async def ends() -> None:
        await until(lambda: controller.open_streams == 2)
        await restore(controller, "j1", 2)
        controller.event("j1", "JobEnded", "SUCCEEDED", "SUCCEEDED")

    async with AsyncClient(settings=controller.settings()) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(typed)
        tasks.start_soon(ends)
        assert (await client.wait("j1", timeout=180)).succeeded
    assert said == [(0, b"j1  SUCCEEDED\n")]


async def test_a_run_goes_on(controller: FakeController, holdfast: Command) -> None:
    with holdfast.started("run", "--", "python", "train.py") as process:
        await until(lambda: controller.open_streams == 2)
        controller.event("j1", "GangStarted", "generation 1 is running", "RUNNING")
        controller.write("j1", b"before\n")
        await anyio.sleep(0.3)
        await restore(controller, "j1", 2)
        controller.jobs["j1"].error.exit_code = 9
        controller.event("j1", "JobEnded", "FAILED", "FAILED")
        result = await result_of(process)
    assert (result.code, result.out) == (9, b"before\n"), result.err
