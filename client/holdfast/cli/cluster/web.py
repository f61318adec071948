"""``holdfast web``: open the page, and see and end what browsers are signed in."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.job_names import job_of
from holdfast.cli.kit.output import output_option, show_list
from holdfast.cli.kit.parameters import job_argument
from holdfast.cli.kit.table import Column, write

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from holdfast.client import Client
    from holdfast.v1 import web_pb2

_REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={}">\n'


class _WebCommands(Commands):
    """Takes what is none of its commands for the job to open."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["open", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WebCommands)
def web() -> None:
    """Open the web page, signed in as you.

    `holdfast web JOB` opens a job. The address works once, within a minute. The browser then stays signed in for 12
    hours after its last use, 7 days at most, until you end that, or an admin removes you.
    """


@web.command("open")
@job_argument(required=False)
@click.option(
    "--local", is_flag=True, help="Serve it on this machine until Ctrl-C; the controller needs no port for it."
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def open_(word: str | None, no_browser: bool, local: bool) -> None:
    """Open the page or a job; `open` may be left out.

    Prints the address as well, for a browser elsewhere. It works once, within a minute.
    """

    async def work(client: Client) -> str:
        path = f"/jobs/{(await job_of(client, word)).id}" if word is not None else "/"
        if not local:
            return await client.web.address(path)
        import anyio

        from holdfast._sdk.web_bridge import WebBridge

        async with WebBridge(client.web).serving() as found:
            address = found + (f"&to={path}" if path != "/" else "")
            say(address)
            shown = not no_browser and _shown(address)
            Console().note("served until Ctrl-C" if shown else "open this address; it works once, and until Ctrl-C")
            await anyio.sleep_forever()
        return address

    address = with_client(work)
    say(address)
    if no_browser or not _shown(address):
        Console().note("open this address within a minute; it works once")


@web.command()
@click.option("--user", default="", help="Another user's. For admins.")
@click.option("--all", "everyone", is_flag=True, help="Everyone's. For admins.")
@output_option
def sessions(user: str, everyone: bool, output: str) -> None:
    """List the browsers in which you are signed in."""

    async def work(client: Client) -> list[web_pb2.WebSession]:
        return await client.web.list_sessions(user, all=everyone)

    found = with_client(work)
    from holdfast._sdk import json_view

    show_list(
        found,
        output,
        view=json_view.plain,
        name=lambda session: session.id,
        table=lambda some, wide: _write(some, wide=wide),
    )


@web.command()
@click.argument("session", nargs=-1, required=True)
@click.option("--user", default="", help="Whose they are. For admins.")
def end(session: tuple[str, ...], user: str) -> None:
    """Sign browsers out, and end what they show at this moment."""

    async def work(client: Client) -> None:
        for each in session:
            await client.web.end_session(each, user)
            Console().note(f"browser session {each} is ended")

    with_client(work)


def _write(found: Sequence[web_pb2.WebSession], *, wide: bool) -> None:
    columns = [
        Column("SESSION"),
        Column("USER"),
        Column("SINCE"),
        Column("LAST USE"),
        Column("ENDS"),
        Column("FROM"),
    ]
    write(
        [*columns, Column("BROWSER", give=not wide)],
        [
            (each.id, each.user, *map(_local, (each.begin, each.last_use, each.end)), each.address, each.agent)
            for each in found
        ],
    )


def _local(at: Timestamp) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at.seconds))


def _shown(address: str) -> bool:
    """Whether a browser of this machine has been asked to open an address."""
    if sys.platform != "darwin" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    from holdfast import settings

    # By way of a file: the command line of a browser can be read by everyone on this machine.
    directory = Path(os.environ.get("XDG_RUNTIME_DIR") or settings.own_directory())
    file = directory / "holdfast-web.html"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(_REDIRECT.format(address.replace("&", "&amp;")))
        return webbrowser.open(file.as_uri())
    except (OSError, webbrowser.Error):
        return False
