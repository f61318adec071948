"""``holdfast usage``: what the jobs of users and projects take of the controller's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.output import dump, page_option
from holdfast.cli.kit.table import Column, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2

MIB = 1 << 20


@click.command()
@page_option
def usage(output: str) -> None:
    """Show what jobs take of the controller's disk, and may.

    By user, project and job, the largest first: history, and evidence of hangs. You see your own, and the jobs of
    your projects; admins see all. `holdfast job delete` frees it.
    """

    async def work(client: Client) -> cluster_pb2.GetStatusResponse:
        return await client.status()

    found = with_client(work).stored
    if output != "table":
        from holdfast._sdk import json_view

        dump([json_view.plain(each) for each in found], output)
        return
    write_usage(found)


def write_usage(found: Sequence[cluster_pb2.StoredBytes]) -> None:
    """The table on stdout."""
    columns = (Column("OF"), Column("NAME", give=True), Column("JOBS", right=True), Column("MIB", right=True))
    rows = [
        (
            each.subject.partition("/")[0],
            each.subject.partition("/")[2],
            str(each.jobs),
            size(each.bytes),
            limit(each),
        )
        for each in found
    ]
    write((*columns, Column("MAY TAKE", right=True)), rows)


def size(count: int) -> str:
    """Bytes in MiB."""
    return f"{count / MIB:,.1f}"


def limit(each: cluster_pb2.StoredBytes) -> str:
    """The limit in MiB; a dash where there is none."""
    return f"{each.limit_bytes / MIB:,.0f}" if each.limit_bytes else "-"
