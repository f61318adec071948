"""Staying with a job to its end, however long its controller is away, and whatever a restored one has lost."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from holdfast.errors import CursorExpired, HoldfastError

if TYPE_CHECKING:
    from holdfast._sdk.reconnect import LinkCallback
    from holdfast.client import Client
    from holdfast.v1 import job_pb2


async def events_to_the_end(
    client: Client, job_id: str, cursor: int, on_link: LinkCallback | None
) -> AsyncGenerator[job_pb2.WatchJobResponse]:
    """The job's events after ``cursor``, until it has ended.

    Where the controller was restored from a backup that knows less, those since it came back.
    """
    import anyio

    from holdfast._sdk.reconnect import Outage

    restored = Outage()
    while True:
        try:
            async with contextlib.aclosing(client.watch_job(job_id, cursor, on_link=on_link)) as events:
                async for event in events:
                    cursor = event.cursor
                    yield event
            return
        except CursorExpired as error:
            await anyio.sleep(restored.failed(error))
            cursor = (await patiently(client, job_id, on_link)).cursor


async def ended_job(client: Client, job: job_pb2.CustomJob, on_link: LinkCallback | None) -> job_pb2.CustomJob:
    """The job as it ended, however long that takes."""
    from holdfast.client import TERMINAL

    if job.state in TERMINAL:
        return job
    async with contextlib.aclosing(events_to_the_end(client, job.id, job.cursor, on_link)) as events:
        async for _ in events:
            pass
    return await patiently(client, job.id, on_link)


async def patiently(client: Client, job_id: str, on_link: LinkCallback | None) -> job_pb2.CustomJob:
    """The job as it is once the controller answers."""
    import anyio

    from holdfast._sdk.reconnect import Outage, is_away

    outage = Outage(on_link)
    while True:
        try:
            job = await client.get_job(job_id)
        except HoldfastError as error:
            if not is_away(error):
                raise
            await anyio.sleep(outage.failed(error))
        else:
            outage.settled()
            return job
