"""``holdfast job pause``, ``resume``, ``delete`` and ``recoveries``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast._base.proto_values import short_name
from holdfast.cli.jobs.chosen_jobs import Deed, Labels, label_option, named_or_chosen, yes_option
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.job_names import job_of, on_job
from holdfast.cli.kit.output import dump
from holdfast.cli.kit.parameters import job_argument
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.client import Client
    from holdfast.v1 import job_pb2

T = TypeVar("T")
PAUSE = Deed("Pause", "paused", "active=true AND NOT state=CANCELLING|PAUSED", "active")
RESUME = Deed("Resume", "resumed", "state=PAUSED", "paused")
DELETE = Deed("Delete", "deleted", "active=false", "ended")


@click.command()
@job_argument(nargs=-1)
@label_option("Your active jobs")
@yes_option()
def pause(word: tuple[str, ...], label: Labels, yes: bool) -> None:
    """Stop jobs for now and free their hosts.

    Their workers get SIGTERM, and SIGKILL after the grace period; save what is to be gone on with. `holdfast job
    resume` queues them again. Jobs that are chosen by --label are listed first, and paused when you agree.
    """
    words = named_or_chosen(word, label, PAUSE, yes=yes)
    _each(words, lambda client, each: client.pause_job(each), _paused)


@click.command()
@job_argument(nargs=-1)
@label_option("Your paused jobs")
@yes_option()
def resume(word: tuple[str, ...], label: Labels, yes: bool) -> None:
    """Queue paused jobs again.

    Jobs that are chosen by --label are listed first, and resumed when you agree.
    """
    words = named_or_chosen(word, label, RESUME, yes=yes)
    _each(words, lambda client, each: client.resume_job(each), _resumed)


@click.command()
@job_argument(nargs=-1)
@label_option("Your jobs that have ended,")
@yes_option()
def delete(word: tuple[str, ...], label: Labels, yes: bool) -> None:
    """Delete jobs that have ended, for good.

    Their output on hosts, the evidence of their hangs and their history go too; on a host that is away, once it is
    back. What was copied to the job's base output directory stays, and so does the audit log. An id is never given
    again. Jobs that are chosen by --label are listed first, and deleted when you agree.
    """
    words = named_or_chosen(word, label, DELETE, yes=yes)
    _each(words, lambda client, each: client.delete_job(each), lambda _: "is deleted")


def _each(
    words: tuple[str, ...], call: Callable[[Client, str], Awaitable[T]], sentence: Callable[[T], str]
) -> None:
    async def work(client: Client) -> bool:
        console, well = Console(), True
        for each in words:
            try:
                job_id, job = await on_job(client, each, lambda job_id: call(client, job_id))
            except HoldfastError as error:
                console.error(error)
                well = False
            else:
                console.note(f"job {job_id} {sentence(job)}")
        return well

    if words and not with_client(work):
        sys.exit(exit_status.OUR_FAILURE)


def _paused(job: job_pb2.CustomJob) -> str:
    from holdfast.client import TERMINAL
    from holdfast.v1 import job_pb2

    if job.state in TERMINAL:
        return f"has ended already: {_state(job)}"
    paused = job.state == job_pb2.JOB_STATE_PAUSED
    return "is paused" if paused else "is being paused: its workers are stopped first"


def _resumed(job: job_pb2.CustomJob) -> str:
    from holdfast.v1 import job_pb2

    if job.state == job_pb2.JOB_STATE_QUEUED:
        return f"is queued again: {job.wait_reason}" if job.wait_reason else "is queued again"
    return f"resumed: {_state(job)}"


def _state(job: job_pb2.CustomJob) -> str:
    from holdfast.v1 import job_pb2

    return short_name(job_pb2.JobState, job.state)


@click.command()
@job_argument()
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def recoveries(word: str, output: str) -> None:
    """List what has interrupted a job, and what was done about it.

    Each with the attempt and generation that it led to, what ended the one before, how long the job stood still,
    and where that time went.
    """

    async def work(client: Client) -> job_pb2.CustomJob:
        return await job_of(client, word)

    job = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.pages.recovery_table import write_recoveries

    if output == "json":
        dump([json_view.recovery(each) for each in job.recoveries], "json")
    else:
        write_recoveries(job, time.time())
