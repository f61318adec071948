"""``holdfast host token create`` and ``holdfast host remove``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.cluster.users import print_line, ttl_option
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.group import Commands

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import access_pb2


@click.group(cls=Commands)
def token() -> None:
    """Let machines join."""


@token.command()
@click.argument("name", default="", required=False)
@ttl_option
def create(name: str, ttl: float | None) -> None:
    """Print the line with which a machine joins, once.

    With NAME only as that host, which may have joined before; without, as any host that is new.
    """

    async def work(client: Client) -> access_pb2.CreateTokenResponse:
        return await client.access.create_token(host=name, ttl_s=ttl)

    made = with_client(work)
    print_line("holdfast-agent join", made, f"To paste on the host {name}" if name else "To paste on the new host")


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Even if it holds work. You know that nothing of it runs any more.")
def remove(name: str, force: bool) -> None:
    """Forget a host; its certificates are void at once.

    Drain it first. If it is broken and holds work, cut its power, then use --force: the work continues elsewhere.
    """

    async def work(client: Client) -> None:
        await client.access.remove_host(name, force=force)

    with_client(work)
    Console().note(f"host {name} is removed")
