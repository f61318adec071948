"""``holdfast ps`` and ``job …``."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.jobs.cancelling import cancel
from holdfast.cli.jobs.chosen_jobs import Labels, label_option, own_name
from holdfast.cli.jobs.inject import inject
from holdfast.cli.jobs.job_control import delete, pause, recoveries, resume
from holdfast.cli.jobs.job_hangs import hang_action, hangs, hold, stacks
from holdfast.cli.jobs.logs import logs
from holdfast.cli.jobs.rerun import rerun
from holdfast.cli.jobs.run import attach
from holdfast.cli.jobs.series import series
from holdfast.cli.jobs.shell import shell
from holdfast.cli.jobs.waiting import wait
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.job_filters import job_filter
from holdfast.cli.kit.job_names import job_of, jobs_of, on_job
from holdfast.cli.kit.output import dump, json_line, output_option, show_list, show_one
from holdfast.cli.kit.parameters import Count, job_argument, job_state, key_value, moment
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

RECENT = 20
MOST_ACTIVE = 200
"""Rows of a table that a person might still read."""
TABLES = ("table", "wide")
EXPAND = click.option("--expand", is_flag=True, help="Show every job of an array, not one line for all of them.")
NO_JOBS = "No jobs yet. Start one: holdfast run -- python train.py"


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="Every job that is known.")
@click.option("--mine", is_flag=True, help="Only your jobs.")
@label_option("Only jobs")
@EXPAND
@output_option
def ps(everything: bool, mine: bool, label: Labels, expand: bool, output: str) -> None:
    """List the active jobs and the most recent ones, newest last.

    A table shows the 200 oldest active ones at most, and an array as one line.
    """
    most = MOST_ACTIVE if output == "table" else sys.maxsize
    fold = output in TABLES and not expand

    async def work(client: Client) -> tuple[list[job_pb2.CustomJob], bool]:
        owner = await own_name(client) if mine else None
        filter = job_filter(now=0.0, label=label, owner=owner)
        if everything:
            return [job async for job in client.list_jobs(filter, one_per_array=fold)], False
        newest = await client.newest_jobs(RECENT, filter, one_per_array=fold)
        found = {_row_of(job, fold=fold): job for job in newest}
        older: list[job_pb2.CustomJob] = []
        still_active = job_filter(now=0.0, label=label, owner=owner, active=True)
        async with contextlib.aclosing(_listed(client, still_active, min(most, 1000), fold=fold)) as jobs:
            async for job in jobs:
                if len(older) == most:
                    return [*older, *found.values()], True
                if _row_of(job, fold=fold) not in found:
                    older.append(job)
        return [*older, *found.values()], False

    jobs, cut = with_client(work)
    _show(jobs, output, "No job matches." if mine or label else NO_JOBS, fold=fold)
    if cut:
        Console().note(f"more jobs are active than the {MOST_ACTIVE} oldest; see them all with: holdfast ps --all")


@click.group(cls=Commands)
def job() -> None:
    """Look at jobs and act on them."""


@job.command("list")
@click.option("--name", metavar="PATTERN", help="Only jobs whose name holds this, or with * matches it: 'sweep-*'.")
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="Only jobs submitted since: 2h, yesterday, or 2026-11-21T04:00:00Z.",
)
@click.option("--label", multiple=True, type=key_value, metavar="KEY=VALUE", help="Only jobs with this label.")
@click.option(
    "--state",
    multiple=True,
    type=job_state,
    metavar="STATE",
    help="Only jobs in this state, such as RUNNING, or in these.",
)
@click.option(
    "--filter", default="", metavar="TERMS", help="Only these, such as 'state=RUNNING AND labels.team:*'."
)
@click.option("--owner", help="Only jobs of this user.")
@click.option("--mine", is_flag=True, help="Only your jobs.")
@click.option("--active", is_flag=True, help="Only jobs that have not ended.")
@click.option("--limit", type=Count(1, 1000), help="Only the newest so many.")
@EXPAND
@output_option
def list_(limit: int | None, mine: bool, owner: str | None, expand: bool, output: str, **asked: Any) -> None:
    """List jobs, newest last.

    In a table an array is one line, unless --state asks for some of its jobs.
    """
    if mine and owner is not None:
        raise click.UsageError("--mine is --owner with your name: give one of them.")

    async def work(client: Client) -> list[job_pb2.CustomJob]:
        whose = await own_name(client) if mine else owner
        filter = job_filter(now=time.time(), owner=whose, **asked)
        if limit is not None:
            return await client.newest_jobs(limit, filter, one_per_array=fold)
        return [job async for job in client.list_jobs(filter, one_per_array=fold)]

    fold = output in TABLES and not expand and not asked["state"]
    chosen = mine or owner is not None or any(asked.values())
    _show(with_client(work), output, "No job matches." if chosen else NO_JOBS, fold=fold)


def _row_of(job: job_pb2.CustomJob, *, fold: bool) -> str:
    """The id under which a list has the job."""
    return (fold and job.array.id) or job.id


def _listed(client: Client, filter: str, page_size: int, *, fold: bool) -> AsyncGenerator[job_pb2.CustomJob]:
    return client.list_jobs(filter, page_size=page_size, one_per_array=fold)


def _show(jobs: Sequence[job_pb2.CustomJob], output: str, hint: str, *, fold: bool) -> None:
    from holdfast._sdk import json_view
    from holdfast.cli.pages.array_page import folded
    from holdfast.cli.pages.job_tables import without_secrets, write_jobs

    show_list(
        [folded(job) for job in jobs] if fold else jobs,
        output,
        view=lambda job: json_view.job(without_secrets(job), workers=False),
        name=lambda job: job.id,
        table=lambda jobs, wide: write_jobs(jobs, time.time(), wide=wide, hint=hint),
    )


@job.command()
@job_argument()
@output_option
@click.option("--secrets", is_flag=True, help="With json or yaml: your job's variables that look secret, too.")
def show(word: str, output: str, secrets: bool) -> None:
    """Show one job.

    Its workers, how their ranks ended, what was done about it, what its GPUs spent their time on, and why the job
    waits or failed. As json or yaml, values of variables with names such as WANDB_API_KEY, HF_TOKEN or DB_PASSWORD
    are left out. Of an array all jobs are listed.
    """

    async def work(client: Client) -> tuple[list[job_pb2.CustomJob], job_pb2.GetGoodputResponse | None]:
        jobs = await jobs_of(client, word)
        if output not in TABLES or len(jobs) > 1 or not jobs[0].generation:
            return jobs, None
        try:
            return jobs, await client.goodput(jobs[0].id)
        except HoldfastError:
            return jobs, None  # such as of a controller that is older than the ledger

    (found, *more), goodput = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.pages.array_page import write_array
    from holdfast.cli.pages.job_page import write_page
    from holdfast.cli.pages.job_tables import without_secrets

    if more:
        show_list(
            [found, *more],
            output,
            view=lambda job: json_view.job(job if secrets else without_secrets(job), workers=False),
            name=lambda job: job.id,
            table=lambda jobs, wide: write_array(jobs, time.time(), wide=wide),
        )
        return
    show_one(
        found,
        output,
        view=lambda job: json_view.job(job if secrets else without_secrets(job)),
        name=lambda job: job.id,
        page=lambda job, wide: write_page(job, time.time(), goodput=goodput, wide=wide),
    )


@job.command()
@job_argument()
@output_option
def events(word: str, output: str) -> None:
    """List what has happened to a job so far."""

    async def work(client: Client) -> list[job_pb2.WatchJobResponse]:
        job = await job_of(client, word)
        found: list[job_pb2.WatchJobResponse] = []
        if not job.cursor:
            return found
        async with contextlib.aclosing(client.watch_job(job.id)) as history:
            async for event in history:
                found.append(event)
                if event.cursor >= job.cursor:
                    break
        return found

    history = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.pages.job_tables import write_events

    show_list(
        history,
        output,
        view=json_view.event,
        name=lambda event: event.type,
        table=lambda found, wide: write_events(found, wide=wide),
    )


@job.command()
@job_argument()
@click.option("--cursor", type=Count(0, bits=64), default=0, help="Only what happened after this place in the log.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def watch(word: str, cursor: int, output: str) -> None:
    """Print what happens to a job until it ends.

    From the start of its history on. As JSON, one event a line. Outlives a restart of the controller.
    """

    async def work(client: Client) -> None:
        from holdfast._sdk import json_view
        from holdfast.cli.pages.job_tables import event_line

        console = Console()
        job = await job_of(client, word)
        history = client.watch_job(job.id, cursor, on_link=console.on_link())
        async with contextlib.aclosing(history):
            async for event in history:
                if output == "json":
                    json_line(json_view.event(event))
                else:
                    say(event_line(event))

    with_client(work)


@job.command()
@job_argument()
def restart(word: str) -> None:
    """Stop the gang of a job and launch it again on the same hosts."""

    async def work(client: Client) -> None:
        job_id, from_before = await on_job(client, word, client.restart_job)
        Console().note(f"job {job_id} restarts in place (generation {from_before.generation}).")

    with_client(work)


for _command in (
    *(
        attach,
        shell,
        logs,
        rerun,
        wait,
        pause,
        resume,
        cancel,
        delete,
        recoveries,
        series,
        hangs,
        stacks,
        hang_action,
        hold,
        inject,
    ),
):
    job.add_command(_command)


@job.command()
def schema() -> None:
    """Print the JSON Schema of job files."""
    from holdfast import spec

    dump(spec.json_schema(), "json")
