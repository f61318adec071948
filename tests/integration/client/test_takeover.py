"""A client of several controllers while none of them leads."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast._sdk import transport
from holdfast._sdk.reconnect import nobody_there
from holdfast.client import Client
from holdfast.errors import Unavailable
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio
NOBODY = "127.0.0.1:1"


async def test_a_call_waits_for_the_controller_that_takes_over(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = anyio.Event()

    def noted(error: object) -> bool:
        refused.set()
        return nobody_there(error)  # type: ignore[arg-type]

    monkeypatch.setattr(transport, "nobody_there", noted)
    monkeypatch.setattr(transport, "TAKEOVER_S", 120.0)
    await controller.stop()
    settings = controller.settings()
    made: list[job_pb2.CustomJob] = []

    async def submit(client: Client) -> None:
        made.append(await client.create_job(job_pb2.CustomJob(display_name="once")))

    with anyio.fail_after(120):
        async with (
            Client(replace(settings, controller=f"{NOBODY},{settings.controller}")) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(submit, client)
            await refused.wait()  # gRPC's own tries are over
            assert not made
            await controller.start()
    assert [job.display_name for job in made] == ["once"] and len(controller.jobs) == 1


@pytest.mark.parametrize("addresses", [NOBODY, f"{NOBODY},{NOBODY}"])
async def test_a_call_that_reaches_nobody_says_so(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch, addresses: str
) -> None:
    tried = 0

    def counted(error: object) -> bool:
        nonlocal tried
        tried += 1
        return nobody_there(error)  # type: ignore[arg-type]

    monkeypatch.setattr(transport, "nobody_there", counted)
    monkeypatch.setattr(transport, "TAKEOVER_S", 0.05)
    async with Client(replace(controller.settings(), controller=addresses)) as client:
        with pytest.raises(Unavailable):
            await client.create_job(job_pb2.CustomJob())
    assert tried >= 1
