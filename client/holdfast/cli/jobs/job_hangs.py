"""``holdfast job hangs``, ``stacks`` and ``hold``: what hung and why, who is where now, and hands off."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import OUT, Console, coloured, say, say_text
from holdfast.cli.kit.durations import local
from holdfast.cli.kit.job_names import job_of, on_job
from holdfast.cli.kit.output import dump
from holdfast.cli.kit.parameters import Count, duration, job_argument
from holdfast.cli.kit.shell_words import shell_line
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast._session.hang_wire import WorkerEvidence
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

_FORMAT = click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
_FULL = click.option("--full", is_flag=True, help="Every frame of every thread of every rank.")


@click.command()
@job_argument()
@click.option("--number", type=Count(1), help="Only this hang, counted from 1.")
@_FULL
@_FORMAT
def hangs(word: str, number: int | None, full: bool, output: str) -> None:
    """Show the hangs of a job and the evidence that was kept.

    Of each hang since when nothing moved, what was seen, who is suspected and what was done; then the stacks of the
    newest one, or of the one asked for. Without any hang, what the detection says now.
    """

    async def work(client: Client) -> tuple[job_pb2.CustomJob, list[WorkerEvidence]]:
        job = await job_of(client, word)
        newest = job.hangs[-1].number if job.hangs else 0
        if number is not None and number > newest:
            known = f"It has {newest}." if job.hangs else "None was noticed so far."
            raise NotFound(f"The job {job.id} has no hang {number}.", fix=known)
        if not job.hangs:
            return job, []
        kept = [each async for each in client.hang_evidence(job.id, number or newest)]
        hang = next((hang for hang in job.hangs if hang.number == (number or newest)), None)
        return job, [_suspecting(hang, each) for each in kept] if hang is not None else kept

    job, found = with_client(work)
    chosen = [hang for hang in job.hangs if number in (None, hang.number)]
    if output == "json":
        _dump_hangs(job, chosen, found)
        return
    from holdfast.cli.hangs.hang_page import evidence_text, verdict_lines
    from holdfast.cli.kit.table import terminal_width

    width, colour = terminal_width(), coloured(OUT)
    for line in verdict_lines(job, chosen, time.time(), width=width, colour=colour):
        say(line)
    if chosen:
        say(f"Evidence of hang {chosen[-1].number}" + ("" if found else ": none was kept."))
        say_text(evidence_text(found, width=width, full=full))


def _suspecting(hang: job_pb2.Hang, found: WorkerEvidence) -> WorkerEvidence:
    """The evidence with the suspects of the record: those that were looked at closely may have been others."""
    if found.evidence is None or len(hang.suspect_ranks) < len(hang.suspects):
        return found
    named = {rank.rank for rank in hang.suspect_ranks if rank.worker == found.worker}
    ranks = tuple(replace(rank, suspect=rank.rank in named) for rank in found.evidence.ranks)
    return replace(found, evidence=replace(found.evidence, ranks=ranks))


def _dump_hangs(job: job_pb2.CustomJob, chosen: list[job_pb2.Hang], found: list[WorkerEvidence]) -> None:
    from holdfast._sdk import json_view

    whole = json_view.job(job, workers=False)
    dump(
        {
            "id": job.id,
            "state": whole["state"],
            "health": whole["health"],
            "heldUntil": whole["heldUntil"],
            "hangs": [json_view.plain(each) for each in chosen],
            "evidence": {
                "number": chosen[-1].number if chosen else None,
                "workers": [json_view.evidence(each) for each in found],
            },
        },
        "json",
    )


@click.command()
@job_argument()
@click.option(
    "--native",
    multiple=True,
    type=Count(0),
    metavar="RANK",
    help="Take C frames and children of this rank too; that stops it for a moment.",
)
@_FULL
@_FORMAT
def stacks(word: str, native: tuple[int, ...], full: bool, output: str) -> None:
    """Show where every rank of a running job is now.

    Each is looked at twice, some seconds apart; equal stacks are grouped, the odd ones first. The job goes on.
    """

    async def work(client: Client) -> list[WorkerEvidence]:
        from holdfast.cli.pages.gang import chosen, ranks_of

        job = await job_of(client, word)
        chosen(ranks_of(job.job_spec), (), native, "--native")
        if output != "json":
            count = len(job.workers)
            Console().note(f"looking twice at each rank of {count} worker{'' if count == 1 else 's'} …")
        return [each async for each in client.take_stacks(job.id, native)]

    found = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.hangs.hang_page import evidence_text
    from holdfast.cli.kit.table import terminal_width

    if output == "json":
        dump([json_view.evidence(each) for each in found], "json")
    else:
        say_text(evidence_text(found, width=terminal_width(), full=full))
    if not any(each.evidence for each in found):
        sys.exit(exit_status.OUR_FAILURE)


@click.command("hang-action")
@job_argument()
@click.argument("action", type=click.Choice(("off", "on")))
@click.option("--for", "length", type=duration, metavar="TIME", help="With off: how long from now, such as 2h.")
def hang_action(word: str, action: str, length: float | None) -> None:
    """Turn action on hangs of a job off for a while, or on again.

    For a debugging session, say. While it is off, hangs are still noticed and reported. It stays off through restarts
    of the job and of the controller.
    """
    if (length is None) != (action == "on"):
        raise click.UsageError("Give --for TIME with off, and not with on.")
    _turn(word, length)


@click.command(hidden=True)
@job_argument()
@click.option("--for", "length", type=duration, metavar="TIME", help="How long from now, such as 2h.")
@click.option("--end", is_flag=True, help="End a hold now.")
def hold(word: str, length: float | None, end: bool) -> None:
    """The old name of hang-action."""
    if (length is None) != end:
        raise click.UsageError("Give either --for TIME or --end.")
    new = "on" if end else "off --for TIME"
    Console().note(f"job hold is now: holdfast job hang-action {shell_line([word])} {new}")
    _turn(word, length)


def _turn(word: str, length: float | None) -> None:
    """Action on hangs is off for so many seconds; on where it is None."""
    if length is not None and length <= 0:
        raise click.BadParameter("must be longer than 0 seconds.", param_hint="--for")

    async def work(client: Client) -> job_pb2.CustomJob:
        return (await on_job(client, word, lambda job_id: client.suspend_hang_action(job_id, length or 0.0)))[1]

    job = with_client(work)
    from holdfast.client import TERMINAL

    if job.state in TERMINAL:
        Console().note(f"job {job.id} has ended already; no hang is acted on.")
    elif job.HasField("held_until"):
        Console().note(f"no hang of job {job.id} is acted on until {local(job.held_until.seconds)}.")
    else:
        Console().note(f"hangs of job {job.id} are acted on as it asks.")
