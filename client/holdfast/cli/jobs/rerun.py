"""``holdfast job rerun``: a job once more, as it was or with changes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.foreign_words import BEHIND_PROGRAM
from holdfast.cli.kit.job_names import job_of, name_dependencies
from holdfast.cli.kit.parameters import Count, job_argument
from holdfast.cli.submission.creating import create
from holdfast.cli.submission.job_options import (
    JobOptions,
    check_detached,
    detach_option,
    in_one_request,
    job_options,
    machine_options,
    reserve_options,
    restart_options,
    stop_options,
)

if TYPE_CHECKING:
    from holdfast.cli.submission.run_spec import RunRequest
    from holdfast.client import Client


class _Rerun(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            ctx.meta[BEHIND_PROGRAM] = self._has_program(ctx, given)
            raise

    def _has_program(self, ctx: click.Context, args: list[str]) -> bool:
        """Whether words of the program come before the first option that there isn't."""
        known: dict[str, object] = {}
        for count in range(len(args)):
            with contextlib.suppress(click.BadOptionUsage):  # its value follows
                try:
                    known = self.make_parser(ctx).parse_args(args[: count + 1])[0]
                except click.NoSuchOption:
                    break
        found = known.get("command")
        return isinstance(found, (tuple, list)) and len(found) > 0


@click.command(cls=_Rerun)
@job_argument()
@click.option("--name", default="", help="Display name, in place of the job's.")
@click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="A variable for the ranks; NAME alone carries yours."
)
@machine_options
@click.option("--replicas", type=Count(1), help="Workers; for jobs whose workers are all alike.")
@click.option("--processes-per-worker", type=Count(1), help="Ranks of each worker.")
@reserve_options
@restart_options
@job_options
@stop_options
@click.option("--wait", is_flag=True, help="Show the job's output and exit as it does.")
@click.option("--all", "show_all", is_flag=True, help="With --wait: show the output of all ranks.")
@detach_option
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@in_one_request
def rerun(word: str, request: RunRequest, options: JobOptions, *, wait: bool, show_all: bool, detach: bool) -> None:
    """Submit a job again, with the changes that are asked for.

    The new job has the same spec, labels and packaged code, and reads the same secrets; its label rerun-of is the id
    of the old one. What no option names stays as it was; what differs is printed. --gpus keeps one rank for each GPU
    where there was one. Write -- before COMMAND, which every worker then runs.
    """
    check_detached(detach, wait=wait)
    sys.exit(with_client(_submission(word, request, options, wait=wait, show_all=show_all)))


for _option in rerun.params:  # what isn't named is as it was
    if isinstance(_option, click.Option) and _option.help:
        _option.help = _option.help.partition("  [default:")[0]


def _submission(
    word: str, changes: RunRequest, options: JobOptions, *, wait: bool, show_all: bool
) -> Callable[[Client], Awaitable[int]]:
    async def work(client: Client) -> int:
        from holdfast.cli.submission.spec_changes import again, differences

        console = Console()
        old = await job_of(client, word)
        new = again(old, changes, os.environ, os.getcwd())
        options.apply(new)
        if missing := len(old.job_spec.notifications) - len(new.job_spec.notifications):
            receivers = "1 receiver" if missing == 1 else f"{missing} receivers"
            console.warning(
                f"notifications: {receivers} left out: a URL is shown, and kept, without its secret part"
            )
        await name_dependencies(client, new)
        created = await create(client, new, console)
        lines = differences(old, new)
        console.note(
            f"job {created.array.id or created.id} is job {old.id} again"
            + ("; what differs:" if lines else ", unchanged.")
        )
        for line in lines:
            console.note(f"  {line}")
        if not wait:
            say(created.array.id or created.id)
            follow_it = (
                f"holdfast wait {created.array.id}" if created.array.id else f"holdfast logs -f {created.id}"
            )
            console.note(f"follow it with: {follow_it}")
            return exit_status.OK
        if created.HasField("array"):
            from holdfast.cli.jobs.waiting import array_ended

            return await array_ended(client, created)
        from holdfast.cli.jobs.following import follow

        return await follow(client, created, console, show_all=show_all)

    return work
