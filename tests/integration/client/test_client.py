"""The SDK against a controller of the test's own, over real mutual TLS."""

from __future__ import annotations

import pytest
from fake_controller import FakeController
from holdfast.client import Client
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio


async def test_a_created_job_is_found_again(controller: FakeController) -> None:
    async with Client(controller.settings()) as client:
        created = await client.create_job(job_pb2.CustomJob(display_name="first"))
        assert (await client.get_job(created.id)).display_name == "first"


async def test_a_watch_delivers_the_history_and_ends_with_the_job(controller: FakeController) -> None:
    job = controller.add_job(job_pb2.CustomJob(display_name="a"))
    controller.event(job.id, "GangLaunched", "running", "RUNNING")
    async with Client(controller.settings()) as client:
        types = []
        async for event in client.watch_job(job.id):
            types.append(event.type)
            if event.type == "GangLaunched":
                controller.event(job.id, "JobSucceeded", "succeeded", "SUCCEEDED")
    assert types == ["JobCreated", "GangLaunched", "JobSucceeded"]
