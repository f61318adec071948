"""A job's recoveries: one table, on the job's page and by itself, and what they cost in all."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration

from holdfast._base.proto_values import seconds
from holdfast.cli.kit.console import OUT, coloured, say, say_text
from holdfast.cli.kit.durations import clock, span
from holdfast.cli.kit.table import Cell, Column, Row, cell_len, render, terminal_width
from holdfast.v1 import job_pb2

ANSWERS = {
    "PROC_RESTART": "restarted in place",
    "POD_RESCHEDULE": "worker moved",
    "WORKER_RESCHEDULE": "worker moved",
    "JOB_RESCHEDULE": "placed again",
    "JOB_RESCHEDULE_WITH_TAINT": "placed again, bad host cordoned",
    "JOB_RESCHEDULE_WITH_CORDON": "placed again, bad host cordoned",
}
"""What was done about a failure, in words; a new one is shown as it was sent."""
_COLUMNS = (
    Column("ATT", right=True),
    Column("GEN", right=True),
    Column("STARTED"),
    Column("LOST", right=True),
    Column("REASON"),
    Column("CAUSED BY", give=True),
    Column("ANSWER", give=True),
)


def write_recoveries(job: job_pb2.CustomJob, now: float) -> None:
    """The table on stdout and what it comes to on stderr; without any recovery, a sentence there."""
    if not job.recoveries:
        say(f"Nothing has interrupted the job {job.id} so far.", err=True)
        return
    shown = table(job.recoveries, now, width=terminal_width(), colour=coloured(OUT))
    say_text(shown)
    say(summary(job), err=True)


def table(recoveries: Sequence[job_pb2.Recovery], now: float, *, width: int | None, colour: bool) -> str:
    """A row for each. Where the time went stands in a last column, or below its row where lines are too short."""
    # The attempt only where there was more than one.
    first = 0 if any(each.attempt > 1 for each in recoveries) else 1
    columns, rows = _COLUMNS[first:], [row(each, now)[first:] for each in recoveries]
    spent = [_phases_in_words(each.phases) for each in recoveries]
    whole_columns = [*columns, Column("TIME SPENT")]
    whole = [[*line, times or "-"] for line, times in zip(rows, spent, strict=True)]
    plain = render(whole_columns, whole, width=None, colour=False)
    if width is None or all(cell_len(line) <= width for line in plain.splitlines()):
        return render(whole_columns, whole, width=width, colour=colour)
    head, *lines = render(columns, rows, width=width, colour=colour).splitlines(keepends=True)
    below = [f"     {times}\n" if times else "" for times in spent]
    return head + "".join(f"{line}{more}" for line, more in zip(lines, below, strict=True))


def row(recovery: job_pb2.Recovery, now: float) -> Row:
    """Row of one recovery."""
    over = recovery.HasField("ended_at") or recovery.HasField("lost")
    return [
        str(recovery.attempt),
        str(recovery.generation),
        clock(recovery.started_at.seconds, now),
        span(seconds(recovery.lost)) if over else Cell("going on", "33"),
        recovery.end_reason or "-",
        (recovery.end_related_task or "-") + " (injected)" * recovery.injected,
        ANSWERS.get(recovery.end_recover, recovery.end_recover or "-") + _how(recovery),
    ]


def _how(recovery: job_pb2.Recovery) -> str:
    """``, warm`` or ``, cold`` where the job asks for warm starts, and how many ranks went on in their process."""
    if recovery.in_process_ranks:
        ranks = f", {recovery.in_process_ranks} rank{'s' * (recovery.in_process_ranks > 1)} in process"
        return ranks if recovery.warm else ranks + ", others cold"
    return (", warm" if recovery.warm else ", cold") if recovery.HasField("warm") else ""


def summary(job: job_pb2.CustomJob) -> str:
    """``3 recoveries, 2m 10s lost``; only finished ones count as lost; a running one is named."""
    count = len(job.recoveries)
    recoveries = f"{count} recover{'y' if count == 1 else 'ies'}"
    over = [each for each in job.recoveries if each.HasField("lost")]
    if not over:
        return f"{recoveries}, going on"
    more = "" if len(over) == count else f" so far, {count - len(over)} of them going on"
    lost = Duration()
    lost.FromNanoseconds(sum(each.lost.ToNanoseconds() for each in job.recoveries))
    return f"{recoveries}, {span(seconds(lost))} lost{more}"


def _phases_in_words(phases: job_pb2.RecoveryPhases) -> str:
    """Phases by duration: ``stop 2.9s, start 110ms``."""
    each = (
        ("detect", phases.detect),
        ("diagnose", phases.diagnose),
        ("stop", phases.stop),
        ("start", phases.start),
        ("catch up", phases.catch_up),
    )
    return ", ".join(f"{name} {span(seconds(spent))}" for name, spent in each if spent.ToNanoseconds() >= 500_000)
