"""A controller whose state lies on a disk that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.frozen_disk import Disk, mounted
from tests.integration.controller.calls.test_fencing import BEAT, beats
from tests.integration.controller.cluster import WITHIN_S, job
from tests.integration.controller.process import Process, stub

from holdfast.v1 import job_pb2
from holdfast_controller.shell.base.config import ControllerConfig

pytestmark = pytest.mark.require("root", "freeze")
UNANSWERED_S = 3.0
"""Six times as long as a heartbeat waits for its answer."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "disk.img", tmp_path / "disk") as made:
        yield made


@pytest.fixture
def config(config: ControllerConfig, disk: Disk) -> ControllerConfig:
    return replace(config, state_dir=disk.path / "state")


async def test_heartbeats_and_exits_are_answered_once_the_disk_moves_on(disk: Disk, daemon: Process) -> None:
    controller = await daemon.ready(daemon.start())
    async with controller.agent() as agent:
        name = (await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
        await agent.until(lambda a: "RUN" in a.phases(name))
        first = await agent.exit(name, 7)
        await agent.until(lambda a: a.acks() == [first])
        disk.freeze()
        try:
            before = beats(agent)
            await agent.call.write(BEAT)
            again = await agent.exit(name, 7)  # the log has it already
            await asyncio.sleep(UNANSWERED_S)
            assert (beats(agent), agent.acks()) == (before, [first])
        finally:
            disk.thaw()
        await agent.until(lambda a: beats(a) > before and a.acks() == [first, again])
    await controller.close()
