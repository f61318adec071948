"""Jobs as tables."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._base.job_file.secret_names import hide_secrets
from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds, short_name
from holdfast.cli.kit.console import OUT, Console, coloured, say, styled
from holdfast.cli.kit.durations import age, local, span
from holdfast.cli.kit.table import Cell, Column, Row, write
from holdfast.cli.pages.event_lines import title_of
from holdfast.cli.pages.gang import gpus_of, ranks_of
from holdfast.v1 import job_pb2

STATE_STYLES = {
    "QUEUED": "33",
    "PENDING": "33",
    "RUNNING": "36",
    "SUCCEEDED": "32",
    "FAILED": "31",
    "EXPIRED": "31",
    "CANCELLING": "35",
    "CANCELLED": "35",
    "PAUSED": "35",
}

_COLUMNS = (
    Column("ID"),
    Column("NAME", give=True),
    Column("STATE"),
    Column("RANKS", right=True),
    Column("GPUS", right=True),
    Column("STEP", right=True),
    Column("AGE", right=True),
    Column("REASON", give=True),
)
_WIDE = (
    *_COLUMNS[:-1],
    Column("OWNER", give=True),
    Column("PROJECT", give=True),
    Column("PRIO", right=True),
    Column("ATT", right=True),
    Column("GEN", right=True),
    Column("RAN", right=True),
    _COLUMNS[-1],
)


def without_secrets(job: job_pb2.CustomJob) -> job_pb2.CustomJob:
    """A copy of the job without the values of variables that look secret."""
    shown = job_pb2.CustomJob()
    shown.CopyFrom(job)
    hide_secrets(shown.job_spec)
    return shown


def state_cell(state: int) -> Cell:
    """A job's state, without its prefix, in its colour."""
    name = short_name(job_pb2.JobState, state)
    return Cell(name, STATE_STYLES.get(name, ""))


def reason(job: job_pb2.CustomJob) -> str:
    """The job in one line, as its controller puts it; a controller of an older release says why it waits or failed."""
    return job.summary.headline or failure(job) or job.wait_reason


def failure(job: job_pb2.CustomJob) -> str:
    """Why the job ended without success; empty where it didn't."""
    who = f"rank {job.error.rank}: " if job.error.HasField("rank") else ""
    return f"{who}{job.error.raised}" if job.error.raised else job.error.message


def ran(job: job_pb2.CustomJob, now: float) -> float | None:
    """Seconds since the first launch, up to the end; ``None`` before it, and while it waits for another."""
    waits = job.state in (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_PAUSED)
    if waits or not job.HasField("start_time"):
        return None
    end = seconds(job.end_time) if job.HasField("end_time") else now
    return end - seconds(job.start_time)


def _row(job: job_pb2.CustomJob, now: float) -> Row:
    """A cell for each column of the wide table."""
    ran_s = ran(job, now)
    row: list[Cell | str] = [
        Cell(job.id, "1"),
        job.display_name,
        state_cell(job.state),
        str(len(ranks_of(job.job_spec))),
        str(gpus_of(job.job_spec) or "-"),
        steps(job) or "-",
        age(now - job.create_time.seconds),
    ]
    ran_for = span(ran_s) if ran_s is not None else "-"
    return [
        *row,
        job.owner,
        project_of(job),
        str(priority_of(job)),
        str(job.attempt),
        str(job.generation),
        ran_for,
        reason(job),
    ]


def steps(job: job_pb2.CustomJob) -> str:
    """Steps that its training has done, of how many, such as ``1200/5000``; empty where none is known."""
    if not job.HasField("step"):
        return ""
    return f"{job.step:.0f}/{job.step_total:.0f}" if job.HasField("step_total") else f"{job.step:.0f}"


def project_of(job: job_pb2.CustomJob) -> str:
    """Project charged for the job; older controllers don't send it."""
    return job.project or "default"


def priority_of(job: job_pb2.CustomJob) -> int:
    """The job's priority, from 1 to 3."""
    return job.job_spec.scheduling.priority or 1


def table(jobs: Sequence[job_pb2.CustomJob], now: float, *, wide: bool) -> tuple[list[Column], list[Row]]:
    """Columns, and a row a job in the order given. ``wide`` has all columns, else those that tell something."""
    unusual = {
        "STEP": any(job.HasField("step") for job in jobs),
        "PROJECT": any(project_of(job) != "default" for job in jobs),
        "PRIO": any(priority_of(job) != 1 for job in jobs),
        "ATT": any(job.attempt > 1 for job in jobs),
    }
    shown = [
        index
        for index, column in enumerate(_WIDE)
        if unusual.get(column.title, column in _COLUMNS) or (wide and column.title != "STEP")
    ]
    rows = [_row(job, now) for job in jobs]
    return [_WIDE[index] for index in shown], [[row[index] for index in shown] for row in rows]


def write_jobs(jobs: Sequence[job_pb2.CustomJob], now: float, *, wide: bool, hint: str) -> None:
    """The table on stdout, or, where there is nothing to show, ``hint`` on stderr."""
    if not jobs:
        say(hint, err=True)
        return
    write(*table(jobs, now, wide=wide))


def write_events(events: Sequence[job_pb2.WatchJobResponse], *, wide: bool) -> None:
    """A job's history as a table."""

    columns = [Column("TIME"), Column("EVENT"), Column("STATE"), Column("MESSAGE", give=True)]
    if wide:
        columns.insert(0, Column("CURSOR", right=True))
    lines: list[Row] = []
    for event in events:
        row: list[Cell | str] = [local(event.time.seconds), title_of(event), state_cell(event.state), event.message]
        lines.append([str(event.cursor), *row] if wide else row)
    if not lines:
        Console().note("no events.")
        return
    write(columns, lines)


def event_line(event: job_pb2.WatchJobResponse) -> str:
    """One event as a line of a running history."""
    colour = coloured(OUT)
    state = state_cell(event.state)
    text = " ".join(event.message.split()) or title_of(event)
    return "  ".join(
        (
            styled(local(event.time.seconds), "2", colour=colour),
            styled(f"{state.text:<10}", state.style, colour=colour),
            one_line(text),
        )
    )
