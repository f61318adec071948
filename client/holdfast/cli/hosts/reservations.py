"""``holdfast reservation``: hosts that are for the jobs of one project or user, from one time until another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast._base.plural import count
from holdfast.cli.hosts.maintenance import point, window
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.host_names import expand
from holdfast.cli.kit.output import output_option, show_list, show_one
from holdfast.cli.kit.parameters import Count, conditions, duration, key_value
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2


@click.group(cls=Commands)
def reservation() -> None:
    """Keep hosts for a project or a user for a time."""


@reservation.command()
@click.argument("name")
@click.option("--project", default="", help="Whose jobs the hosts are for.")
@click.option("--user", default="", help="The same: jobs of this user, in the project if that is named too.")
@click.option("--hosts", multiple=True, metavar="HOSTS", help="These, such as host-[0-3]; may be repeated.")
@click.option(
    "--label", "labels", type=key_value, multiple=True, metavar="KEY=VALUE", help="Hosts with this label."
)
@click.option(
    "--host-selector",
    "match",
    type=conditions,
    metavar="CONDITIONS",
    help="Hosts whose labels meet all of these: gpu in (h100,h200),!old,rack!=r7",
)
@click.option("--count", type=Count(0), default=0, help="So many of those hosts.")
@click.option("--gpus", type=Count(0), default=0, help="As many of those hosts as have so many GPUs.")
@click.option("--gpu-type", default="", metavar="MODEL", help="Only hosts with such GPUs, such as H200.")
@click.option(
    "--from", "start", type=point, metavar="TIME", help="22:00, 2026-11-30 22:00, or +2h; else from now on."
)
@click.option("--until", "end", type=point, metavar="TIME", help="The end, as --from.")
@click.option("--for", "lasts", type=duration, metavar="DURATION", help="The end, so long after the beginning.")
@click.option("--reason", default="", help="Shown beside it.")
def create(
    name: str,
    project: str,
    user: str,
    hosts: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    match: str | None,
    count: int,
    gpus: int,
    gpu_type: str,
    start: float | None,
    end: float | None,
    lasts: float | None,
    reason: str,
) -> None:
    """Reserve hosts for a project or a user. For admins.

    From now on no job of others starts there that is expected to run beyond the beginning, by its declared duration,
    else by those of earlier runs, else by its timeout. SPOT jobs do, and give way. Nothing that runs is stopped:
    `holdfast reservation show` says how many jobs may be in the way.

    Without --hosts no host is reserved for good: one that leaves is replaced by another that suits.
    """
    if not project and not user:
        raise click.UsageError("Say whose jobs the hosts are for: --project PROJECT, or --user USER.")
    span = window(start, lasts, end)
    if span.end is None:
        raise click.UsageError("Say when it ends: --until TIME, or --for DURATION.")
    from holdfast._base.proto_values import timestamp
    from holdfast.v1 import cluster_pb2

    wanted = cluster_pb2.Reservation(
        name=name,
        project=project,
        user=user,
        hosts=expand(hosts),
        labels=dict(labels),
        match=match or "",
        count=count,
        gpus=gpus,
        gpu_type=gpu_type,
        reason=reason,
        end=timestamp(span.end),
    )
    if span.start is not None:
        wanted.start.CopyFrom(timestamp(span.start))

    async def work(client: Client) -> cluster_pb2.Reservation:
        return await client.reservations.create(wanted)

    made = with_client(work)
    say(made.name)
    Console().note(f"it has {_hosts(made)} {_times(made)}")
    if made.unknown_user:
        Console().warning(f"no user {made.user} is known here yet: {_UNKNOWN}")
    if made.lack:
        Console().warning(f"{made.lack} that suit take no work now")
    if made.jobs_of_others:
        Console().warning(f"{_jobs(made)} there may run into it, and none is stopped for it")


@reservation.command("list")
@output_option
def list_(output: str) -> None:
    """List reservations that aren't over. The next one first."""

    async def work(client: Client) -> list[cluster_pb2.Reservation]:
        return await client.reservations.all()

    from holdfast._sdk import json_view

    show_list(
        with_client(work),
        output,
        view=json_view.plain,
        name=lambda each: each.name,
        table=lambda each, _: _write(each),
    )


