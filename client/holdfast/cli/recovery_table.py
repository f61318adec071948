"""A job's recoveries as a table of its own."""

from __future__ import annotations

import click
from google.protobuf.duration_pb2 import Duration

from holdfast.cli.job_sections import phases_in_words, short
from holdfast.cli.spans import clock
from holdfast.cli.table import Cell, Column, Row, write
from holdfast.v1 import job_pb2

ANSWERS = {
    "PROC_RESTART": "restarted in place",
    "POD_RESCHEDULE": "worker moved",
    "WORKER_RESCHEDULE": "worker moved",
    "JOB_RESCHEDULE": "placed anew",
    "JOB_RESCHEDULE_WITH_TAINT": "placed anew, bad host cordoned",
    "JOB_RESCHEDULE_WITH_CORDON": "placed anew, bad host cordoned",
}
"""What was done, in words; a new one is shown as it was sent."""

COLUMNS = (
    Column("WHEN"),
    Column("ATT.GEN", right=True),
    Column("ENDED BY"),
    Column("TASK", give=True),
    Column("ANSWER", give=True),
    Column("LOST", right=True),
    Column("TIME SPENT", give=True),
)


def write_recoveries(job: job_pb2.CustomJob, now: float) -> None:
    """The table on stdout and what it comes to on stderr; without any recovery, a sentence there."""
    if not job.recoveries:
        click.echo(f"Nothing has interrupted the job {job.id} so far.", err=True)
        return
    write(COLUMNS, [row(each, now) for each in job.recoveries])
    click.echo(summary(job), err=True)


def row(recovery: job_pb2.Recovery, now: float) -> Row:
    """One recovery."""
    over = recovery.HasField("ended_at") or recovery.HasField("lost")
    return [
        clock(recovery.started_at.seconds, now),
        f"{recovery.attempt}.{recovery.generation}",
        recovery.end_reason or "-",
        recovery.end_related_task or "-",
        ANSWERS.get(recovery.end_recover, recovery.end_recover or "-"),
        short(recovery.lost) if over else Cell("going on", "33"),
        phases_in_words(recovery.phases) or "-",
    ]


def summary(job: job_pb2.CustomJob) -> str:
    """``3 recoveries, 2m 10s lost``; only what is over counts as lost."""
    count = len(job.recoveries)
    lost = Duration()
    lost.FromNanoseconds(sum(each.lost.ToNanoseconds() for each in job.recoveries))
    return f"{count} recover{'y' if count == 1 else 'ies'}, {short(lost)} lost"
