"""Stay with a job until it ends: its events as notes, its output as output, its end as an exit status."""

from __future__ import annotations

import os
import sys

import anyio

from holdfast.cli import exit_status, notes
from holdfast.client import Client
from holdfast.link import LinkCallback
from holdfast.v1 import job_pb2


async def follow(client: Client, job: job_pb2.CustomJob, *, show_all: bool) -> int:
    """The exit status of the job once it has ended."""
    on_link = notes.link_notes()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_show_output, client, job.id, () if show_all else (0,), on_link)
        state = job.state
        async for event in client.watch_job(job.id, on_link=on_link):
            if event.state != state:
                notes.note(event.message or job_pb2.JobState.Name(event.state).removeprefix("JOB_STATE_").lower())
            state = event.state
    return exit_status.of_job(await client.get_job(job.id))


async def _show_output(client: Client, job_id: str, ranks: tuple[int, ...], on_link: LinkCallback) -> None:
    sys.stdout.flush()
    async for chunk in client.stream_logs(job_id, ranks=ranks, follow=True, on_link=on_link):
        os.write(2 if chunk.stream == job_pb2.LOG_STREAM_STDERR else 1, chunk.data)
