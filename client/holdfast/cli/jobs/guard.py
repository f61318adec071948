"""``holdfast guard``: run a command under Holdfast where another scheduler, or nothing at all, has given the hosts."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.kit.console import Console
from holdfast.cli.kit.parameters import Count, duration
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.guard.run import Request
    from holdfast.v1 import job_pb2

_NO_NEWS = ("placed", "started")
WIDTH = 120
"""Of the pages in the record."""
NO_OTHER_HOST_S = 30
"""Wait for hosts once some are out of service: there are no others, but a daemon that was killed comes back."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--nproc", type=Count(1, 1024), default=1, show_default=True, help="Ranks that each task starts.")
@click.option(
    "--spares",
    type=Count(0),
    default=0,
    help="Tasks without ranks, which take the place of others.  [default: 0]",
)
@click.option("--max-restarts", type=Count(0), help="In-place restarts for each task's failures.  [default: 5]")
@click.option("--restart-on-hang", is_flag=True, help="Relaunch in place when it hangs, instead of only telling.")
@click.option("--warm", is_flag=True, help="Have the program's imports done before a restart in place needs them.")
@click.option(
    "--hang-timeout",
    type=duration,
    help="Silence of the output that counts as a hang, such as 20m.  [default: learned from the job]",
)
@click.option(
    "--grace",
    type=duration,
    help="Time between SIGTERM and SIGKILL, such as 20s.  [default: 10s; under Slurm what its KillWait leaves]",
)
@click.option(
    "--time-limit",
    type=duration,
    help="When the scheduler ends it, from now on, such as 4h.  [default: what Slurm says]",
)
@click.option(
    "--signal",
    metavar="SIGNAL@TIME",
    help="Signal that the ranks get so long before the time limit, such as USR1@5m.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the record.  [default: holdfast-JOB in the current one]",
)
@click.option("--start-timeout", type=duration, default=120.0, help="Longest wait for all tasks.  [default: 2m]")
@click.option("--or-run", is_flag=True, help="Where it can't start, say why, and run COMMAND without it.")
@click.option(
    "--hosts", metavar="HOSTS", help="Log in to these by ssh: a,b[1-3], or @FILE, which names one on each line."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def guard(hosts: str | None, **options: Any) -> None:
    """Run COMMAND and keep it running, with no cluster of ours.

    Write -- before COMMAND. Alone it is one task on this machine; with --hosts, or in a job of PBS or LSF, one on each
    host; under `srun` it is one of the step's tasks, and rank N of the job runs in task N. A rank that fails is
    restarted with all others in place, a hang is noticed and explained, and the exit status is that of the rank that
    failed first. Nothing needs root, a daemon or a shared folder, and nothing is left afterwards but a record.
    """
    from holdfast.guard import run

    options["record"] = str(options["record"]) if options["record"] else None
    if hosts is not None:
        from holdfast.guard import logins, ssh

        text = _file(hosts[1:]) if hosts.startswith("@") else None
        sys.exit(ssh.run(_request(options), logins.logins(hosts, text), options))
    from holdfast.guard import batch_hosts

    request = _request(options)
    try:
        found = batch_hosts.logins_in(os.environ, _node_file, os.uname().nodename)
    except ConfigError as error:
        sys.exit(run.not_started(request, error))
    if found is not None:
        from holdfast.guard import ssh

        Console().note(f"guard: {found.variable} names {len(found.logins)} hosts, which are logged in to by ssh")
        sys.exit(ssh.run(request, found.logins, options))
    sys.exit(run.run(request))


def remote() -> None:
    """Run one task as stdin says, on a host that ``--hosts`` has named."""
    from holdfast.guard import remote

    remote.serve(_request)


def _node_file(name: str) -> str:
    try:
        return Path(name).read_text(errors="replace")
    except OSError as error:
        said = f"the scheduler's list of hosts {name} can't be read ({error.strerror})"
        Console().warning(f"guard: {said}: no host that only it names is logged in to")
        raise


def _file(name: str) -> str:
    try:
        return Path(name).read_text(errors="replace")
    except OSError as error:
        raise ConfigError(f"--hosts: {name}: {error.strerror}.") from error


def _request(options: Mapping[str, Any]) -> Request:
    """The request that the options of the command line make."""
    from holdfast.guard.run import Request, Words

    console = Console()
    warning = _warning(options["signal"])
    command = tuple(options["command"])

    # What is slow to import is so only once it is needed: the daemons load meanwhile.
    def job(tasks: int, grace_s: float | None) -> job_pb2.CustomJob:
        from holdfast.cli.submission.run_spec import RunRequest, job_of
        from holdfast.v1 import spec_pb2

        request = RunRequest(
            command=command,
            replicas=tasks,
            processes_per_worker=options["nproc"],
            max_restarts=options["max_restarts"],
            grace_s=grace_s,
            restart_on_hang=options["restart_on_hang"],
            hang_timeout_s=options["hang_timeout"],
        )
        # Each rank has the environment of its own task.
        made = job_of(request, {}, os.getcwd())
        made.job_spec.scheduling.max_wait_duration.seconds = NO_OTHER_HOST_S
        if options["warm"]:
            made.job_spec.fault_tolerance.warm.mode = spec_pb2.WARM_MODE_AUTO
        return made

    def news(event: job_pb2.WatchJobResponse) -> str:
        from holdfast.cli.pages.event_lines import kind_of, sentence

        return "" if kind_of(event) in _NO_NEWS else sentence(event)

    def status(ended: job_pb2.CustomJob) -> int:
        from holdfast.cli.kit import exit_status
        from holdfast.guard.run import OUR_FAILURE
        from holdfast.v1 import job_pb2

        return OUR_FAILURE if ended.state == job_pb2.JOB_STATE_EXPIRED else exit_status.of_job(ended)

    def page(ended: job_pb2.CustomJob) -> Iterator[str]:
        from holdfast.cli.pages.job_page import page

        return page(ended, time.time(), wide=True, width=WIDTH, colour=False)

    words = Words(
        note=lambda text: console.note(f"guard: {text}"),
        sentence=news,
        page=page,
        evidence=lambda found: _evidence_text(found),
    )
    return Request(
        command=command,
        job=job,
        status=status,
        words=words,
        grace_s=options["grace"],
        time_limit_s=options["time_limit"],
        warning=warning,
        ranks_per_task=options["nproc"],
        spares=options["spares"],
        or_run=options["or_run"],
        record=Path(options["record"]) if options["record"] else None,
        start_timeout_s=options["start_timeout"],
    )


def _warning(text: str | None) -> tuple[str, float] | None:
    """The signal and the seconds in ``USR1@300`` or ``USR1@5m``. Raises ``ConfigError``."""
    if text is None:
        return None
    name, _, before = text.partition("@")
    name = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    try:
        seconds = duration(before)
    except click.BadParameter:
        seconds = 0.0
    if not seconds or name not in signal.Signals.__members__ or name in ("SIGKILL", "SIGSTOP"):
        raise ConfigError(
            f"--signal: {text!r} is not a signal and a time.", fix="Write them as USR1@300 or USR1@5m."
        )
    return name, seconds


def _evidence_text(found: object) -> str:
    from holdfast.cli.hangs.hang_page import evidence_text

    return evidence_text(found, width=WIDTH, full=True)  # type: ignore[arg-type]
