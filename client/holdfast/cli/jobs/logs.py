"""``holdfast logs``: what the ranks of a job print."""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.job_names import job_of
from holdfast.cli.kit.parameters import Count, job_argument, moment

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from holdfast.client import Client


@click.command()
@job_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--worker", multiple=True, metavar="NAME", help="Only this worker, such as workerpool0-0.")
@click.option("--rank", multiple=True, type=Count(0), metavar="RANK", help="Only this rank.")
@click.option(
    "--generation",
    type=Count(1),
    help="This launch of the gang, with -f those after it too; the newest unless given.",
)
@click.option("--tail", type=Count(0), metavar="LINES", help="Only the last lines of each stream.")
@click.option("--since", type=moment, metavar="TIME", help="Only what is newer: 10m, or 2026-11-21T04:00:00Z.")
@click.option("--grep", metavar="TEXT", help="Only lines with this text, which the hosts look for.")
@click.option("-i", "--ignore-case", is_flag=True, help="With --grep: a stands for A too.")
def logs(
    word: str,
    follow: bool,
    worker: tuple[str, ...],
    rank: tuple[int, ...],
    generation: int | None,
    tail: int | None,
    since: float | datetime.datetime | None,
    grep: str | None,
    ignore_case: bool,
) -> None:
    """Print what the ranks of a job have written.

    Their stdout comes on stdout, their stderr on stderr. With more than one rank in view each line starts with its
    worker and rank.

    If a host is gone, or has removed its files, its ranks' output comes from the archive below the job's base output
    directory, where there is one, as far as it was copied; a line on stderr says so.
    """

    async def work(client: Client) -> None:
        import anyio

        from holdfast.cli.pages.gang import chosen, ranks_of
        from holdfast.cli.pages.rank_output import RankOutput

        job = await job_of(client, word)
        ranks = chosen(ranks_of(job.job_spec), worker, rank)
        console = Console()
        if not job.generation:
            console.note(f"job {job.id} has not started yet" + (f": {job.wait_reason}" if job.wait_reason else "."))
        output = RankOutput(console, many=len(ranks) > 1, tail=tail is not None)
        chunks = client.stream_logs(
            job.id,
            workers=worker,
            ranks=rank,
            generation=generation or 0,
            follow=follow,
            tail_lines=tail,
            since=_stamp(since),
            contains=grep or "",
            ignore_case=ignore_case,
            on_link=console.on_link(),
        )
        found = unread = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(output.keep_bars_current)
                async with contextlib.aclosing(chunks):
                    async for chunk in chunks:
                        output.show(chunk)
                        found |= bool(chunk.data)
                        unread |= bool(chunk.problem)
                tasks.cancel_scope.cancel()
        finally:
            output.finish()
        if grep and not found and job.generation:
            console.note(_nothing_found(grep, ignore_case, unread=unread))

    with_client(work)


def _nothing_found(text: str, ignore_case: bool, *, unread: bool) -> str:
    has_case = text.lower() != text.upper()
    lines = "no line that could be read" if unread else "no line"
    return f"{lines} holds {text!r}" + ("" if ignore_case or not has_case else " (case counts: -i)")


def _stamp(since: float | datetime.datetime | None) -> Timestamp | None:
    from holdfast._base.proto_values import timestamp

    if since is None:
        return None
    return timestamp(since.timestamp() if isinstance(since, datetime.datetime) else time.time() - since)