@reservation.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one reservation, with the hosts that it has now."""

    async def work(client: Client) -> cluster_pb2.Reservation:
        found = next((each for each in await client.reservations.all() if each.name == name), None)
        if found is None:
            raise NotFound(f"There is no reservation {name!r}.", fix="See: holdfast reservation list")
        return found

    from holdfast._sdk import json_view

    show_one(
        with_client(work),
        output,
        view=json_view.plain,
        name=lambda each: each.name,
        page=lambda each, _: _page(each),
    )


@reservation.command()
@click.argument("name")
def delete(name: str) -> None:
    """End a reservation at once. For admins. Nothing that runs is stopped."""

    async def work(client: Client) -> None:
        await client.reservations.delete(name)

    with_client(work)
    Console().note(f"reservation {name} is deleted: its hosts are open to all")


def _write(found: Sequence[cluster_pb2.Reservation]) -> None:
    from holdfast.cli.kit.table import Column, write

    if not found:
        say(
            "No host is reserved. Reserve some: holdfast reservation create NAME --project P --count 4 --for 8h",
            err=True,
        )
        return
    titles = [Column(title) for title in ("NAME", "FOR", "FROM", "UNTIL", "HOSTS")]
    rows = [[each.name, _whose(each), *_ends(each), _hosts(each), each.lack or "-"] for each in found]
    write([*titles, Column("LACKS", give=True)], rows)


_UNKNOWN = "see holdfast user list"


def _page(each: cluster_pb2.Reservation) -> None:
    lines = [
        ("For", _whose(each) + (f" (no such user: {_UNKNOWN})" if each.unknown_user else "")),
        ("Asks for", _asked(each)),
        ("From", _ends(each)[0]),
        ("Until", _ends(each)[1]),
        ("Hosts", ", ".join(each.chosen_hosts) or "none"),
        ("Lacks", each.lack or "nothing"),
        ("In the way", _jobs(each) if each.jobs_of_others else "nothing"),
        ("Made by", each.created_by or "-"),
        ("Reason", each.reason or "-"),
    ]
    say(each.name)
    for title, value in lines:
        say(f"  {title:<10}  {value}")


def _asked(each: cluster_pb2.Reservation) -> str:
    which = [*each.hosts, *(f"{key}={value}" for key, value in sorted(each.labels.items()))]
    which += [each.match] if each.match else []
    model = f" {each.gpu_type}" if each.gpu_type else ""
    what = (
        count(each.gpus, f"{model} GPU".strip())
        if each.gpus
        else count(each.count, "host")
        if each.count
        else "hosts"
    )
    return f"{what}{f' with{model} GPUs' if model and not each.gpus else ''} {', '.join(which)}".rstrip()


def _hosts(each: cluster_pb2.Reservation) -> str:
    names = list(each.chosen_hosts)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "no host"


def _whose(each: cluster_pb2.Reservation) -> str:
    """Such as ``vision``, ``user/ann`` or ``user/ann in vision``; a dash where the caller may not see it."""
    user = f"user/{each.user}" if each.user else ""
    return " in ".join(filter(None, (user, each.project))) or "-"


def _jobs(each: cluster_pb2.Reservation) -> str:
    count, of = each.jobs_of_others, "user" if each.user else "project"
    return f"{count} job of another {of}" if count == 1 else f"{count} jobs of other {of}s"


def _ends(each: cluster_pb2.Reservation) -> tuple[str, str]:
    from holdfast.cli.kit.durations import clock

    now = time.time()
    begun = each.start.seconds <= now
    return "under way" if begun else clock(each.start.seconds, now), clock(each.end.seconds, now)


def _times(each: cluster_pb2.Reservation) -> str:
    start, end = _ends(each)
    return f"until {end}" if start == "under way" else f"from {start} until {end}"
