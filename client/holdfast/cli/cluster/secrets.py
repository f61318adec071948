"""``holdfast secret …``: values that jobs find in their environment and that no call returns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast._base.secret import MAX_BYTES, Secret, taken
from holdfast.cli.kit import stdin
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import output_option, show_list
from holdfast.errors import InvalidInput, Violation

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import secret_pb2

project_option = click.option("--project", default="", help="That of a project, in place of your own.")


@click.group(cls=Commands)
def secret() -> None:
    """Keep keys and tokens that only your jobs shall see."""


@secret.command("set")
@click.argument("name")
@project_option
@click.option(
    "--from-file", "file", type=click.Path(path_type=Path), help="Read the value from a file instead of stdin."
)
def set_(name: str, project: str, file: Path | None) -> None:
    """Keep a value under NAME, in place of the one there.

    The value is asked for without showing it, or read from stdin or a file; one line end after it is left out. Jobs
    get it by --secret or secretEnv, from their next launch on. A project's secrets are for all who submit jobs to
    it, and are set by its admins.
    """
    value = _value(name, file)

    async def work(client: Client) -> None:
        await client.secrets.set(name, value, project=project)

    with_client(work)
    Console().note(f"{_called(name, project=project)} is set; launches from now on get it")


@secret.command("list")
@click.option("--all", "everybodys", is_flag=True, help="Everybody's. For admins.")
@output_option
def list_(everybodys: bool, output: str) -> None:
    """List your secrets and those of your projects: names, never values."""

    async def work(client: Client) -> list[secret_pb2.Secret]:
        return await client.secrets.list(all=everybodys)

    found = with_client(work)
    show_list(found, output, view=_view, name=lambda each: each.name, table=lambda each, _: _write(each))


@secret.command()
@click.argument("name")
@project_option
@click.option("--user", default="", help="That of another user. For admins.")
@click.option("--force", is_flag=True, help="Also if jobs need it that have not ended.")
def remove(name: str, project: str, user: str, force: bool) -> None:
    """Forget a value. What runs with it keeps it."""

    async def work(client: Client) -> None:
        await client.secrets.remove(name, project=project, user=user, force=force)

    with_client(work)
    Console().note(f"{_called(name, project=project, user=user)} is removed")


def _value(name: str, file: Path | None) -> Secret:
    """Read the value from a file or stdin; all users of the machine can see the command line."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                return taken(opened.read(MAX_BYTES + 3), str(file))
        except OSError as error:
            violation = Violation("--from-file", f"{file}: {error.strerror}", "name a file that you can read")
            raise InvalidInput([violation], what="The command line") from error
    if stdin.is_terminal():
        return taken(click.prompt(f"Value of {name}", hide_input=True, err=True).encode(), "the value")
    return taken(stdin.read(MAX_BYTES + 3), "stdin")


def _called(name: str, *, project: str = "", user: str = "") -> str:
    if project or user:
        return f"the secret {name} of {f'project {project}' if project else f'user {user}'}"
    return f"your secret {name}"


def _write(secrets: Sequence[secret_pb2.Secret]) -> None:
    from holdfast.cli.kit.table import Cell, Column, write

    rows: list[list[Cell | str]] = []
    for each in secrets:
        at = datetime.datetime.fromtimestamp(each.update_time.seconds).strftime("%Y-%m-%d %H:%M:%S")
        state = Cell("can't be opened: set it again", "31") if each.unreadable else f"set by {each.updated_by}"
        holder = each.WhichOneof("holder") or "user"
        rows.append([each.name, f"{holder} {getattr(each, holder)}", at, state])
    write([Column("NAME"), Column("OF"), Column("UPDATED"), Column("STATE", give=True)], rows)


def _view(each: secret_pb2.Secret) -> dict[str, Any]:
    """A secret as plain data, without its value."""
    holder = each.WhichOneof("holder") or "user"
    return {
        "name": each.name,
        holder: getattr(each, holder),
        "updateTime": each.update_time.ToJsonString(),
        "updatedBy": each.updated_by,
        "unreadable": each.unreadable,
    }
