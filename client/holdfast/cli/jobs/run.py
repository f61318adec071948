"""``holdfast run``: submit a command, show what it prints, exit as it does."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.jobs.dry_run import tried
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.job_names import job_of, name_dependencies
from holdfast.cli.kit.parameters import Count, job_argument
from holdfast.cli.submission.code_options import items, requirement_items
from holdfast.cli.submission.creating import create
from holdfast.cli.submission.job_options import (
    JobOptions,
    in_one_request,
    job_options,
    machine_options,
    reserve_options,
    restart_options,
    stop_options,
)
from holdfast.cli.submission.packaging import CodeOptions, Packed, packing
from holdfast.cli.submission.unsent import notes, unsent_input
from holdfast.errors import HoldfastError, WrongState

if TYPE_CHECKING:
    from holdfast.cli.submission.run_spec import RunRequest
    from holdfast.client import Client
    from holdfast.v1 import job_pb2


@click.command(context_settings={"allow_interspersed_args": False})
@machine_options
@click.option("--replicas", type=Count(1), default=1, show_default=True, help="Workers.")
@click.option("--processes-per-worker", type=Count(1), help="Ranks of each worker; one per GPU unless given.")
@click.option("--name", default="", help="Display name of the job.")
@click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="A variable for the ranks; NAME alone carries yours."
)
@restart_options
@reserve_options
@job_options
@stop_options
@click.option(
    "--package",
    metavar="DIR",
    help="Send this folder along, and run COMMAND in a copy of it. It is not installed: with code in src, add "
    "--env PYTHONPATH=src.",
)
@click.option(
    "--requirements",
    multiple=True,
    metavar="LIST",
    help="With --package: what to install, with commas, or a file of it, into an environment of the hosts' Python that "
    "has nothing of yours.",
)
@click.option(
    "--extra-packages",
    multiple=True,
    metavar="LIST",
    help="With --package: wheels, archives or folders of your own to install there, with commas.",
)
@click.option("--all", "show_all", is_flag=True, help="Show the output of all ranks.")
@click.option(
    "--pty", "terminal", is_flag=True, help="Give each rank a terminal, rank 0's joined to yours: for breakpoint()."
)
@click.option("--detach", is_flag=True, help="Print the job's id and return.")
@click.option(
    "--dry-run", is_flag=True, help="Check it on the controller, say where it would run, and store nothing."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@in_one_request
def run(
    request: RunRequest,
    package: str | None,
    requirements: tuple[str, ...],
    extra_packages: tuple[str, ...],
    show_all: bool,
    detach: bool,
    dry_run: bool,
    options: JobOptions,
) -> None:
    """Run COMMAND on the cluster and exit as it does.

    Write -- before COMMAND. It runs in the current directory, which must exist on the hosts, or with --package in a
    copy of a folder that need not.

    With --array it runs once for each index, and a line is printed for each as it ends.

    Shows the output of rank 0, and the last lines of the rank that fails first; --all shows that of every rank. With
    --pty Ctrl-C goes to rank 0, Enter ~ . leaves it running, `job attach JOB --rank R` joins the terminal of another
    rank, and a program that fails is not restarted unless --max-restarts says so.
    """
    for option, given in (("--requirements", requirements), ("--extra-packages", extra_packages)):
        if given and package is None:
            raise click.UsageError(f"{option} goes with --package.")
    from holdfast.cli.submission.run_spec import job_of

    pty = request.terminal
    if pty and show_all:
        raise click.UsageError("--pty shows rank 0 alone; see the others with: holdfast logs -f JOB")
    if options.array and (pty or show_all):
        raise click.UsageError("--array makes many jobs; see the output of each with: holdfast logs JOB")
    if pty and not detach and not dry_run:
        check_terminal()
    job = job_of(request, os.environ, os.getcwd())
    options.apply(job)
    with packing() as packed:
        if package is not None:
            code = CodeOptions(
                package,
                requirements=requirement_items(requirements),
                packages=items(extra_packages),
                folder_option="--package",
            )
            packed.give(job, code, keep_directory=bool(request.workdir))
        if dry_run:
            sys.exit(with_client(tried(job, "table", by_run=True, also=[] if pty else unsent_input())))
        sys.exit(with_client(_running(job, packed, detach=detach, show_all=show_all, pty=pty)))


@click.command()
@job_argument()
@click.option("--rank", type=Count(0), default=0, show_default=True, help="Global rank to type to.")
def attach(word: str, rank: int) -> None:
    """Join your terminal to that of a rank.

    For jobs of `run --pty`. Shows the output from the start, and gives the program what you type. Enter ~ . leaves it
    running.
    """

    async def work(client: Client) -> int:
        from holdfast.cli.jobs.following import follow
        from holdfast.cli.pages import gang

        job = await job_of(client, word)
        gang.chosen(gang.ranks_of(job.job_spec), (), (rank,))
        if not any(pool.process_spec.terminal for pool in job.job_spec.worker_pool_specs):
            problem = f"Job {job.id} has no terminal."
            raise HoldfastError(problem, fix=f"See what it prints: holdfast logs -f {job.id}")
        with contextlib.suppress(WrongState):  # it isn't running yet, or has ended
            await client.write_terminal(job.id, b"", rank=rank)  # another user's job may not drive this terminal
        return await follow(client, job, Console(raw=True), terminal=rank)

    check_terminal()
    sys.exit(with_client(work))


def check_terminal() -> None:
    """Raises ``UsageError`` where stdin or stdout is no terminal."""
    if not (os.isatty(0) and os.isatty(1)):
        raise click.UsageError("This needs a terminal, and stdin or stdout is none.")


def _running(
    job: job_pb2.CustomJob, packed: Packed, *, detach: bool, show_all: bool, pty: bool
) -> Callable[[Client], Awaitable[int]]:
    async def work(client: Client) -> int:
        from holdfast.cli.jobs.following import follow

        console = Console(raw=pty)
        for note in [*notes(job, os.environ, by_run=True), *([] if pty else unsent_input())]:
            console.note(note)
        await packed.upload(client, console)
        await name_dependencies(client, job)
        created = await create(client, job, console)
        if detach:
            say(created.array.id or created.id)
            return exit_status.OK
        if created.HasField("array"):
            from holdfast.cli.jobs.waiting import array_ended

            console.note(f"array {created.array.id}: {created.display_name}")
            return await array_ended(client, created)
        console.note(f"job {created.id}: {created.display_name}")
        return await follow(client, created, console, show_all=show_all, terminal=0 if pty else None)

    return work
