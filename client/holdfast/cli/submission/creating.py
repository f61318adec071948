"""Sends a job, and says what is not known of it when its user doesn't wait for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.kit.console import Console
from holdfast.cli.kit.motd import once

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

UNSURE = "interrupted before the answer came: the job may be there, see holdfast ps before you submit it again"


async def create(
    client: Client, job: job_pb2.CustomJob, console: Console, *, template: str = "", patch: str = ""
) -> job_pb2.CustomJob:
    """The job as the controller has made it, with its warnings and the message of the day on the console."""
    import anyio

    try:
        return await client.create_job(
            job, on_warning=console.warning, on_motd=once(client, console), template=template, patch=patch
        )
    except anyio.get_cancelled_exc_class():
        console.note(UNSURE)
        raise
