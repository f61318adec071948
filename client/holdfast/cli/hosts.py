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
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.client import Client
    from holdfast.v1 import host_pb2


@click.group(cls=Commands)
def host() -> None:
    """Look at hosts, and keep work off them."""


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
