"""Jobs that have ended and of which there is but a head in memory: read whole from their snapshots.

Calls of users and messages of hosts wait for the store before their input is stepped, beside the event loop. What a
step itself finds that it needs, the jobs that a look at retention deletes say, it reads at once, and holds the loop for
as long as the disk takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import Jobs
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.commands import Input
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.faults import NotAsWritten
from holdfast_controller.shell.store.records import as_written
from holdfast_controller.shell.store.schema import snapshots

if TYPE_CHECKING:
    from holdfast_controller.shell.store.store import Store

READ_AT_ONCE = 500
"""Names in one query: databases have a bound."""


def read(database: sa.Connection, names: Sequence[str]) -> list[Job]:
    """These jobs as the snapshots have them, within a transaction; one without any is left out.

    Raises ``NotAsWritten``.
    """
    found = []
    for first in range(0, len(names), READ_AT_ONCE):
        entities = [f"job/{name}" for name in names[first : first + READ_AT_ONCE]]
        for row in database.execute(sa.select(snapshots).where(snapshots.c.entity.in_(entities))):
            if not as_written(snapshots, row):
                raise NotAsWritten(f"the snapshot of {row.entity}")
            found.append(codec.load_entity("job", row.payload))
    return found


def read_beside(store: Store, jobs: Jobs, names: Iterable[str]) -> asyncio.Future[list[Job]] | None:
    """Begin to read these jobs beside the event loop, where there are any to read: once that is done, they are whole.

    Its result is for the caller that waits for it; one that doesn't wait looks at ``jobs`` again later.
    """

    def take(done: asyncio.Future[list[Job]]) -> None:
        if not done.cancelled() and done.exception() is None:
            jobs.take(done.result())

    missing = jobs.missing(names)
    if not missing:
        return None
    reading = asyncio.wrap_future(store.call(store.jobs, missing))
    reading.add_done_callback(take)
    return reading


def named_in(incoming: Input) -> Iterable[str]:
    """Ids of the jobs that an input is about, as far as it says."""
    match incoming:
        case st.Once():
            return named_in(incoming.command)
        case st.HostConnected():
            return {report.key.job for report in incoming.places}
        case st.WorkerReported():
            return (incoming.report.key.job,)
        case st.ExitsReported():
            return {report.key.job for report in incoming.reports}
        case _:
            job_id = getattr(incoming, "job_id", "")
            return (job_id,) if job_id else ()
