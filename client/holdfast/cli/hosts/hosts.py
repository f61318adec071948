"""``holdfast host …``."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.hosts.host_admission import remove, token
from holdfast.cli.hosts.maintenance import dismiss, for_each, maintenance, stop_orphans, window, window_options
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import json_line, output_option, show_list, show_one
from holdfast.cli.kit.parameters import duration, moment
from holdfast.cli.kit.shell_words import shell_line
from holdfast.errors import WrongState

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import host_pb2

_CHECKPOINT_DEADLINE_S = 1800.0


@click.group(cls=Commands)
def host() -> None:
    """Look at hosts, let them in, and keep work off them."""


@host.command("list")
@output_option
def list_(output: str) -> None:
    """List the hosts."""

    async def work(client: Client) -> list[host_pb2.Host]:
        return await client.list_hosts()

    found = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.hosts.host_tables import write_hosts

    show_list(
        found,
        output,
        view=json_view.host,
        name=lambda host: host.name,
        table=lambda hosts, wide: write_hosts(hosts, time.time(), wide=wide),
    )


@host.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show one host with its GPUs and its newest events."""

    async def work(client: Client) -> tuple[host_pb2.Host, list[host_pb2.ListedHostEvent]]:
        host = await client.get_host(name)
        if output not in ("table", "wide"):
            return host, []
        try:
            from holdfast.cli.hosts.host_history import RECENT

            return host, await client.list_host_events(name, newest=RECENT)
        except WrongState:
            return host, []  # the controller is of an older release

    found, recent = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.hosts.host_tables import write_host

    show_one(
        found,
        output,
        view=json_view.host,
        name=lambda host: host.name,
        page=lambda host, wide: write_host(host, recent, time.time(), wide=wide),
    )


@host.command()
@click.argument("name")
@click.option("--since", type=moment, metavar="TIME", help="Only what is newer: 12h, or 2026-11-21T04:00:00Z.")
@output_option
def events(name: str, since: float | datetime.datetime | None, output: str) -> None:
    """List what has happened to a host.

    When it joined, was lost, returned, booted or shut down, who cordoned, drained or fenced it and why, its
    maintenance, its faulty GPUs and its failed checks: all that the controller keeps, 90 days unless set otherwise.
    """
    if isinstance(since, datetime.datetime):
        start: float | None = since.timestamp()
    else:
        start = None if since is None else time.time() - since

    async def work(client: Client) -> list[host_pb2.ListedHostEvent]:
        return await client.list_host_events(name, since=start)

    history = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.hosts.host_history import kind_of, write_events

    show_list(
        history,
        output,
        view=json_view.host_event,
        name=kind_of,
        table=lambda found, wide: write_events(found, wide=wide),
    )


@host.command()
@click.argument("name", nargs=-1, required=True)
@click.option("--reason", default="", help="Why, for others to read.")
@window_options
def cordon(name: tuple[str, ...], reason: str, at: float | None, lasts: float | None, until: float | None) -> None:
    """Let hosts take no new work.

    What runs there continues. Several hosts may be named at once, as in gpu-[01-16].
    """
    when = window(at, lasts, until)

    async def call(client: Client, each: str) -> str:
        host = await client.cordon(each, reason, start=when.start, end=when.end)
        return f"host {each} {planned(host) or 'is cordoned'}"

    for_each(name, call)


@host.command()
@click.argument("name", nargs=-1, required=True)
@click.option("--gpu", "gpus", multiple=True, metavar="INDEX", help="Put this faulty GPU back into service.")
@click.option("--repaired", is_flag=True, help="The hosts were repaired: their failures are counted from now on.")
def uncordon(name: tuple[str, ...], gpus: tuple[str, ...], repaired: bool) -> None:
    """Let hosts take work again.

    A GPU that was taken out of service for a fault stays so, and keeps its host from work where only a reboot repairs
    it, until the repair is seen or --gpu says that it is well. Without --gpu the host's own cordon ends; with it only
    the GPUs are concerned. --repaired also ends what `holdfast host show` calls a lemon.
    """
    if gpus and repaired:
        raise click.UsageError("--repaired is said of whole hosts: leave --gpu out.")
    from holdfast.cli.hosts.host_tables import repairs

    async def call(client: Client, each: str) -> str:
        host = await client.uncordon(each, gpus, repaired=repaired)
        left = "; ".join(repairs(host))
        if gpus:
            done = f"host {each}: {'GPU' if len(gpus) == 1 else 'GPUs'} {', '.join(gpus)} in service"
            return f"{done}; {left}" if left else done
        state = "still takes no work" if host.cordoned else "takes work again"
        return f"host {each} {state}" + (f"; {left}" if left else "")

    for_each(name, call)


