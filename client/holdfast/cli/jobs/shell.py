"""``holdfast job shell``: a shell or a command beside a rank of a running job."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.durations import local
from holdfast.cli.kit.job_names import job_of
from holdfast.cli.kit.parameters import Count, job_argument

if TYPE_CHECKING:
    from holdfast.client import Client

HOLD_S = 30 * 86_400.0
"""A hold that no one ends is over by then."""


@click.command()
@job_argument()
@click.option("--rank", type=Count(0), default=0, show_default=True, help="Global rank to be beside.")
@click.option("--hold", is_flag=True, help="Keep a hung job as it is until you release it.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(word: str, rank: int, hold: bool, command: tuple[str, ...]) -> None:
    """Open a shell beside a rank, or run COMMAND there.

    Write -- before COMMAND. It has the rank's account, environment, directory, limits, and its container or private
    /dev/shm. On a terminal it gets one; otherwise stdin, stdout and stderr are passed on. Exits as the command does. It
    ends with the ranks, which never wait for it; Enter ~ . ends it too. The job has to allow it: enableWebAccess.
    """
    on_terminal = os.isatty(0) and os.isatty(1)

    async def work(client: Client) -> int:
        from holdfast.cli.jobs.shell_session import ShellSession

        job = await job_of(client, word)
        console = Console(raw=on_terminal)
        if hold:
            held = await client.suspend_hang_action(job.id, HOLD_S)
            if held.HasField("held_until"):
                until = local(held.held_until.seconds)
                console.note(f"no hang of job {job.id} is acted on until {until}.")
                console.note(f"release it: holdfast job hang-action {job.id} on")
        return await ShellSession(client, job.id, console, on_terminal=on_terminal).run(command, rank)

    sys.exit(with_client(work))
