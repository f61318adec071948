"""``holdfast cancel``: ask for the end of jobs, named one by one or chosen by what they have in common."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast._base.printable import one_line
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.job_filters import job_filter
from holdfast.cli.kit.job_names import on_job
from holdfast.cli.kit.parameters import job_argument, key_value
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

NAMED = 20
"""Jobs that a question lists."""


@click.command()
@job_argument(nargs=-1)
@click.option(
    "--label", multiple=True, type=key_value, metavar="KEY=VALUE", help="Your active jobs with this label."
)
@click.option("--all-mine", is_flag=True, help="All your active jobs.")
@click.option("--yes", is_flag=True, help="With --label and --all-mine: don't ask.")
def cancel(word: tuple[str, ...], label: tuple[tuple[str, str], ...], all_mine: bool, yes: bool) -> None:
    """Ask for the end of jobs.

    Their workers get SIGTERM, and SIGKILL after the grace period. Jobs that are chosen by --label or --all-mine are
    listed first, and cancelled when you agree; other users' jobs are never among them.
    """
    if bool(word) == bool(label or all_mine):
        raise click.UsageError("Name jobs, or choose yours by --label or with --all-mine.")
    if label and all_mine:
        raise click.UsageError("--all-mine is every job, so --label goes without it.")
    if not word and not yes and not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on: add --yes, or see them first: holdfast job list.")

    names = word
    if not word:
        chosen = with_client(lambda client: _chosen(client, label))
        if not chosen:
            Console().note("no active job of yours matches; nothing is cancelled.")
            return
        if not yes:
            _ask(chosen)
        names = tuple(job.id for job in chosen)
    if not with_client(lambda client: _cancel(client, names)):
        sys.exit(exit_status.OUR_FAILURE)


async def _chosen(client: Client, label: tuple[tuple[str, str], ...]) -> list[job_pb2.CustomJob]:
    """The caller's active jobs with these labels, oldest first, but those that are being cancelled."""
    user = (await client.access.caller()).user.name
    filter = f"{job_filter(now=0.0, label=label, owner=user, active=True)} AND NOT state=CANCELLING"
    return [job async for job in client.list_jobs(filter)]


def _ask(chosen: list[job_pb2.CustomJob]) -> None:
    """Return where the user agrees; else the command ends."""
    from holdfast._sdk.json_view import state_name
    from holdfast.v1 import job_pb2

    shown = chosen[-NAMED:]
    if len(shown) < len(chosen):
        say(f"  {len(chosen) - len(shown)} older ones, and", err=True)
    for job in shown:
        name = one_line(job.display_name, 60)
        say(f"  {job.id}  {state_name(job_pb2.JobState.Name(job.state))}  {name}", err=True)
    what = "this job" if len(chosen) == 1 else f"these {len(chosen)} jobs"
    try:
        agreed = click.confirm(f"Cancel {what}?", err=True)
    except click.Abort:
        sys.exit(exit_status.CANCELLED)
    if not agreed:
        Console().note("nothing is cancelled.")
        sys.exit(exit_status.OK)


async def _cancel(client: Client, words: tuple[str, ...]) -> bool:
    """Whether all could be asked for; says of each what becomes of it."""
    console, well = Console(), True
    for each in words:
        try:
            job_id, job = await on_job(client, each, client.cancel_job)
        except HoldfastError as error:
            console.error(error)
            well = False
        else:
            console.note(f"job {job_id} {_ending(job)}")
    return well


def _ending(job: job_pb2.CustomJob) -> str:
    from holdfast._sdk.json_view import state_name
    from holdfast.client import TERMINAL
    from holdfast.v1 import job_pb2

    if job.state in TERMINAL and job.state != job_pb2.JOB_STATE_CANCELLED:
        return f"has ended already: {state_name(job_pb2.JobState.Name(job.state))}"
    return "is cancelled" if job.state == job_pb2.JOB_STATE_CANCELLED else "is being cancelled"
