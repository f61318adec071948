"""``holdfast audit``: who did what, and whether the record of it is whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import output_option, show_list
from holdfast.cli.kit.parameters import Count

if TYPE_CHECKING:
    from holdfast._security.audit_chain import Anchor, Verification
    from holdfast.client import Client
    from holdfast.v1 import access_pb2

TRAILS = ("admins", "users", "unknown")
_FILE = re.compile(r"audit(?:-([a-z]+))?(?:\.(\d+))?\.jsonl")


@click.group(cls=Commands, invoke_without_command=True)
@click.option("--tail", type=Count(1, 1000), default=100, show_default=True, help="The newest N.")
@click.option("--who", default="", help="Only of one party, such as user/ann or host/host-7.")
@click.option("--refused", is_flag=True, help="Only what was refused or failed.")
@click.option(
    "--trail",
    type=click.Choice(TRAILS),
    help="Only calls of admins, of other users and hosts, or of callers without a certificate.",
)
@click.option(
    "-o", "--output", type=click.Choice(("table", "wide", "json", "yaml")), default="table", help="Format."
)
@click.pass_context
def audit(ctx: click.Context, tail: int, who: str, refused: bool, trail: str | None, output: str) -> None:
    """Show who did what, and who was refused. For admins."""
    if ctx.invoked_subcommand is not None:
        return

    async def work(client: Client) -> list[access_pb2.AuditEntry]:
        return await client.access.audit(tail, who=who, refused=refused, trail=trail or "")

    found = with_client(work)
    from holdfast.cli.cluster.user_tables import view_entry, write_audit

    show_list(
        found,
        output,
        view=view_entry,
        name=lambda entry: entry.call,
        table=lambda entries, wide: write_audit(entries, wide=wide),
    )


@audit.command()
@click.option("--anchor", "anchors", multiple=True, metavar="ANCHOR", help="As an earlier verification printed it.")
@click.option(
    "--in",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Verify the files audit*.jsonl of this folder instead, such as a copy.",
)
@output_option
@click.pass_context
def verify(ctx: click.Context, anchors: tuple[str, ...], directory: Path | None, output: str) -> None:
    """Verify that no entry was changed, removed or inserted.

    Each line of the audit log has a hash that covers the line before it. Prints an ANCHOR for each part of the log:
    keep it on another machine. A later verification with --anchor shows whether the log was cut or written again since
    then, which the hashes alone can't show. Exits with 1 if anything is wrong.
    """
    known = _anchors(anchors)
    found = _in_folder(directory, known) if directory is not None else with_client(lambda c: _online(c, known))
    for each in found:
        each.finish()
    show_list(found, output, view=_view, name=lambda each: each.trail, table=lambda each, _: _write(each))
    if any(each.problems for each in found):
        ctx.exit(1)


def _anchors(texts: Sequence[str]) -> list[Anchor]:
    from holdfast._security.audit_chain import parse_anchor

    try:
        found = [parse_anchor(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--anchor") from None
    if wrong := [anchor.trail for anchor in found if anchor.trail not in TRAILS]:
        raise click.BadParameter(f"there is no trail {wrong[0]!r}; use {', '.join(TRAILS)}", param_hint="--anchor")
    return found


def _verifications(anchors: list[Anchor]) -> dict[str, Verification]:
    from holdfast._security.audit_chain import Verification

    return {trail: Verification(trail, [a for a in anchors if a.trail == trail]) for trail in TRAILS}


async def _online(client: Client, anchors: list[Anchor]) -> list[Verification]:
    found = _verifications(anchors)
    async for trail, line in client.access.export_audit():
        if trail in found:
            found[trail].take(line)
    return list(found.values())


def _in_folder(directory: Path, anchors: list[Anchor]) -> list[Verification]:
    found, files = _verifications(anchors), list(_files(directory))
    if not files:
        raise click.BadParameter(f"there is no file audit*.jsonl in {directory}", param_hint="--in")
    for trail, path in files:
        with path.open("rb") as file:
            for line in file:
                found[trail].take(line)
    return list(found.values())


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """(trail, path) of the files of a folder, the oldest of each trail first."""
    matches = ((_FILE.fullmatch(path.name), path) for path in directory.iterdir())
    named = [(match[1] or "users", int(match[2] or 0), path) for match, path in matches if match is not None]
    for trail, _, path in sorted(named, key=lambda each: (each[0], -each[1])):
        if trail in TRAILS:
            yield trail, path


def _write(found: Sequence[Verification]) -> None:
    for each in found:
        lines = f"lines {each.first} to {each.last}" if each.last else "no lines"
        more = [f"{each.unchained} entries of an older release before them"] if each.unchained else []
        more += [f"{each.torn} torn by a crash"] if each.torn else []
        more += ["older ones are no longer kept"] if each.first > 1 else []
        state = "BROKEN" if each.problems else "whole" if each.last else "empty"
        say(f"{each.trail:<8} {state:<7} {'; '.join([lines, *more])}")
        for problem in each.problems:
            say(f"  {problem}")
        if each.last and not each.problems:
            say(f"  anchor   {each.anchor}")


def _view(each: Verification) -> dict[str, Any]:
    return {
        "trail": each.trail,
        "whole": not each.problems,
        "problems": each.problems,
        "first": each.first,
        "last": each.last,
        "unchained": each.unchained,
        "torn": each.torn,
        "anchor": str(each.anchor) if each.last else "",
    }
