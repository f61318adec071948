"""A client that is closed while its calls wait."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast import AsyncClient
from holdfast.client import Client
from holdfast.errors import WrongState

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("what", ["call", "stream"])
async def test_a_client_closed_by_another_task_is_said_to_who_waits(controller: FakeController, what: str) -> None:
    """gRPC's own answer is a cancellation, which would end every task of the caller's in silence."""
    controller.delay_s = 30
    said: list[str] = []

    async def waits(client: Client) -> None:
        asked = client.get_job("none") if what == "call" else anext(client.watch_hosts())
        with pytest.raises(WrongState) as caught:
            await asked
        said.append(str(caught.value))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, Client(controller.settings()) as client:
            tasks.start_soon(waits, client)
            while not controller.calls:  # noqa: ASYNC110 (what a server has heard has no event to wait for)
                await anyio.sleep(0.01)
    assert said == ["The client was closed before the controller had answered."]


async def test_a_client_closed_while_it_opens_is_closed(controller: FakeController) -> None:
    client = AsyncClient(controller.settings())
    async with anyio.create_task_group() as tasks:

        async def opens() -> None:
            with pytest.raises(WrongState, match="The client is closed"):
                await client.calls()

        tasks.start_soon(opens)
        await anyio.lowlevel.checkpoint()
        await client.close()
    with pytest.raises(WrongState, match="The client is closed"):
        await client.jobs()
