"""``holdfast submit``: a job from a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli import exit_status
from holdfast.cli.calls import with_client
from holdfast.cli.console import Console
from holdfast.cli.job_options import JobOptions, job_options
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
) -> None:
    """Submit a job file and print the job's id.

    FILE is YAML or JSON; - reads stdin. What options say counts in place of what the file says.
    """
    sources = [source for source in (file, config, pools) if source]
    if len(sources) != 1:
        raise click.UsageError("Give one of FILE, --config and --worker-pool-spec.")
    if region:
        Console().warning("--region: changes nothing: a cluster has no regions")
    job = _job_of(pools, python_package_uris) if pools else _read(file or config or "")
    if name:
        job.display_name = name
    options.apply(job)

    async def work(client: Client) -> int:
        console = Console()
        created = await client.create_job(job, on_warning=console.warning)
        if not wait:
            click.echo(created.id)
            console.note(f"submitted {created.display_name}; follow it with: holdfast logs -f {created.id}")
            return exit_status.OK
        from holdfast.cli.following import follow

        console.note(f"job {created.id}: {created.display_name}")
        return await follow(client, created, console, show_all=show_all)

    sys.exit(with_client(work))


def _job_of(pools: tuple[str, ...], package_uris: str) -> job_pb2.CustomJob:
    from holdfast import spec
    from holdfast.cli.pool_options import spec_of

    return spec.job_to_proto(spec.parse(spec_of(pools, package_uris), what="The command line"))


def _read(file: str) -> job_pb2.CustomJob:
    from holdfast import spec

    return spec.job_to_proto(spec.parse_text(_stdin(), source="stdin") if file == "-" else spec.parse_file(file))


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidSpec([Violation("", f"is not UTF-8 text (byte {error.start})")], what="stdin") from error
