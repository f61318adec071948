"""``holdfast host maintenance …``, and the times that ``host drain`` and ``host cordon`` take."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast._base import config
from holdfast._base.dataclass import dataclass
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.host_names import expand
from holdfast.cli.kit.output import output_option, show_list
from holdfast.cli.kit.parameters import duration
from holdfast.cli.kit.shell_words import shell_line
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast.client import Client
    from holdfast.v1 import host_pb2

C = TypeVar("C", bound=Callable[..., Any])
_DAY = datetime.timedelta(days=1)


def point(value: str, now: datetime.datetime | None = None) -> float:
    """Epoch seconds of ``22:00`` (the next one), ``2026-11-30 22:00`` (in the reader's zone), or ``+2h``."""
    now = now or datetime.datetime.now().astimezone()
    text = value.strip()
    try:
        if text.startswith("+"):
            return now.timestamp() + config.duration_s(text[1:])
        if len(text) <= 5 and ":" in text:
            clock = datetime.time.fromisoformat(text.zfill(5))
            # Without a zone until the day is known: this day and the next may differ in their offset.
            at = datetime.datetime.combine(now.astimezone().date(), clock)
            return (at if at.astimezone() > now else at + _DAY).timestamp()
        found = datetime.datetime.fromisoformat(text)
        return (found if found.tzinfo else found.astimezone()).timestamp()
    except (ValueError, OverflowError) as error:
        problem = f"{value!r} is no time; write 22:00, 2026-11-30 22:00, 2026-11-30T21:00:00Z, or +2h."
        raise click.BadParameter(problem) from error


@dataclass(frozen=True)
class Window:
    """When it begins and ends, in epoch seconds; None: now, and not by itself."""

    start: float | None
    end: float | None


def window_options(command: C) -> C:
    """Adds ``--at``, ``--for`` and ``--until``; see ``window``."""
    for option in reversed(
        (
            click.option("--at", type=point, metavar="TIME", help="Begin then: 22:00, 2026-11-30 22:00, or +2h."),
            click.option("--for", "lasts", type=duration, metavar="DURATION", help="Take work again after that."),
            click.option("--until", type=point, metavar="TIME", help="Take work again then, if the host is well."),
        )
    ):
        command = option(command)
    return command


def window(at: float | None, lasts: float | None, until: float | None) -> Window:
    """The options as one. Raises ``click.UsageError`` for both ends."""
    if lasts is not None and until is not None:
        raise click.UsageError("Write --for or --until, not both.")
    start = at if at is not None else time.time()
    return Window(at, until if lasts is None else start + lasts)


def for_each(words: tuple[str, ...], call: Callable[[Client, str], Awaitable[str]]) -> None:
    """Do it for every host that the words name, and say so; one that is refused doesn't keep the others from it."""
    names = expand(words)

    async def work(client: Client) -> set[int]:
        console, statuses = Console(), set()
        for name in names:
            try:
                console.note(await call(client, name))
            except HoldfastError as error:
                console.error(error)
                statuses.add(exit_status.of_error(error))
        return statuses

    if statuses := with_client(work):
        sys.exit(max(statuses))


@click.group(cls=Commands)
def maintenance() -> None:
    """Look at planned maintenance.

    It is planned with `holdfast host drain` or `cordon`, with --at, --for or --until.
    """


@maintenance.command("list")
@output_option
def list_(output: str) -> None:
    """List hosts with maintenance that is planned or under way."""

    async def work(client: Client) -> list[host_pb2.Host]:
        return [host for host in await client.list_hosts() if host.HasField("maintenance")]

    found = with_client(work)
    from holdfast._sdk import json_view
    from holdfast.cli.hosts.maintenance_table import write_maintenance

    show_list(
        found,
        output,
        view=json_view.host,
        name=lambda host: host.name,
        table=lambda hosts, wide: write_maintenance(hosts, time.time()),
    )


@maintenance.command()
@click.argument("name", nargs=-1, required=True)
def cancel(name: tuple[str, ...]) -> None:
    """Call it off; a host that is in it takes work again."""

    async def call(client: Client, each: str) -> str:
        host = await client.cancel_maintenance(each)
        return f"host {each} {'stays cordoned' if host.cordoned else 'takes work'}: its maintenance is called off"

    for_each(name, call)


@click.command("stop-orphans")
@click.argument("name")
@click.argument("job_id", metavar="JOB")
def stop_orphans(name: str, job_id: str) -> None:
    """Stop workers that the controller has no record of.

    After a restore from a backup hosts may run jobs that the controller does not know any more; `holdfast host show`
    names them. They run on, and their GPUs are kept for them, until they end or are stopped.
    """
    _stop_orphans(name, job_id)


@click.command(hidden=True)
@click.argument("name")
@click.argument("job_id", metavar="JOB")
def dismiss(name: str, job_id: str) -> None:
    """The old name of stop-orphans."""
    Console().note(f"host dismiss is now: {shell_line(['holdfast', 'host', 'stop-orphans', name, job_id])}")
    _stop_orphans(name, job_id)


def _stop_orphans(name: str, job_id: str) -> None:
    async def work(client: Client) -> None:
        await client.stop_orphans(name, job_id)

    with_client(work)
    Console().note(f"host {name} stops its workers of {job_id}")
