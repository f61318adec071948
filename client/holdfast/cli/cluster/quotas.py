"""``holdfast quota``: what jobs of a project or a user may hold at once, set by command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import output_option, show_list
from holdfast.cli.kit.parameters import Count

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import cluster_pb2

C = TypeVar("C", bound=Callable[..., Any])
_FIELDS = ("gpus", "running_jobs", "waiting_jobs", "max_priority")


@click.group(cls=Commands)
def quota() -> None:
    """Limit what projects and users may hold."""


def _limit(value: str) -> int:
    """A number, or ``none``."""
    if value.strip().lower() == "none":
        return -1
    if not value.strip().isdecimal():
        raise click.BadParameter(f"{value!r} is no limit; write a number, or none.")
    return Count(0).convert(value, None, None)


def _holder(command: C) -> C:
    for option in reversed(
        (
            click.option("--project", help="Of this project; '*' for each without limits of its own."),
            click.option("--user", help="Of this user, in all projects; '*' for each without limits of their own."),
        )
    ):
        command = option(command)
    return command


@quota.command("set")
@_holder
@click.option("--gpus", type=_limit, metavar="N|none", help="GPUs of jobs that hold anything.")
@click.option("--running", type=_limit, metavar="N|none", help="Jobs that hold anything.")
@click.option("--waiting", type=_limit, metavar="N|none", help="Jobs in the queue.")
@click.option("--max-priority", type=_limit, metavar="N|none", help="The highest priority, 1 to 3.")
def set_(
    project: str | None,
    user: str | None,
    gpus: int | None,
    running: int | None,
    waiting: int | None,
    max_priority: int | None,
) -> None:
    """Set limits of a project or a user. For admins.

    They count at once, in place of those of controller.toml, limit by limit; `none` is no limit, whatever that says.
    A raised one lets jobs start, and a lowered one stops none.
    """
    from holdfast.v1 import cluster_pb2

    values = (gpus, running, waiting, max_priority)
    if all(value is None for value in values):
        raise click.UsageError("Nothing to set. Add --gpus, --running, --waiting or --max-priority.")
    given = {name: value for name, value in zip(_FIELDS, values, strict=True) if value is not None}
    _set(project, user, cluster_pb2.QuotaLimits(**given))


@quota.command()
@_holder
def clear(project: str | None, user: str | None) -> None:
    """Take back all limits that were set by command. For admins. Those of controller.toml count again."""
    _set(project, user, None)


def _set(project: str | None, user: str | None, limits: cluster_pb2.QuotaLimits | None) -> None:
    if (project is None) == (user is None):
        raise click.UsageError("Give one of --project and --user.")

    async def work(client: Client) -> cluster_pb2.Quota:
        return await client.quotas.set(project=project, user=user, limits=limits, clear=limits is None)

    found = with_client(work)
    whose = f"user {user}" if project is None else f"project {project}"
    Console().note(f"{whose}: {_in_words(found.limits)}")
    if found.unknown_user:
        Console().warning(f"no user {found.user} is known here yet: see holdfast user list")


@quota.command("list")
@output_option
def list_(output: str) -> None:
    """List limits, and what is used of them. You see your own and those of your projects; admins see all.

    SET names limits that were set by command; the others are those of controller.toml.
    """

    async def work(client: Client) -> list[cluster_pb2.Quota]:
        return await client.quotas.all()

    from holdfast._sdk import json_view

    show_list(
        with_client(work),
        output,
        view=json_view.plain,
        name=_name,
        table=lambda found, _: _write(found),
    )


def _name(each: cluster_pb2.Quota) -> str:
    return f"user/{each.user}" if each.HasField("user") else f"project/{each.project}"


def _write(found: Sequence[cluster_pb2.Quota]) -> None:
    from holdfast.cli.kit.table import Column, write

    if not found:
        say("Nothing is limited. An admin sets limits: holdfast quota set --user ann --gpus 32", err=True)
        return
    columns = [Column("OF"), *(Column(title, right=True) for title in ("GPUS", "RUNNING", "WAITING", "PRIORITY"))]
    rows = [
        (
            _name(each) + (" (no such user)" if each.unknown_user else ""),
            _used(each.gpus, each.limits, "gpus"),
            _used(each.running_jobs, each.limits, "running_jobs"),
            _used(each.waiting_jobs, each.limits, "waiting_jobs"),
            str(each.limits.max_priority) if each.limits.HasField("max_priority") else "-",
            ", ".join(_TITLES[field.name] for field, _ in each.by_command.ListFields()) or "-",
        )
        for each in found
    ]
    write([*columns, Column("SET", give=True)], rows)


_TITLES = {"gpus": "GPUs", "running_jobs": "running", "waiting_jobs": "waiting", "max_priority": "priority"}


def _used(number: int, limits: cluster_pb2.QuotaLimits, name: str) -> str:
    most = next((value for field, value in limits.ListFields() if field.name == name), None)
    return str(number) if most is None else f"{number}/{most}"


def _in_words(limits: cluster_pb2.QuotaLimits) -> str:
    names = {"gpus": "GPUs", "running_jobs": "running jobs", "waiting_jobs": "waiting jobs"}
    words = [f"{value} {names[field.name]}" for field, value in limits.ListFields() if field.name in names]
    words += [f"priority {limits.max_priority} at most"] if limits.HasField("max_priority") else []
    return ", ".join(words) or "no limits"
