"""``holdfast schedule``: jobs that are submitted whenever a cron expression is due."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.jobs.templates import changes_of, job_in, made_in_option, patch_options, project_option
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.job_names import name_dependencies
from holdfast.cli.kit.output import output_option, show_list
from holdfast.cli.kit.parameters import duration
from holdfast.cli.kit.shell_words import shell_line
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import schedule_pb2


@click.group(cls=Commands)
def schedule() -> None:
    """Submit jobs at times of day, on days of the week, every hour."""


@schedule.command()
@click.argument("name")
@click.argument("file", type=click.Path(allow_dash=True), required=False)
@click.option(
    "--cron", required=True, help="Minute, hour, day, month, day of week, such as '30 3 * * MON-FRI'; @daily."
)
@click.option("--time-zone", default="UTC", show_default=True, help="Whose clock counts, such as Europe/Berlin.")
@click.option(
    "--overlap",
    type=click.Choice(("allow", "forbid", "replace")),
    default="forbid",
    show_default=True,
    help="While the job of an earlier run has not ended: start beside it, leave the run out, or cancel that job first.",
)
@click.option("--deadline", type=duration, help="Leave a run out that could not be made for so long, such as 1h.")
@click.option("--template", "-t", default="", help="A template, NAME or NAME@3, in place of FILE.")
@patch_options
@made_in_option
def create(
    name: str,
    file: str | None,
    cron: str,
    time_zone: str,
    overlap: str,
    deadline: float | None,
    template: str,
    values: tuple[str, ...],
    patch: Path | None,
    project: str | None,
) -> None:
    """Submit a job whenever it is due. It is that of FILE, or of a template.

    Where clocks are set forward, a time of day that is left out is due at the moment of the change; one that comes
    twice is due once. If no controller runs when it is due, the newest run that was missed is made up.
    """
    if bool(file) == bool(template):
        raise click.UsageError("Give one of FILE and --template.")
    if file and (values or patch):
        raise click.UsageError("--set and --patch go with --template.")
    from holdfast.v1 import job_pb2

    job = job_in(file, project) if file else job_pb2.CustomJob(project=project or "default")

    async def work(client: Client) -> schedule_pb2.Schedule:
        changes = await changes_of(client, template, job.project, values, patch) if template else ""
        await name_dependencies(client, job)
        return await client.schedules.create(
            name,
            cron,
            job,
            time_zone=time_zone,
            overlap=overlap,
            deadline_s=deadline or 0.0,
            template=template,
            patch=changes,
            on_warning=Console().warning,
        )

    made = with_client(work)
    say(made.name)
    Console().note(f"its first run is due on {_there(made, made.next_run.seconds)}")


@schedule.command("list")
@click.option("--project", default="", help="Of this project alone.")
@output_option
def list_(project: str, output: str) -> None:
    """List schedules. Each with when it is due next, and what came of its last run."""

    async def work(client: Client) -> list[schedule_pb2.Schedule]:
        return await client.schedules.all(project=project)

    _show(with_client(work), output)


@schedule.command()
@click.argument("name")
@project_option
@output_option
def show(name: str, project: str, output: str) -> None:
    """Show one schedule. -o json and -o yaml have its job and its last jobs."""

    async def work(client: Client) -> list[schedule_pb2.Schedule]:
        found = await client.schedules.all(project=project, name=name)
        if not found:
            problem = f"There is no schedule {name!r} in project {project}."
            raise NotFound(problem, fix="See: holdfast schedule list")
        return found

    _show(with_client(work), output)


@schedule.command()
@click.argument("name")
@project_option
def pause(name: str, project: str) -> None:
    """Submit nothing until the schedule is resumed."""

    async def work(client: Client) -> schedule_pb2.Schedule:
        return await client.schedules.pause(name, project=project)

    with_client(work)
    where = [] if project == "default" else ["--project", project]
    again = shell_line(["holdfast", "schedule", "resume", name, *where])
    Console().note(f"the schedule {name} is paused; it goes on with: {again}")


@schedule.command()
@click.argument("name")
@project_option
def resume(name: str, project: str) -> None:
    """Go on with a paused schedule. What was due meanwhile is not made up."""

    async def work(client: Client) -> schedule_pb2.Schedule:
        return await client.schedules.resume(name, project=project)

    found = with_client(work)
    Console().note(f"the schedule {name} is due next on {_there(found, found.next_run.seconds)}")


@schedule.command()
@click.argument("name")
@project_option
def remove(name: str, project: str) -> None:
    """Remove a schedule. Its jobs go on."""

    async def work(client: Client) -> None:
        await client.schedules.remove(name, project=project)

    with_client(work)
    Console().note(f"the schedule {name} is removed")


def _there(each: schedule_pb2.Schedule, at: int) -> str:
    """A moment by the clock of the schedule's time zone, or of this machine where that doesn't know it."""
    from holdfast._base import cron

    try:
        return cron.in_zone(at, each.time_zone)
    except cron.BadCron:
        return datetime.datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def _show(found: list[schedule_pb2.Schedule], output: str) -> None:
    from holdfast._sdk import json_view

    show_list(
        found, output, view=json_view.schedule, name=lambda each: each.name, table=lambda each, _: _write(each)
    )


def _write(schedules: Sequence[schedule_pb2.Schedule]) -> None:
    from holdfast.cli.kit.table import Column, write

    rows = []
    for each in schedules:
        due = f"paused by {each.paused_by}" if each.paused_by else "never again"
        if each.HasField("next_run"):
            due = _there(each, each.next_run.seconds)
        last = each.job_ids[-1] if each.job_ids else "-"
        if each.left_out:
            last = f"left out: {each.left_out}"
        rows.append([each.name, each.project, each.owner, each.cron, due, str(each.runs), last])
    titles = [Column(title) for title in ("NAME", "PROJECT", "OWNER", "CRON", "NEXT RUN")]
    write([*titles, Column("RUNS", right=True), Column("LAST", give=True)], rows)
