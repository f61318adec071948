"""``holdfast template``: job files that the controller keeps, and jobs of them with changes."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.kit import exit_status, stdin
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.group import Commands
from holdfast.cli.kit.output import output_option, show_list
from holdfast.cli.kit.parameters import wrong
from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.submission.creating import create as create_job
from holdfast.cli.submission.programs import refuse_program
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2, schedule_pb2

project_option = click.option("--project", default="default", show_default=True, help="The project that it is in.")
made_in_option = click.option(
    "--project", help="The project to make it in.  [default: the job file's, else default]"
)
T = TypeVar("T")


def patch_options(command: Callable[..., T]) -> Callable[..., T]:
    """Options by which a template is changed."""
    for each in (
        click.option(
            "--patch", type=click.Path(path_type=Path), help="A JSON merge patch of the job file, in a file."
        ),
        click.option(
            "--set",
            "values",
            multiple=True,
            metavar="FIELD=VALUE",
            help="A field of the job file, such as jobSpec.workerPoolSpecs[0].replicaCount=8: JSON, or text.",
        ),
    ):
        command = each(command)
    return command


@click.group(cls=Commands)
def template() -> None:
    """Keep job files on the controller, and run them with changes."""


@template.command()
@click.argument("name")
@click.argument("file", type=click.Path(allow_dash=True))
@made_in_option
def create(name: str, file: str, project: str | None) -> None:
    """Keep the job file FILE as the next version of the template NAME.

    Versions never change: who runs NAME@3 gets the same job for ever.
    """
    job = job_in(file, project)

    async def work(client: Client) -> schedule_pb2.Template:
        return await client.schedules.create_template(name, job)

    made = with_client(work)
    say(f"{made.name}@{made.version}")


@template.command("list")
@click.option("--project", default="", help="Of this project alone.")
@output_option
def list_(project: str, output: str) -> None:
    """List templates, each with its newest version."""

    async def work(client: Client) -> list[schedule_pb2.Template]:
        return await client.schedules.list_templates(project=project)

    _show(with_client(work), output)


@template.command()
@click.argument("name")
@project_option
@output_option
def show(name: str, project: str, output: str) -> None:
    """List all versions of a template. -o json and -o yaml have their jobs."""
    _show(with_client(lambda client: _versions(client, name, project)), output)


@template.command()
@click.argument("name")
@project_option
def remove(name: str, project: str) -> None:
    """Remove a template with all its versions. Jobs and schedules of it have their own copies."""

    async def work(client: Client) -> None:
        await client.schedules.remove_template(name, project=project)

    plain, at, _ = name.partition("@")
    if at:
        fix = shell_line(["holdfast", "template", "remove", plain])
        raise click.UsageError(f"A template is removed with all its versions, none of them alone: {fix}")
    with_client(work)
    Console().note(f"the template {name} is removed")


@template.command()
@click.argument("name")
@project_option
@patch_options
@click.option("--name", "display_name", default="", help="Display name, in place of the template's.")
@click.option("--wait", is_flag=True, help="Show the job's output and exit as it does.")
def run(
    name: str, project: str, values: tuple[str, ...], patch: Path | None, display_name: str, wait: bool
) -> None:
    """Submit a job of a template, with changes. NAME@3 is its third version. Prints the job's id.

    The job keeps the template's version and the changes as annotations.
    """
    from holdfast.v1 import job_pb2

    async def work(client: Client) -> int:
        console = Console()
        changes = await changes_of(client, name, project, values, patch)
        job = job_pb2.CustomJob(project=project, display_name=display_name)
        created = await create_job(client, job, console, template=name, patch=changes)
        if not wait:
            say(created.array.id or created.id)
            return exit_status.OK
        if created.HasField("array"):
            from holdfast.cli.jobs.waiting import array_ended

            console.note(f"array {created.array.id}: {created.display_name}")
            return await array_ended(client, created)
        from holdfast.cli.jobs.following import follow

        console.note(f"job {created.id}: {created.display_name}")
        return await follow(client, created, console, show_all=False)

    sys.exit(with_client(work))


def job_in(file: str, project: str | None) -> job_pb2.CustomJob:
    """The job of a file, or stdin; in a project, if one is named."""
    from holdfast import spec

    what = "stdin" if file == "-" else file
    text = stdin.job_text() if file == "-" else spec.text_of(file)
    refuse_program(what, text)
    loaded = spec.load_text(text, source=what)
    job = spec.job_to_proto(spec.parse(loaded, what=what, name=spec.name_of(what)))
    job.project = project or job.project
    return job


async def changes_of(client: Client, name: str, project: str, values: Sequence[str], patch: Path | None) -> str:
    """The merge patch that ``--patch`` and ``--set`` come to; empty for none."""
    changes: Any = _read(patch) if patch is not None else {}
    base: Any = {}
    if any("[" in each.partition("=")[0] for each in values):
        from holdfast._sdk import json_view

        base = json_view.job_file((await _versions(client, name, project))[-1].job)
    for each in values:
        _set(changes, base, each)
    return json.dumps(changes) if changes else ""


def _read(patch: Path) -> dict[str, Any]:
    try:
        changes = json.loads(patch.read_text(), object_pairs_hook=_once)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else f"is no JSON merge patch: {error}"
        raise wrong("--patch", f"{patch}: {problem}", "") from None
    if not isinstance(changes, dict):
        fix = 'such as {"jobSpec": {"scheduling": {"timeout": "3600s"}}}'
        raise wrong("--patch", "must be a JSON object", fix)
    return changes


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)} is given twice")
    return found


async def _versions(client: Client, name: str, project: str) -> list[schedule_pb2.Template]:
    """All versions of a template, or the one that NAME@3 names. Raises ``NotFound``."""
    plain, _, number = name.partition("@")
    every = await client.schedules.list_templates(project=project, name=plain)
    found = [each for each in every if number in ("", str(each.version))]
    if not every:
        raise NotFound(f"There is no template {plain!r} in project {project}.", fix="See: holdfast template list")
    if not found:
        newest = every[-1].version
        raise NotFound(f"The template {plain} has no version {number!r}; its newest is {newest}.")
    return found


_TEXTS = ("labels", "annotations", "avoidLabels")
"""Whose values are texts, whatever they look like."""
_STEP = re.compile(r"([A-Za-z_][\w/-]*)((?:\[\d{1,6}\])*)")


def _set(changes: dict[str, Any], base: Any, given: str) -> None:
    """Put one FIELD=VALUE into a merge patch. A list is replaced as a whole: its other entries come from ``base``."""
    path, equals, text = given.partition("=")
    steps = [_STEP.fullmatch(part) for part in path.split(".")]
    if not equals or None in steps:
        fix = "such as --set jobSpec.scheduling.timeout=3600s"
        raise wrong("--set", f"{given[:80]!r} is no FIELD=VALUE", fix)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    keys: list[str | int] = []
    for step in steps:
        assert step is not None
        if keys and keys[-1] in _TEXTS:
            value = text
        keys += [step[1], *(int(number) for number in re.findall(r"\d+", step[2]))]
    here: Any = changes
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        base = _below(base, key)
        if following is None:
            here[key] = value
            return
        kind = list if isinstance(following, int) else dict
        known = here.get(key) if isinstance(here, dict) else here[int(key)]
        if not isinstance(known, kind):
            whole = isinstance(here, list) or kind is list
            known = json.loads(json.dumps(base)) if whole and isinstance(base, kind) else kind()
            here[key] = known
        if isinstance(following, int) and following >= len(known):
            entries = "1 entry" if len(known) == 1 else f"{len(known)} entries"
            problem = f"{path}: the template has {entries} there"
            raise wrong("--set", problem, "count from 0")
        here = known


def _below(base: Any, key: str | int) -> Any:
    if isinstance(base, list) and isinstance(key, int):
        return base[key] if key < len(base) else None
    return base.get(key) if isinstance(base, dict) else None


def _show(found: list[schedule_pb2.Template], output: str) -> None:
    from holdfast._sdk import json_view

    show_list(
        found,
        output,
        view=json_view.template,
        name=lambda each: f"{each.name}@{each.version}",
        table=lambda each, _: _write(each),
    )


def _write(templates: Sequence[schedule_pb2.Template]) -> None:
    from holdfast.cli.kit.table import Column, write

    rows = [
        [
            f"{each.name}@{each.version}",
            each.project,
            each.owner,
            datetime.datetime.fromtimestamp(each.update_time.seconds).strftime("%Y-%m-%d %H:%M:%S"),
            each.updated_by,
        ]
        for each in templates
    ]
    write([Column("NAME", give=True), Column("PROJECT"), Column("OWNER"), Column("CREATED"), Column("BY")], rows)
