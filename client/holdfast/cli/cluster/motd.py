"""``holdfast motd``: the message of the day."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit import stdin
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.motd import lines
from holdfast.cli.kit.output import dump, page_option

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2


@click.group(cls=Commands)
def motd() -> None:
    """Show the message of the day, or set it."""


@motd.command()
@page_option
def show(output: str) -> None:
    """Show the message of the day."""

    async def work(client: Client) -> cluster_pb2.GetStatusResponse:
        return await client.status()

    found = with_client(work)
    if output != "table":
        from holdfast._sdk import json_view

        dump(json_view.status(found)["motd"], output)
    elif found.HasField("motd"):
        say(*lines(found.motd, time.time()))
    else:
        Console().note("there is no message of the day")


@motd.command("set")
@click.argument("text")
def set_(text: str) -> None:
    """Set the message of the day. For admins.

    - reads TEXT from stdin; at most 24 lines and 4096 bytes. Every user sees it once at their next login, run, submit
    or rerun, and at every holdfast status.
    """
    if text == "-":
        text = stdin.read(_READ_MOST).decode(errors="replace")
    if not text.strip():
        raise click.UsageError("TEXT is empty. To have no message: holdfast motd clear")
    _set(text)
    Console().note("the message of the day is set")


@motd.command()
def clear() -> None:
    """Have no message of the day. For admins."""
    _set("")
    Console().note("there is no message of the day any more")


def _set(text: str) -> None:
    async def work(client: Client) -> None:
        await client.access.set_motd(text)

    with_client(work)


_READ_MOST = 1 << 20
"""Bytes of stdin; the controller says how long a message may be."""
