"""``holdfast host …``."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import click

from holdfast.cli import exit_status
from holdfast.cli.calls import with_client
from holdfast.cli.commands import Commands
from holdfast.cli.console import Console
from holdfast.cli.output import json_line, output_option, show_list, show_one
from holdfast.cli.parameters import duration
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.client import Client
    from holdfast.v1 import host_pb2

_CHECKPOINT_DEADLINE_S = 1800.0


@click.group(cls=Commands)
def host() -> None:
    """Look at hosts, let them in, and keep work off them."""


@host.command("list")
@output_option
def list_(output: str) -> None:
    """List the hosts."""

    async def work(client: Client) -> list[host_pb2.Host]:
        return await client.list_hosts()

    found = with_client(work)
    from holdfast import view
    from holdfast.cli.host_tables import write_hosts

    show_list(
        found,
        output,
        view=view.host,
        name=lambda host: host.name,
        table=lambda hosts, wide: write_hosts(hosts, time.time(), wide=wide),
    )


@host.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one host with its GPUs."""

    async def work(client: Client) -> host_pb2.Host:
        return await client.get_host(name)

    found = with_client(work)
    from holdfast import view
    from holdfast.cli.host_tables import write_host

    show_one(
        found,
        output,
        view=view.host,
        name=lambda host: host.name,
        page=lambda host, wide: write_host(host, time.time(), wide=wide),
    )


@host.command()
@click.argument("name", nargs=-1, required=True)
@click.option("--reason", default="", help="Why, for others to read.")
def cordon(name: tuple[str, ...], reason: str) -> None:
    """Let hosts take no new work.

    What runs there goes on.
    """
    _each(name, "is cordoned", lambda client, each: client.cordon(each, reason))


@host.command()
@click.argument("name", nargs=-1, required=True)
def uncordon(name: tuple[str, ...]) -> None:
    """Let hosts take work again."""
    _each(name, "takes work again", lambda client, each: client.uncordon(each))


@host.command()
@click.argument("name")
@click.option(
    "--deadline",
    type=duration,
    help="Time that work gets to end or to save, such as 30m.  [default: none; 30m with --at-checkpoint]",
)
@click.option("--at-checkpoint", is_flag=True, help="Move each job as soon as it has saved a checkpoint.")
@click.option("--reason", default="", help="Why, for others to read.")
@click.option("--wait", is_flag=True, help="Return once nothing runs there any more.")
def drain(name: str, deadline: float | None, at_checkpoint: bool, reason: str, wait: bool) -> None:
    """Empty a host of its work, and let it take no new one.

    Its work is waited for; with a deadline, what is still there then goes on elsewhere. `holdfast host uncordon`
    lets it take work again, and ends a drain.
    """
    from holdfast.cli.draining import left_in_words, wait_until_empty

    if at_checkpoint and deadline is None:
        deadline = _CHECKPOINT_DEADLINE_S

    async def work(client: Client) -> bool:
        console = Console()
        host = await client.drain(name, reason, deadline_s=deadline, at_checkpoint=at_checkpoint)
        going_on = "being " if host.workers or host.job_ids else ""
        console.note(f"host {name} is {going_on}drained: {left_in_words(host)}")
        return await wait_until_empty(client, host, console) if wait and host.workers else True

    if not with_client(work):
        sys.exit(exit_status.OUR_FAILURE)


@host.command()
@click.argument("name")
@click.option("--yes-it-is-off", is_flag=True, help="You know that nothing of its work runs any more.")
@click.option("--reason", default="", help="Why, for others to read.")
def fence(name: str, yes_it_is_off: bool, reason: str) -> None:
    """Vouch that a host is off, so that its work is placed elsewhere.

    For a host that can't be reached and won't come back soon. If its work still runs there, two copies of a job
    write to the same files: cut its power first.
    """
    if not yes_it_is_off:
        raise click.UsageError(
            "Only somebody who knows can say that nothing of its work runs any more. Cut the power of the host,"
            f" then write: holdfast host fence {name} --yes-it-is-off"
        )

    async def work(client: Client) -> host_pb2.Host:
        return await client.fence_host(name, reason)

    fenced = with_client(work)
    from holdfast.cli.draining import left_in_words

    Console().note(f"host {name} is fenced: {left_in_words(fenced)}")


def _each(names: tuple[str, ...], done: str, call: Callable[[Client, str], Awaitable[host_pb2.Host]]) -> None:
    async def work(client: Client) -> bool:
        console, well = Console(), True
        for each in names:
            try:
                await call(client, each)
            except HoldfastError as error:
                console.error(error)
                well = False
            else:
                console.note(f"host {each} {done}")
        return well

    if not with_client(work):
        sys.exit(exit_status.OUR_FAILURE)


@host.command()
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def watch(output: str) -> None:
    """Print hosts as they change.

    All of them at first, then each one whenever it changes, until interrupted.
    """

    async def work(client: Client) -> None:
        from holdfast import view
        from holdfast.cli.host_tables import host_line

        console = Console()
        await client.list_hosts()
        changes = client.watch_hosts(on_link=console.on_link("Waiting"))
        async with contextlib.aclosing(changes):
            async for host in changes:
                if output == "json":
                    json_line(view.host(host))
                else:
                    click.echo(host_line(host, time.time()), color=True)

    with_client(work)
