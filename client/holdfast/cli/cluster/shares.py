"""``holdfast shares`` and ``holdfast share``: how projects share the cluster, their weights and guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import dump, page_option
from holdfast.cli.kit.parameters import Count
from holdfast.cli.kit.table import Column, write

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2


@click.command()
@page_option
def shares(output: str) -> None:
    """Show how projects share the cluster's GPUs.

    USED is what a project has used, in GPU hours that count half after each half-life. FACTOR is 1 for a project that
    has and had nothing, and 0.5 for one with just its share: among jobs of one priority the highest goes first, once
    any project has a weight. GPUS, WAITING and RUNNING are followed by what the project's quota allows, if it has one.
    GUARANTEE is what a project has whenever it has jobs for it, and BORROWED what it holds beyond that, which gives way
    to jobs within other guarantees. You see your projects; admins see all.
    """

    async def work(client: Client) -> cluster_pb2.ListSharesResponse:
        return await client.list_shares()

    found = with_client(work)
    if output != "table":
        from holdfast._sdk import json_view

        dump(json_view.plain(found), output)
        return
    columns = [Column("PROJECT", give=True)]
    titles = ("WEIGHT", "SHARE", "USED", "GPUS", "FACTOR", "WAITING", "RUNNING", "GUARANTEE", "BORROWED")
    columns += [Column(title, right=True) for title in titles]
    write(columns, [_row(each) for each in found.shares])
    if found.warning:
        Console().warning(found.warning)
    if not found.ordered:
        fix = "holdfast share set PROJECT --weight 2"
        Console().note(
            f"no project has a weight, so the queue is first come, first served; an admin sets one: {fix}"
        )


def _row(each: cluster_pb2.ProjectShare) -> tuple[str, ...]:
    return (
        each.project,
        f"{each.weight:.12g}" if each.HasField("weight") else "-",
        f"{each.share:.1%}",
        f"{each.used_gpu_hours:,.1f}",
        _used(each.gpus, each.gpu_quota if each.HasField("gpu_quota") else None),
        f"{each.factor:.2f}",
        _used(each.waiting, each.waiting_quota if each.HasField("waiting_quota") else None),
        _used(each.running, each.running_quota if each.HasField("running_quota") else None),
        str(each.guaranteed_gpus or "-"),
        str(each.borrowed_gpus),
    )


def _used(number: int, most: int | None) -> str:
    """Such as ``12``, or ``12/64`` where a quota allows no more than 64."""
    return str(number) if most is None else f"{number}/{most}"


@click.group(cls=Commands)
def share() -> None:
    """Set weights and guarantees of projects."""


@share.command("set")
@click.argument("project")
@click.option("--weight", type=float, help="Projects without one count as 1.")
@click.option(
    "--guarantee", type=Count(0), help="GPUs that it has whenever it has jobs for them; 0 takes them back."
)
def set_(project: str, weight: float | None, guarantee: int | None) -> None:
    """Give a project a weight, a guarantee, or both. For admins.

    The first weight of any project changes the order of the queue from first come, first served to fair share. With
    the first guarantee, jobs that are in no guarantee, of any project, give way to jobs that are in one.
    """
    if weight is None and guarantee is None:
        raise click.UsageError("Nothing to set. Add --weight 2, --guarantee 64, or both.")
    if weight is not None:
        _weigh(project, weight)
        Console().note(f"project {project} has weight {weight:.12g}")
    if guarantee is not None:
        warning = _guarantee(project, guarantee)
        Console().note(f"project {project} is guaranteed {guarantee} GPU{'s' * (guarantee != 1)}")
        if warning:
            Console().warning(warning)


@share.command()
@click.argument("project")
def clear(project: str) -> None:
    """Take a project's weight and guarantee away: it counts as 1. For admins.

    Without any weight left the queue is first come, first served again.
    """
    _guarantee(project, 0)
    _weigh(project, None)
    Console().note(f"project {project} has no weight and no guarantee of its own any more")


def _weigh(project: str, weight: float | None) -> None:
    async def work(client: Client) -> None:
        await client.set_share(project, weight)

    with_client(work)


def _guarantee(project: str, gpus: int) -> str:
    async def work(client: Client) -> str:
        return await client.set_guarantee(project, gpus)

    return with_client(work)