@host.command()
@click.argument("name", nargs=-1, required=True)
@click.option(
    "--deadline",
    type=duration,
    help="Time that work gets to end or to save, such as 30m.  [default: none; 30m with --at-checkpoint]",
)
@click.option("--at-checkpoint", is_flag=True, help="Move each job as soon as it has saved a checkpoint.")
@click.option("--reason", default="", help="Why, for others to read.")
@window_options
@click.option("--wait", is_flag=True, help="Return once nothing runs there any more.")
def drain(
    name: tuple[str, ...],
    deadline: float | None,
    at_checkpoint: bool,
    reason: str,
    at: float | None,
    lasts: float | None,
    until: float | None,
    wait: bool,
) -> None:
    """Empty hosts of their work, and let them take no new one.

    Their work is waited for; with a deadline, what is still there then continues elsewhere. `holdfast host uncordon`
    lets them take work again, and ends a drain. Several hosts may be named at once, as in gpu-[01-16].
    """
    from holdfast.cli.hosts.draining import left_in_words, wait_until_empty

    if at_checkpoint and deadline is None:
        deadline = _CHECKPOINT_DEADLINE_S
    when = window(at, lasts, until)
    if wait and at is not None:
        raise click.UsageError("--wait goes with a drain that begins now, not with --at.")
    begun: list[host_pb2.Host] = []

    async def call(client: Client, each: str) -> str:
        host = await client.drain(
            each, reason, deadline_s=deadline, at_checkpoint=at_checkpoint, start=when.start, end=when.end
        )
        if not host.draining:
            return f"host {each} {planned(host)}"
        begun.append(host)
        going_on = "being " if host.workers or host.job_ids else ""
        return f"host {each} is {going_on}drained: {left_in_words(host)}"

    async def until_empty(client: Client) -> bool:
        console = Console()
        return all([not host.workers or await wait_until_empty(client, host, console) for host in begun])

    for_each(name, call)
    if wait and not with_client(until_empty):
        sys.exit(exit_status.OUR_FAILURE)


def planned(host: host_pb2.Host) -> str:
    """``is to be emptied from 22:00:00 to 23:00:00, by ann``; empty where it has begun without an end."""
    from holdfast.cli.hosts.maintenance_table import in_words

    words = in_words(host, time.time())
    return f"has maintenance {words}" if words else ""


@host.command()
@click.argument("name", nargs=-1, required=True)
@click.option("--now", is_flag=True, help="Begin at once, or say why that can't be.")
def check(name: tuple[str, ...], now: bool) -> None:
    """Measure what idle hosts can do.

    Their processors, memory, disks, GPUs and network. It takes some seconds once a host is idle, gives way to every
    job, and is compared with other hosts: `holdfast host show` has the result. Several hosts may be named at once, as
    in gpu-[01-16].
    """

    async def call(client: Client, each: str) -> str:
        await client.check_host(each, at_once=now)
        when = "is being checked" if now else "is checked once it is idle"
        return f"host {each} {when}; see: holdfast host show {each}"

    for_each(name, call)


@host.command()
@click.argument("name")
@click.option("--yes-it-is-off", is_flag=True, help="You know that nothing of its work runs any more.")
@click.option("--reason", default="", help="Why, for others to read.")
def fence(name: str, yes_it_is_off: bool, reason: str) -> None:
    """Declare a host off, so that its work moves elsewhere.

    For a host that can't be reached and won't come back soon. If its work still runs there, two copies of a job
    write to the same files: cut its power first.
    """
    if not yes_it_is_off:
        raise click.UsageError(
            "Only a person on site can confirm that none of its work runs any more. Cut the power of the host,"
            f" then write: holdfast host fence {shell_line([name])} --yes-it-is-off"
        )

    async def work(client: Client) -> host_pb2.Host:
        return await client.fence_host(name, reason)

    fenced = with_client(work)
    from holdfast.cli.hosts.draining import left_in_words

    Console().note(f"host {name} is fenced: {left_in_words(fenced)}")


@host.command()
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Format."
)
def watch(output: str) -> None:
    """Print hosts as they change.

    All of them at first, then each one whenever it changes, until interrupted.
    """

    async def work(client: Client) -> None:
        from holdfast._sdk import json_view
        from holdfast.cli.hosts.host_tables import host_line

        console = Console()
        await client.list_hosts()
        changes = client.watch_hosts(on_link=console.on_link("Waiting for the controller to come back"))
        async with contextlib.aclosing(changes):
            async for host in changes:
                if output == "json":
                    json_line(json_view.host(host))
                else:
                    say(host_line(host, time.time()))

    with_client(work)


for _command in (token, remove, maintenance, stop_orphans, dismiss):
    host.add_command(_command)
