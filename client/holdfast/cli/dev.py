"""``holdfast dev …``: a cluster on one machine."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from holdfast.cli.commands import Commands
from holdfast.cli.console import Console

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
@click.option("--hosts", type=click.IntRange(1), default=1, show_default=True, help="Agents to start.")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="Simulated GPUs of each host.")
@_directory
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the controller; a free one unless given.")
def start(hosts: int, gpus: int, directory: Path, port: int | None) -> None:
    """Start a controller and agents, or those of them that are dead."""
    # By name, so that nothing of it is loaded for other commands.
    importlib.import_module("holdfast.dev").start(directory, hosts, gpus, port)
    Console().note(f"use it with: export HOLDFAST_CONFIG={(directory / 'client.toml').resolve()}")


@dev.command()
@_directory
def stop(directory: Path) -> None:
    """Stop the cluster and every worker in it."""
    importlib.import_module("holdfast.dev").stop(directory)
