"""``holdfast dev …``: a cluster on one machine."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.parameters import host_label

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".holdfast-dev"),
    show_default=True,
    help="Where it keeps everything.",
)


@click.group(cls=Commands)
def dev() -> None:
    """A cluster on this machine, to try things out."""


@dev.command()
@click.option("--hosts", type=click.IntRange(1), help="Agents to start.  [default: 1, or those of the last time]")
@click.option("--gpus", type=click.IntRange(0), help="Simulated GPUs of each host; 0 for the machine's own.")
@_directory
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the controller; a free one unless given.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=host_label,
    metavar="HOST:KEY=VALUE",
    help="Label of a new host, such as host-0:rack=a.",
)
def start(
    hosts: int | None,
    gpus: int | None,
    directory: Path,
    port: int | None,
    labels: tuple[tuple[str, str, str], ...],
) -> None:
    """Start a controller and agents, or those of them that are dead.

    Returns when all of them are ready. Ports and identities stay those of the first time.
    """
    from holdfast import dev

    wanted: dict[str, dict[str, str]] = {}
    for name, key, value in labels:
        wanted.setdefault(name, {})[key] = value
    dev.start(directory, hosts, gpus, port, wanted)


@dev.command()
@_directory
def stop(directory: Path) -> None:
    """Stop the cluster and every worker in it."""
    from holdfast import dev

    dev.stop(directory)
