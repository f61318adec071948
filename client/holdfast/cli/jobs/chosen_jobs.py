"""Jobs that a command acts on: named one by one, or the caller's own with the labels that are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._base.proto_values import short_name
from holdfast.cli.kit import exit_status, stdin
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.job_filters import job_filter
from holdfast.cli.kit.parameters import key_value

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

C = TypeVar("C", bound=Callable[..., object])
Labels = tuple[tuple[str, str], ...]
NAMED = 20
"""Jobs that a question lists."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that can be done to jobs: ``verb`` and ``done`` name it, such as "Cancel" and "cancelled".

    ``filter`` holds for those of the caller's jobs that it can be done to, ``kind`` is what they are called.
    """

    verb: str
    done: str
    filter: str
    kind: str


def label_option(which: str) -> Callable[[C], C]:
    """Adds --label, which chooses jobs; ``which`` of them, such as "Your active jobs"."""
    help = f"{which} with this label."
    return click.option("--label", multiple=True, type=key_value, metavar="KEY=VALUE", help=help)


def yes_option(with_what: str = "--label") -> Callable[[C], C]:
    """Adds --yes, for scripts."""
    return click.option("--yes", is_flag=True, help=f"With {with_what}: don't ask.")


async def own_name(client: Client) -> str:
    """The caller's name, as it is the owner of jobs."""
    return (await client.access.caller()).user.name


async def own_jobs(client: Client, filter: str = "", **asked: Any) -> list[job_pb2.CustomJob]:
    """The caller's jobs for which ``filter`` and all that ``job_filter`` is asked for hold, oldest first."""
    terms = [job_filter(owner=await own_name(client), **asked), *([filter] if filter else [])]
    return [job async for job in client.list_jobs(" AND ".join(terms))]


def named_or_chosen(
    words: tuple[str, ...], label: Labels, deed: Deed, *, yes: bool, all_mine: bool | None = None
) -> tuple[str, ...]:
    """Names of the jobs to act on: ``words``, or the ids of those with the labels once the user has agreed.

    Empty where no job matches, which is said. Ends the command where the user does not agree. ``all_mine`` is None
    for a command without that option. Raises ``UsageError`` unless jobs are either named or chosen.
    """
    if bool(words) == bool(label or all_mine):
        more = "" if all_mine is None else " or with --all-mine"
        raise click.UsageError(f"Name jobs, or choose yours by --label{more}.")
    if words:
        return words
    if not yes and not stdin.is_terminal():
        raise click.UsageError("There is no terminal to ask on: add --yes, or see them first: holdfast job list.")
    chosen = with_client(lambda client: own_jobs(client, deed.filter, now=0.0, label=label))
    if not chosen:
        Console().note(f"no {deed.kind} job of yours matches; nothing is {deed.done}.")
    elif not yes:
        _ask(chosen, deed)
    return tuple(job.id for job in chosen)


def _ask(chosen: list[job_pb2.CustomJob], deed: Deed) -> None:
    """Return where the user agrees; else the command ends."""
    from holdfast.v1 import job_pb2

    shown = chosen[-NAMED:]
    if len(shown) < len(chosen):
        say(f"  {len(chosen) - len(shown)} older ones, and", err=True)
    for job in shown:
        name = one_line(job.display_name, 60)
        say(f"  {job.id}  {short_name(job_pb2.JobState, job.state)}  {name}", err=True)
    what = "this job" if len(chosen) == 1 else f"these {len(chosen)} jobs"
    try:
        agreed = click.confirm(f"{deed.verb} {what}?", err=True)
    except click.Abort:
        sys.exit(exit_status.CANCELLED)
    if not agreed:
        Console().note(f"nothing is {deed.done}.")
        sys.exit(exit_status.OK)
