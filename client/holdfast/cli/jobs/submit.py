"""``holdfast submit``: a job from a file."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import click

from holdfast.cli.jobs.code_options import code_options
from holdfast.cli.jobs.job_options import JobOptions, job_options
from holdfast.cli.jobs.packaging import CodeOptions, Packed, bring_code, packing
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.calls import with_client
from holdfast.cli.kit.console import Console
from holdfast.errors import InvalidSpec, Violation

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2


@click.command()
@click.argument("file", type=click.Path(allow_dash=True), required=False)
@click.option("--config", type=click.Path(allow_dash=True), help="FILE, as another service's command has it.")
@click.option(
    "--worker-pool-spec",
    "pools",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="A pool, as another service's command has it, in place of FILE; once for each pool.",
)
@click.option("--python-package-uris", default="", help="Packages of all pools with a python-module, with commas.")
@click.option("--region", default="", hidden=True)
@click.option("--wait", is_flag=True, help="Show the job's output and exit as it does.")
@click.option("--all", "show_all", is_flag=True, help="With --wait: show the output of all ranks.")
@click.option("--name", "--display-name", help="Display name, in place of the file's.")
@job_options
@code_options
def submit(
    file: str | None,
    config: str | None,
    pools: tuple[str, ...],
    python_package_uris: str,
    region: str,
    wait: bool,
    show_all: bool,
    name: str | None,
    options: JobOptions,
    code: CodeOptions | None,
) -> None:
    """Submit a job file, or local code, and print the job's id.

    FILE is YAML or JSON; - reads stdin. What options say counts in place of what the file says. With --script or
    --python-module the folder is packed, sent along, and run on every worker.
    """
    sources = [source for source in (file, config, pools) if source]
    if len(sources) > 1 or not (sources or code):
        fix = "" if sources else " For code alone, give --script or --python-module."
        raise click.UsageError(f"Give one of FILE, --config and --worker-pool-spec.{fix}")
    if region:
        Console().warning("--region: changes nothing: a cluster has no regions")
    with packing() as packed:
        job = _job_of(file or config or "", pools, python_package_uris, code, packed)
        if name:
            job.display_name = name
        options.apply(job)
        sys.exit(with_client(_submission(job, packed, wait=wait, show_all=show_all)))


def _submission(
    job: job_pb2.CustomJob, packed: Packed, *, wait: bool, show_all: bool
) -> Callable[[Client], Awaitable[int]]:
    async def work(client: Client) -> int:
        console = Console()
        await packed.upload(client, console)
        created = await client.create_job(job, on_warning=console.warning)
        if not wait:
            click.echo(created.id)
            console.note(f"submitted {created.display_name}; follow it with: holdfast logs -f {created.id}")
            return exit_status.OK
        from holdfast.cli.jobs.following import follow

        console.note(f"job {created.id}: {created.display_name}")
        return await follow(client, created, console, show_all=show_all)

    return work


def _job_of(
    file: str, pools: tuple[str, ...], package_uris: str, code: CodeOptions | None, packed: Packed
) -> job_pb2.CustomJob:
    """The job that the file, the pools or the code come to, with the code written into it."""
    from holdfast import spec

    what, name, data = "The command line", "job", {}
    if pools:
        from holdfast.cli.jobs.pool_options import code_of, spec_of

        of_pools = code_of(pools)
        data = spec_of(pools, package_uris)
        if of_pools is not None and code is not None:
            raise InvalidSpec([Violation("--script", "the first pool says what to run already")], what=what)
        if of_pools is not None and any("executor-image-uri" in pool for pool in pools):
            Console().warning("executor-image-uri: changes nothing: code runs on the hosts themselves")
        code = of_pools or code
    elif file:
        what = "stdin" if file == "-" else file
        text = _stdin() if file == "-" else spec.text_of(file)
        loaded = spec.load_text(text, source=what)
        if not isinstance(loaded, dict):
            return spec.job_to_proto(spec.parse(loaded, what=what))
        data, name = loaded, spec.name_of(what)
    if code is not None and not file and (code.script or code.module):
        name = PurePosixPath(code.script).stem if code.script else code.module
    bring_code(data, code, packed)
    return spec.job_to_proto(spec.parse(data, what=what, name=name))


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidSpec([Violation("", f"is not UTF-8 text (byte {error.start})")], what="stdin") from error
