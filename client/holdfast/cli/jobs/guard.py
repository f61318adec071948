"""``holdfast guard``: run a command under Holdfast where another scheduler, or nothing at all, has given the hosts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit import exit_status
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.parameters import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.v1 import job_pb2

_NO_NEWS = ("placed", "started")
WIDTH = 120
"""Of the pages in the record."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--nproc", type=click.IntRange(1, 1024), default=1, show_default=True, help="Ranks that each task starts."
)
@click.option(
    "--max-restarts", type=click.IntRange(0), help="In-place restarts for each task's failures.  [default: 5]"
)
@click.option("--restart-on-hang", is_flag=True, help="Relaunch in place when it hangs, instead of only telling.")
@click.option(
    "--hang-timeout",
    type=duration,
    help="Silence of the output that counts as a hang, such as 20m.  [default: learned from the job]",
)
@click.option("--grace", type=duration, help="Time between SIGTERM and SIGKILL, such as 20s.  [default: 10s]")
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the record.  [default: holdfast-JOB in the current one]",
)
@click.option("--start-timeout", type=duration, default=120.0, help="Longest wait for all tasks.  [default: 2m]")
@click.option("--or-run", is_flag=True, help="Where it can't start, say why, and run COMMAND without it.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def guard(
    command: tuple[str, ...],
    nproc: int,
    max_restarts: int | None,
    restart_on_hang: bool,
    hang_timeout: float | None,
    grace: float | None,
    record: Path | None,
    start_timeout: float,
    or_run: bool,
) -> None:
    """Run COMMAND and keep it running, with no cluster of Holdfast's.

    Write -- before COMMAND. Alone it is one task on this machine; under `srun` it is one of the step's tasks, and rank
    N of the job runs in task N. A rank that fails is restarted with all others in place, a hang is noticed and
    explained, and the exit status is that of the rank that failed first. Nothing needs root, a daemon or a shared
    folder, and nothing is left afterwards but a record.
    """
    from holdfast.cli.jobs.event_lines import kind_of, sentence
    from holdfast.cli.submission.run_spec import RunRequest, job_of
    from holdfast.guard.record import Words
    from holdfast.guard.run import Request, run

    console = Console()

    def job(tasks: int) -> job_pb2.CustomJob:
        request = RunRequest(
            command=command,
            replicas=tasks,
            processes_per_worker=nproc,
            max_restarts=max_restarts,
            grace_s=grace,
            restart_on_hang=restart_on_hang,
            hang_timeout_s=hang_timeout,
        )
        # Each rank has the environment of its own task.
        return job_of(request, {}, os.getcwd())

    def page(ended: job_pb2.CustomJob) -> Iterator[str]:
        from holdfast.cli.jobs.job_page import page

        return page(ended, time.time(), wide=True, width=WIDTH, colour=False)

    words = Words(
        note=lambda text: console.note(f"guard: {text}"),
        sentence=lambda event: "" if kind_of(event) in _NO_NEWS else sentence(event),
        page=page,
        evidence=lambda found: _evidence_text(found),
    )
    sys.exit(
        run(
            Request(
                command=command,
                job=job,
                status=exit_status.of_job,
                words=words,
                ranks_per_task=nproc,
                or_run=or_run,
                record=record,
                start_timeout_s=start_timeout,
            )
        )
    )


def _evidence_text(found: object) -> str:
    from holdfast.cli.hangs.hang_page import evidence_text

    return evidence_text(found, width=WIDTH, full=True)  # type: ignore[arg-type]
