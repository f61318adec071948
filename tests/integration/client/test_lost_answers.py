"""Calls whose answers are lost: asked for again where that is safe, and said to be unknown where it stays so."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast._sdk import transport
from holdfast.client import Client
from holdfast.errors import Unavailable
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio


async def test_a_submission_whose_answer_is_lost_makes_one_job(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CALL_TIMEOUT_S", 1.0)
    late = 2

    async def stalls(_: job_pb2.CustomJob) -> None:
        await asyncio.sleep(30)

    controller.on_create = stalls
    async with Client(controller.settings()) as client:
        created = await client.create_job(job_pb2.CustomJob(display_name="once"))
        assert (created.display_name, len(controller.jobs)) == ("once", 1)

    async def never(*_: object) -> None:
        nonlocal late
        late -= 1
        await asyncio.sleep(30)

    monkeypatch.setattr(controller, "called", never)
    monkeypatch.setattr(transport, "CERTAIN_S", 1.5)
    async with Client(controller.settings()) as client:
        with pytest.raises(Unavailable, match="What was asked for may have been done") as failed:
            await client.create_job(job_pb2.CustomJob(display_name="unknown"))
    assert late < 1, "it was asked again"
    assert "holdfast job list" in failed.value.fix
