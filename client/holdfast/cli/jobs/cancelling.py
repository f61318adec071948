"""``holdfast cancel``: ask for the end of jobs, named one by one or chosen by what they have in common."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast._base.proto_values import short_name
from holdfast.cli.jobs.chosen_jobs import Deed, Labels, label_option, named_or_chosen, yes_option
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.job_names import on_job
from holdfast.cli.kit.parameters import job_argument
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

CANCEL = Deed("Cancel", "cancelled", "active=true AND NOT state=CANCELLING", "active")


@click.command()
@job_argument(nargs=-1)
@label_option("Your active jobs")
@click.option("--all-mine", is_flag=True, help="All your active jobs.")
@yes_option("--label and --all-mine")
def cancel(word: tuple[str, ...], label: Labels, all_mine: bool, yes: bool) -> None:
    """Ask for the end of jobs.

    Their workers get SIGTERM, and SIGKILL after the grace period. An array is cancelled whole. Jobs that are
    chosen by --label or --all-mine are listed first, and cancelled when you agree; other users' jobs are never among
    them.
    """
    if label and all_mine:
        raise click.UsageError("--all-mine is every job, so --label goes without it.")
    names = named_or_chosen(word, label, CANCEL, yes=yes, all_mine=all_mine)
    if names and not with_client(lambda client: _cancel(client, names)):
        sys.exit(exit_status.OUR_FAILURE)


async def _cancel(client: Client, words: tuple[str, ...]) -> bool:
    """Whether all could be asked for; says of each what becomes of it."""
    console, well = Console(), True
    for each in words:
        try:
            job_id, job = await on_job(client, each, client.cancel_job)
            of_array = job_id == job.array.id
            ending = await _ending_array(client, job.array) if of_array else f"job {job_id} {_ending(job)}"
        except HoldfastError as error:
            console.error(error)
            well = False
        else:
            console.note(ending)
    return well


async def _ending_array(client: Client, array: job_pb2.JobArray) -> str:
    left = array.running + array.waiting
    if not left and not await client.newest_jobs(1, f"array={array.id} AND state=CANCELLED"):
        failed = f", {array.failed} failed" if array.failed else ""
        return f"array {array.id} has ended already: {array.done} succeeded{failed}"
    return f"array {array.id} is cancelled" + (f"; {left} of its jobs are being stopped" if left else "")


def _ending(job: job_pb2.CustomJob) -> str:
    from holdfast.client import TERMINAL
    from holdfast.v1 import job_pb2

    if job.state in TERMINAL and job.state != job_pb2.JOB_STATE_CANCELLED:
        return f"has ended already: {short_name(job_pb2.JobState, job.state)}"
    return "is cancelled" if job.state == job_pb2.JOB_STATE_CANCELLED else "is being cancelled"
