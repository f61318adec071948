"""Sections of a job's page that are tables of what was done about it: its hangs and its recoveries."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from google.protobuf.duration_pb2 import Duration

from holdfast.cli.hangs.hang_page import outcome_cell
from holdfast.cli.kit.durations import clock, span
from holdfast.cli.kit.table import Cell, Column, Row, cell_len, printable, render
from holdfast.v1 import job_pb2

_MOST = 10
ANSWERS = {
    "PROC_RESTART": "restarted in place",
    "POD_RESCHEDULE": "worker moved",
    "WORKER_RESCHEDULE": "worker moved",
    "JOB_RESCHEDULE": "placed anew",
    "JOB_RESCHEDULE_WITH_TAINT": "placed anew, bad host cordoned",
    "JOB_RESCHEDULE_WITH_CORDON": "placed anew, bad host cordoned",
}
"""What was done about a failure, in words; a new one is shown as it was sent."""


def hangs_section(job: job_pb2.CustomJob, now: float, *, wide: bool, width: int | None, colour: bool) -> str:
    """The hangs as a table, the newest one in words, and where to read more; empty without any."""
    if not job.hangs:
        return ""
    hidden = 0 if wide else max(0, len(job.hangs) - _MOST)
    columns = [Column("#", right=True), Column("GEN", right=True), Column("STILL SINCE"), Column("NOTICED")]
    columns += [Column("RULE"), Column("OUTCOME"), Column("SUSPECT", give=True)]
    lines: list[Row] = [
        [
            str(hang.number),
            str(hang.generation),
            clock(hang.since.seconds, now),
            f"after {span(hang.noticed_at.ToNanoseconds() / 1e9 - hang.since.ToNanoseconds() / 1e9)}",
            hang.rule,
            outcome_cell(hang),
            ", ".join(hang.suspects) or "-",
        ]
        for hang in job.hangs[hidden:]
    ]
    text = left_out(hidden) + indented(columns, lines, width=width, colour=colour)
    return text + "".join(f"{line}\n" for line in _newest(job, width))


def _newest(job: job_pb2.CustomJob, width: int | None) -> Iterator[str]:
    hang = job.hangs[-1]
    for text in (hang.sentence, hang.stacks and f"Its stacks: {hang.stacks}", hang.note):
        if text:
            yield from textwrap.wrap(
                printable(text), width or 1_000_000, initial_indent="  ", subsequent_indent="    "
            )
    yield f"  more:  holdfast job hangs {job.id}"


def recoveries_section(job: job_pb2.CustomJob, now: float, *, wide: bool, width: int | None, colour: bool) -> str:
    """The recoveries as a table, empty without any. Where lines are too short for it, times go below their row."""
    if not job.recoveries:
        return ""
    hidden = 0 if wide else max(0, len(job.recoveries) - _MOST)
    kept = job.recoveries[hidden:]
    columns = [Column("GEN", right=True), Column("STARTED"), Column("LOST", right=True), Column("REASON")]
    columns += [Column("CAUSED BY", give=True), Column("ANSWER", give=True)]
    lines = [_recovery(each, now) for each in kept]
    room = None if width is None else width - 2
    text = with_times(columns, lines, [each.phases for each in kept], width=room, colour=colour)
    return left_out(hidden) + "".join(f"  {line}\n" for line in text.splitlines())


def with_times(
    columns: Sequence[Column],
    lines: Sequence[Row],
    phases: Sequence[job_pb2.RecoveryPhases],
    *,
    width: int | None,
    colour: bool,
) -> str:
    """A table of recoveries and where their time went: in a last column, or below its row where lines are short."""
    spent = [phases_in_words(each) for each in phases]
    whole_columns = [*columns, Column("TIME SPENT")]
    whole = [[*line, times or "-"] for line, times in zip(lines, spent, strict=True)]
    plain = render(whole_columns, whole, width=None, colour=False)
    if width is None or all(cell_len(line) <= width for line in plain.splitlines()):
        return render(whole_columns, whole, width=width, colour=colour)
    head, *rows = render(columns, lines, width=width, colour=colour).splitlines(keepends=True)
    below = [f"     {times}\n" if times else "" for times in spent]
    return head + "".join(f"{row}{more}" for row, more in zip(rows, below, strict=True))


def _recovery(recovery: job_pb2.Recovery, now: float) -> list[Cell | str]:
    return [
        str(recovery.generation),
        clock(recovery.started_at.seconds, now),
        short(recovery.lost) if recovery.HasField("lost") else "going on",
        recovery.end_reason,
        recovery.end_related_task,
        answer_in_words(recovery),
    ]


def answer_in_words(recovery: job_pb2.Recovery) -> str:
    """What was done about the failure."""
    return ANSWERS.get(recovery.end_recover, recovery.end_recover or "-")


def phases_in_words(phases: job_pb2.RecoveryPhases) -> str:
    """What took time: ``stop 2.9s, start 110ms``."""
    each = (
        ("detect", phases.detect),
        ("diagnose", phases.diagnose),
        ("stop", phases.stop),
        ("start", phases.start),
        ("catch up", phases.catch_up),
    )
    return ", ".join(f"{name} {short(spent)}" for name, spent in each if spent.ToNanoseconds() >= 500_000)


def left_out(count: int) -> str:
    """A line that says so, where older rows are not shown."""
    return f"  {count} earlier ones are left out; see them with -o wide\n" if count else ""


def indented(columns: Sequence[Column], lines: Sequence[Row], *, width: int | None, colour: bool) -> str:
    """A table, two cells from the left."""
    room = None if width is None else width - 2
    return "".join("  " + line + "\n" for line in render(columns, lines, width=room, colour=colour).splitlines())


def short(duration: Duration) -> str:
    """``110ms``, ``2.9s``, ``3m 12s``."""
    seconds = duration.ToNanoseconds() / 1e9
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else span(seconds)
