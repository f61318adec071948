"""``holdfast submit``: a job from a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.jobs.dry_run import tried
from holdfast.cli.kit import exit_status, stdin
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.job_names import name_dependencies
from holdfast.cli.kit.output import PAGE_FORMATS
from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.submission.code_options import code_options
from holdfast.cli.submission.creating import create
from holdfast.cli.submission.job_options import JobOptions, check_detached, detach_option, job_options
from holdfast.cli.submission.packaging import CodeOptions, Packed, bring_code, packing, pools_in, spec_in
from holdfast.cli.submission.programs import refuse_program
from holdfast.cli.submission.reference_options import ReferenceOptions, reference_options, split_list
from holdfast.cli.submission.unsent import notes
from holdfast.errors import InvalidSpec, Violation

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2

COMMAND_LINE = "The command line"
_PACKAGES = ("pythonPackageSpec", "python_package_spec")


class _Submit(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            if "--" not in given or len(given) - given.index("--") < 3:
                raise
        except click.UsageError as error:
            if type(error) is not click.UsageError:
                raise
        command = given[given.index("--") + 1 :] if "--" in given else []
        line = shell_line(command) or "COMMAND"
        raise click.UsageError(f"It takes one job file. To submit a command: holdfast run --detach -- {line}", ctx)


@click.command(cls=_Submit)
@click.argument("file", type=click.Path(allow_dash=True), required=False)
@click.option("--config", type=click.Path(allow_dash=True), help="FILE, as another service's command names it.")
@click.option(
    "--worker-pool-spec",
    "pools",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="A pool, as another service's command has it, in place of those of --config; once for each pool.",
)
@click.option("--python-package-uris", default="", help="Packages of all pools with a python-module, with commas.")
@click.option(
    "--dry-run", is_flag=True, help="Check it on the controller, say where it would run, and store nothing."
)
@click.option("-o", "--output", type=click.Choice(PAGE_FORMATS), help="With --dry-run: format of what it says.")
@click.option("--wait", is_flag=True, help="Show the job's output and exit as it does.")
@click.option("--all", "show_all", is_flag=True, help="With --wait: show the output of all ranks.")
@detach_option
@click.option("--name", "--display-name", help="Display name, in place of the file's.")
@job_options
@code_options
@reference_options
def submit(
    file: str | None,
    config: str | None,
    pools: tuple[str, ...],
    python_package_uris: str,
    dry_run: bool,
    output: str | None,
    wait: bool,
    show_all: bool,
    detach: bool,
    name: str | None,
    options: JobOptions,
    code: CodeOptions | None,
    reference: ReferenceOptions,
) -> None:
    """Submit a job file, or local code, and print the job's id.

    FILE is YAML or JSON, or a batch script of Slurm; - reads stdin. What options say counts in place of what the file
    says. With --script or --python-module the folder is packed, sent along, and run on every worker.
    """
    if (file and (config or pools)) or not (file or config or pools or code):
        fix = "" if file else " For code alone, give --script or --python-module."
        raise click.UsageError(f"Give one of FILE, --config and --worker-pool-spec.{fix}")
    if output and not dry_run:
        raise click.UsageError("-o goes with --dry-run.")
    check_detached(detach, wait=wait)
    if dry_run and wait:
        raise click.UsageError("--wait does not go with --dry-run, which submits nothing.")
    with packing() as packed:
        job = _job_of(file or config or "", pools, python_package_uris, code, packed)
        if name:
            job.display_name = name
        options.apply(job)
        reference.apply(job, Console())
        if dry_run:
            sys.exit(with_client(tried(job, output or "table", by_run=False)))
        sys.exit(with_client(_submission(job, packed, wait=wait, show_all=show_all)))


def _submission(
    job: job_pb2.CustomJob, packed: Packed, *, wait: bool, show_all: bool
) -> Callable[[Client], Awaitable[int]]:
    async def work(client: Client) -> int:
        console = Console()
        for note in notes(job, os.environ, by_run=False):
            console.note(note)
        await packed.upload(client, console)
        await name_dependencies(client, job)
        created = await create(client, job, console)
        if not wait:
            say(created.array.id or created.id)
            follow_it = (
                f"holdfast wait {created.array.id}" if created.array.id else f"holdfast logs -f {created.id}"
            )
            console.note(f"submitted {created.display_name}; follow it with: {follow_it}")
            return exit_status.OK
        if created.HasField("array"):
            from holdfast.cli.jobs.waiting import array_ended

            return await array_ended(client, created)
        from holdfast.cli.jobs.following import follow

        console.note(f"job {created.id}: {created.display_name}")
        return await follow(client, created, console, show_all=show_all)

    return work


def _job_of(
    file: str, pools: tuple[str, ...], package_uris: str, code: CodeOptions | None, packed: Packed
) -> job_pb2.CustomJob:
    """The job that the file, the pools or the code come to, with the code written into it."""
    from holdfast import spec

    what, name = COMMAND_LINE, "job"
    data: dict[str, Any] = {}
    if file:
        what = "stdin" if file == "-" else file
        text = stdin.job_text() if file == "-" else spec.text_of(file)
        if text.startswith("#!") and "\n#SBATCH" in text and not pools and code is None:
            return _of_batch_script(text, what)
        refuse_program(what, text)
        loaded = spec.load_text(text, source=what)
        if not isinstance(loaded, dict):
            return spec.job_to_proto(spec.parse(loaded, what=what))
        data, name = loaded, spec.name_of(what)
    if pools:
        code = _take_pools(data, pools, package_uris, code)
    elif package_uris:
        _take_packages(data, package_uris)
    if code is not None and not file and (code.script or code.module):
        name = PurePosixPath(code.script).stem if code.script else code.module
    bring_code(data, code, packed)
    try:
        return spec.job_to_proto(spec.parse(data, what=what, name=name))
    except InvalidSpec as error:
        if not pools:
            raise
        from holdfast.cli.submission.pool_options import as_options

        raise InvalidSpec(
            list(map(as_options, error.violations)), what=COMMAND_LINE if not file else what
        ) from None


def _of_batch_script(text: str, what: str) -> job_pb2.CustomJob:
    """The job of a script for Slurm. Notes say what in it counts for nothing."""
    from holdfast.cli.submission import sbatch

    job, notes = sbatch.job(text, what, os.environ, os.getcwd())
    for note in notes:
        Console().note(f"{what}: {note}")
    return job


def _take_pools(
    data: dict[str, Any], pools: tuple[str, ...], package_uris: str, code: CodeOptions | None
) -> CodeOptions | None:
    """Write the pools of the options over those of ``data``. Returns the local code, theirs or ``code``."""
    from holdfast.cli.submission.pool_options import check_what_runs, code_of, spec_of

    of_pools = code_of(pools)
    if of_pools is not None and code is not None:
        problem = "the first pool says what to run already"
        raise InvalidSpec([Violation("--script", problem, "leave out one of the two")], what=COMMAND_LINE)
    check_what_runs(pools, package_uris, code=of_pools is not None or code is not None)
    if (holder := spec_in(data)) is not None:  # else the spec's reading says what is wrong with it
        holder.pop("worker_pool_specs", None)
        holder |= spec_of(pools, package_uris)
    if of_pools is not None:
        for key in ("executor-image-uri", "output-image-uri"):
            if any(f"{key}=" in pool for pool in pools):
                Console().warning(f"{key}: changes nothing: code runs on the hosts themselves")
    return of_pools or code


def _take_packages(data: dict[str, Any], package_uris: str) -> None:
    """Write the packages of the option over those of every Python package in ``data``."""
    tasks = [pool[kind] for pool in pools_in(data) for kind in _PACKAGES if isinstance(pool.get(kind), dict)]
    if not tasks:
        fix = "name them where the code is: packageUris of a pythonPackageSpec, or --extra-packages"
        raise InvalidSpec(
            [Violation("--python-package-uris", "no pool runs a Python package", fix)], what=COMMAND_LINE
        )
    for task in tasks:
        task.pop("package_uris", None)
        task["packageUris"] = split_list((package_uris,))
