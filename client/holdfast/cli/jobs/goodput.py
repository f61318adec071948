"""``holdfast goodput``: what GPUs spent their time on, of one job or of all, and whether the log says the same."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import click

from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import say, say_text
from holdfast.cli.kit.job_names import on_job
from holdfast.cli.kit.output import dump
from holdfast.cli.kit.parameters import job_word, utc_day
from holdfast.cli.kit.table import terminal_width, write
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2, job_pb2

_BY = ("project", "owner", "host", "model", "week")
_HOUR_MS = 3_600_000
_DAY_S = 86_400
_Times = Literal["mtbf", "mtbf_low", "mtbf_high", "mttr", "mttr_low", "mttr_high"]


@click.command()
@click.argument("words", metavar="[verify] [JOB]", nargs=-1, type=job_word)
@click.option("--by", type=click.Choice(_BY), help="Add up by this, over all jobs. [default: project]")
@click.option(
    "--since", type=utc_day, metavar="SPAN|TIME", help="From this UTC day on: 30d, or 2026-11-01. Without JOB."
)
@click.option("--until", type=utc_day, metavar="SPAN|TIME", help="Up to and without this UTC day. Without JOB.")
@click.option("-o", "--output", type=click.Choice(("table", "json", "csv")), default="table", show_default=True)
def goodput(words: tuple[str, ...], by: str | None, since: Any, until: Any, output: str) -> None:
    """Show what GPUs spent their time on.

    Of a JOB: each category with its cause and who pays, which add up to its allocated GPU time exactly. Without JOB:
    GPU hours by project, owner and project, host, GPU model or week. `holdfast goodput verify JOB` computes the job's
    figures again from its events and exits with 125 where they differ; without JOB, those of all jobs that you see.
    """
    verify = bool(words) and words[0] == "verify"
    names = words[1:] if verify else words
    if len(names) > 1:
        raise click.UsageError("Name one job.")
    if words and (by or since is not None or until is not None):
        raise click.UsageError("--by, --since and --until are for sums over all jobs: leave JOB and verify out.")
    if verify and output != "table":
        raise click.UsageError("verify prints a sentence; its exit status is for scripts: leave -o out.")
    if verify and not names:
        _verify_all()
    elif names:
        _show_job(names[0], output, verify=verify)
    else:
        _show_all(by or "project", _day(since), _day(until), output)


def _day(given: float | datetime.datetime | None) -> float | None:
    """The begin of the UTC day that was given, or in which the time lies: of two spans that meet none has it twice."""
    if given is None:
        return None
    at = given.timestamp() if isinstance(given, datetime.datetime) else time.time() - given
    return at - at % _DAY_S


def _show_job(word: str, output: str, *, verify: bool) -> None:
    async def work(client: Client) -> tuple[str, job_pb2.GetGoodputResponse]:
        return await on_job(client, word, lambda job_id: client.goodput(job_id, verify=verify))

    job_id, found = with_client(work)
    if verify:
        say(f"{one_line(job_id)}: {one_line(found.verified) or 'the log gives the same sums'}")
        if found.verified:
            sys.exit(exit_status.OUR_FAILURE)
        return
    from holdfast._sdk import json_view
    from holdfast.cli.pages.goodput_page import page

    if output == "json":
        dump(json_view.goodput(job_id, found), "json")
    elif output == "csv":
        rows = [(line.category, line.cause, line.payer, line.ms / 1000) for line in found.lines]
        say_text(_csv(("category", "cause", "payer", "rank_seconds" if found.ranks else "gpu_seconds"), rows))
    else:
        say(*page(job_id, found, terminal_width()))


def _verify_all() -> None:
    async def work(client: Client) -> tuple[int, list[str]]:
        jobs = [job.id async for job in client.list_jobs()]
        wrong = []
        for job_id in jobs:
            with contextlib.suppress(NotFound):  # deleted since
                if found := (await client.goodput(job_id, verify=True)).verified:
                    wrong.append(f"{one_line(job_id)}: {one_line(found)}")
        return len(jobs), wrong

    count, wrong = with_client(work)
    say(*wrong, f"{count - len(wrong)} of {count} jobs: the log gives the same sums")
    if wrong:
        sys.exit(exit_status.OUR_FAILURE)


def _show_all(by: str, since: float | None, until: float | None, output: str) -> None:
    async def work(client: Client) -> cluster_pb2.SumGoodputResponse:
        return await client.sum_goodput(by, since, until)

    found = with_client(work)
    from holdfast._sdk import json_view

    if output == "json":
        dump(json_view.goodput_sums(by, found), "json")
        return
    if output == "csv":
        say(*_missing(found), err=True)
        of_owners = by == "owner"
        if by == "host":
            say_text(_host_csv(found))
            return
        title = (by, *["project"] * of_owners, "gpu_model", "unit", "category", "payer", "hours")
        units = ("GPU", "rank")
        lines = [
            (
                *(row.name, *[row.project] * of_owners, row.model, units[row.ranks]),
                *(row.category, row.payer, row.ms / _HOUR_MS),
            )
            for row in found.rows
        ]
        say_text(_csv(title, lines))
        return
    from holdfast.cli.pages.goodput_page import sums_table

    if not found.rows:
        say("No job has held a host in that time.")
    else:
        write(*sums_table(found.rows, by, terminal_width()))
    if found.hosts:
        from holdfast.cli.kit import reliability

        days = "in these days" if since is not None or until is not None else "of the last 90 days"
        say("", f"Failures of hosts {days}, with intervals that hold the true mean 95 times in 100:")
        write(reliability.COLUMNS, reliability.rows(found.hosts))
    say(*_missing(found))


def _missing(found: cluster_pb2.SumGoodputResponse) -> Iterator[str]:
    """Why the sums are less than what was asked for, a sentence each."""
    if found.HasField("complete_since"):
        began = found.complete_since.ToJsonString()
        yield f"Time before {began} is not in it: the ledger began then, with an upgrade."
    if found.truncated:
        yield "There is more: ask for fewer days."


def _host_csv(found: cluster_pb2.SumGoodputResponse) -> str:
    """Hours of each host with its failures, which are the same in all its rows; empty where nothing is known."""
    known = {each.name: each.reliability for each in found.hosts}
    columns: tuple[_Times, ...] = ("mtbf", "mtbf_low", "mtbf_high", "mttr", "mttr_low", "mttr_high")
    title = ("host", "gpu_model", "unit", "category", "payer", "hours", "failures")
    units = ("GPU", "rank")
    lines: list[tuple[Any, ...]] = [
        (row.name, row.model, units[row.ranks], row.category, row.payer, row.ms / _HOUR_MS) for row in found.rows
    ]
    idle = sorted(known.keys() - {row.name for row in found.rows})
    lines += [(name, "", "", "", "", 0) for name in idle]
    filled = []
    for line in lines:
        host = known.get(line[0])
        if host is None:
            filled.append((*line, "", *("" for _ in columns), ""))
            continue
        times = [seconds(getattr(host, name)) / 3600 if host.HasField(name) else "" for name in columns]
        filled.append((*line, host.failures, *times, "yes" if host.lemon else "no"))
    return _csv((*title, *(f"{name}_hours" for name in columns), "lemon"), filled)


def _csv(title: tuple[str, ...], rows: list[Any]) -> str:
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(title)
    writer.writerows([[one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows])
    return held.getvalue().rstrip("\n")
