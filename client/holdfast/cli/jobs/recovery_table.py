"""A job's recoveries as a table of its own."""

from __future__ import annotations

import click
from google.protobuf.duration_pb2 import Duration

from holdfast.cli.jobs.job_sections import answer_in_words, short, with_times
from holdfast.cli.kit.console import OUT, coloured
from holdfast.cli.kit.durations import clock
from holdfast.cli.kit.table import Cell, Column, Row, terminal_width
from holdfast.v1 import job_pb2

COLUMNS = (
    Column("WHEN"),
    Column("ATT.GEN", right=True),
    Column("ENDED BY"),
    Column("TASK", give=True),
    Column("ANSWER", give=True),
    Column("LOST", right=True),
)


def write_recoveries(job: job_pb2.CustomJob, now: float) -> None:
    """The table on stdout and what it comes to on stderr; without any recovery, a sentence there."""
    if not job.recoveries:
        click.echo(f"Nothing has interrupted the job {job.id} so far.", err=True)
        return
    click.echo(table(job, now, width=terminal_width(), colour=coloured(OUT)), nl=False, color=True)
    click.echo(summary(job), err=True)


def table(job: job_pb2.CustomJob, now: float, *, width: int | None, colour: bool) -> str:
    """A row for each; where lines are too short, its times stand below it."""
    rows = [row(each, now) for each in job.recoveries]
    return with_times(COLUMNS, rows, [each.phases for each in job.recoveries], width=width, colour=colour)


def row(recovery: job_pb2.Recovery, now: float) -> Row:
    """One recovery."""
    over = recovery.HasField("ended_at") or recovery.HasField("lost")
    return [
        clock(recovery.started_at.seconds, now),
        f"{recovery.attempt}.{recovery.generation}",
        recovery.end_reason or "-",
        recovery.end_related_task or "-",
        answer_in_words(recovery),
        short(recovery.lost) if over else Cell("going on", "33"),
    ]


def summary(job: job_pb2.CustomJob) -> str:
    """``3 recoveries, 2m 10s lost``; only what is over counts as lost, and what goes on is said to."""
    count = len(job.recoveries)
    recoveries = f"{count} recover{'y' if count == 1 else 'ies'}"
    over = [each for each in job.recoveries if each.HasField("lost")]
    if not over:
        return f"{recoveries}, going on"
    more = "" if len(over) == count else f" so far, {count - len(over)} of them going on"
    lost = Duration()
    lost.FromNanoseconds(sum(each.lost.ToNanoseconds() for each in job.recoveries))
    return f"{recoveries}, {short(lost)} lost{more}"
