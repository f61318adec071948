"""``holdfast dev …``: a cluster on one machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit import exit_status
from holdfast.cli.kit.console import say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import dump, page_option
from holdfast.cli.kit.parameters import Count, host_label

if TYPE_CHECKING:
    from holdfast.dev import Status

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
@click.option("--hosts", type=Count(1), help="Agents to start.  [default: 1, or those of the last time]")
@click.option("--gpus", type=Count(0), help="Simulated GPUs of each host; 0 for the machine's own.")
@_directory
@click.option("--port", type=Count(1, 65535), help="Port of the controller; a free one unless given.")
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


@dev.command()
@_directory
@page_option
def status(directory: Path, output: str) -> None:
    """Show whether a cluster runs there: its address, daemons, and jobs.

    Exits with 3 where there is none, or where one of its daemons is not ready.
    """
    from holdfast import dev

    found = dev.status(directory)
    if output != "table":
        dump(found.view(), output)
    else:
        say(*_lines(found))
    if not found.running:
        sys.exit(exit_status.NOT_RUNNING)


def _lines(found: Status) -> list[str]:
    start = f"holdfast dev start --dir {shlex.quote(found.directory)}"
    if not found.daemons:
        return [f"There is no dev cluster in {found.directory}. Start one: {start}"]
    if all(each.pid is None for each in found.daemons):
        return [f"The dev cluster in {found.directory} is not running. Start it: {start}"]
    lines = [f"Dev cluster in {found.directory}"]
    for each in found.daemons:
        address = found.controller if each.name == "controller" else ""
        pid = f"pid {each.pid}" if each.pid is not None else ""
        lines.append(f"  {each.name:<10}  {each.problem or 'ready':<11}  {pid:<11}  {address}".rstrip())
    jobs = ", ".join(f"{count} {state}" for state, count in found.jobs.items())
    if found.running:
        lines += [f"Active jobs: {jobs or 'none'}", "", f"  export HOLDFAST_CONFIG={shlex.quote(found.config)}"]
    else:
        lines.append(f"Start what is not running: {start}")
    return lines
