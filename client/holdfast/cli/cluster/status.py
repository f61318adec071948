"""``holdfast status``: the whole cluster on one screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.output import dump, page_option

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2


@click.command()
@page_option
def status(output: str) -> None:
    """Show how the cluster stands, and what needs attention."""

    async def work(client: Client) -> tuple[cluster_pb2.GetStatusResponse, float | None]:
        return await client.status(), _certificate_ends(client)

    found, ends_at = with_client(work)
    if output != "table":
        from holdfast._sdk import json_view

        dump(json_view.status(found), output)
        return
    from holdfast.cli.cluster.status_page import write_status

    write_status(found, time.time(), certificate_ends=ends_at)


def _certificate_ends(client: Client) -> float | None:
    """Warnings about the caller's own certificate, known to the caller alone."""
    from holdfast._security import certificate
    from holdfast.errors import ConfigError

    try:
        return certificate.read(client.settings.cert).ends_at
    except ConfigError:
        return None
