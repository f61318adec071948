"""``holdfast wait``: until jobs have ended."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast._base.proto_values import short_name
from holdfast.cli.jobs.chosen_jobs import Labels, label_option, own_jobs
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.job_names import jobs_of
from holdfast.cli.kit.output import dump, page_option
from holdfast.cli.kit.parameters import duration, job_argument, moment
from holdfast.cli.kit.to_the_end import ended_job
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

JOBS_MOST = 256
"""Of one command: each takes a stream of the 512 that a user may have."""


@click.command()
@job_argument(nargs=-1)
@label_option("Your jobs, those that have ended included,")
@click.option("--since", type=moment, metavar="TIME", help="With --label: only jobs submitted since, such as 2h.")
@click.option("--any", "any_", is_flag=True, help="Return once one of them has ended.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Wait no longer than this, such as 2h.")
@page_option
def wait(
    word: tuple[str, ...],
    label: Labels,
    since: float | datetime.datetime | None,
    any_: bool,
    timeout: float | None,
    output: str,
) -> None:
    """Wait until jobs have ended, and say of each how it did.

    Exits with 0 if all have succeeded, else as `run` does for the job that failed first; with --any, for the job that
    ended first. After --timeout it exits with 124. An array is all of its jobs. They run on, whatever
    becomes of this command.

    As json or yaml: a list of the jobs that have ended, as `job list` has them, in the order of their ends.
    """
    if bool(word) == bool(label):
        raise click.UsageError("Name jobs, or choose yours by --label.")
    if since is not None and not label:
        raise click.UsageError("--since goes with --label.")

    async def work(client: Client) -> int:
        from holdfast._sdk import json_view
        from holdfast.cli.pages.job_tables import without_secrets

        if label:
            jobs = await own_jobs(client, now=time.time(), label=label, since=since)
            if not jobs:
                raise NotFound("No job of yours matches.", fix="See: holdfast job list")
        else:
            found = [job for each in dict.fromkeys(word) for job in await jobs_of(client, each)]
            jobs = list({job.id: job for job in found}.values())
        ended: list[job_pb2.CustomJob] = []
        status = await _all_ended(client, jobs, ended, any_=any_, timeout=timeout, tell=output == "table")
        if output != "table":
            dump([json_view.job(without_secrets(each), workers=False) for each in ended], output)
        return status

    sys.exit(with_client(work))


async def array_ended(client: Client, element: job_pb2.CustomJob) -> int:
    """The exit status of the array of which ``element`` is one, once all have ended; says of each how it did."""
    jobs = [job async for job in client.list_jobs(f"array={element.array.id}")]
    return await _all_ended(client, jobs, [], any_=False, timeout=None, tell=True)


def summary(jobs: Sequence[job_pb2.CustomJob]) -> str:
    """How the jobs of an array have ended, such as ``17 succeeded, 3 failed: 4, 9, 17``."""
    from holdfast._base.spans import spans_of
    from holdfast.v1 import job_pb2

    found: dict[str, list[int]] = {"succeeded": []}
    for job in jobs:
        word = short_name(job_pb2.JobState, job.state).lower().replace("_", " ")
        found.setdefault(word, []).append(job.array.index)
    shown = [f"{len(found.pop('succeeded'))} succeeded"]
    shown += [f"{len(each)} {word}: {spans_of(each).replace(',', ', ')}" for word, each in found.items()]
    return "; ".join(shown) if len(shown) > 2 else ", ".join(shown)


async def _all_ended(
    client: Client,
    jobs: Sequence[job_pb2.CustomJob],
    ended: list[job_pb2.CustomJob],
    *,
    any_: bool,
    timeout: float | None,
    tell: bool,
) -> int:
    """The exit status, once all have ended or one of them; those that have are added to ``ended``."""
    import anyio

    from holdfast.client import TERMINAL

    console = Console()
    on_link = console.on_link()
    over = sorted((job for job in jobs if job.state in TERMINAL), key=_end)[: 1 if any_ else None]
    active = [] if any_ and over else [job for job in jobs if job.state not in TERMINAL]
    if len(active) > JOBS_MOST and any_:
        problem = f"With --any at most {JOBS_MOST} jobs can be waited for, and these are {len(active)}."
        raise click.UsageError(problem)
    for job in over:
        ended.append(job)
        if tell:
            say(_line(job))
    streams = anyio.CapacityLimiter(JOBS_MOST)
    if active:
        console.note(f"waiting for {'1 job' if len(active) == 1 else f'{len(active)} jobs'} …")
    with anyio.move_on_after(timeout if active else None) as waited:
        async with anyio.create_task_group() as tasks:

            async def one(job: job_pb2.CustomJob) -> None:
                async with streams:  # the rest are asked for as those end
                    last = await ended_job(client, job, on_link)
                if any_ and ended:
                    return
                ended.append(last)
                if tell:
                    say(_line(last))
                if any_:
                    tasks.cancel_scope.cancel()

            for job in active:
                tasks.start_soon(one, job)
    ended.sort(key=_end)
    if waited.cancelled_caught:
        left = [job.id for job in jobs if job.id not in {each.id for each in ended}]
        console.note(f"time is over; not ended yet: {', '.join(left)}")
        return exit_status.TIMED_OUT
    if tell and not any_ and len(jobs) > 1 and len({job.array.id for job in jobs}) == 1 and jobs[0].array.id:
        console.note(summary(ended))
    failed = [job for job in ended if exit_status.of_job(job) != exit_status.OK]
    return exit_status.of_job(failed[0]) if failed else exit_status.OK


def _end(job: job_pb2.CustomJob) -> int:
    return job.end_time.ToNanoseconds()


def _line(job: job_pb2.CustomJob) -> str:
    from holdfast.cli.pages.job_tables import failure
    from holdfast.v1 import job_pb2

    why = failure(job)
    return f"{job.id}  {short_name(job_pb2.JobState, job.state)}" + (f"  {why}" if why else "")
