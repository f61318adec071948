"""``--dry-run`` of ``submit`` and ``run``: what was understood of a job, and what would become of it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast._base.plural import count
from holdfast.cli.kit import exit_status, table
from holdfast.cli.kit.console import Console, say
from holdfast.cli.kit.job_names import name_dependencies
from holdfast.cli.kit.output import dump
from holdfast.cli.kit.shell_words import shell_line
from holdfast.cli.kit.table import Column
from holdfast.cli.submission.unsent import notes

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.v1 import job_pb2, spec_pb2

_PLANNED = (Column("WORKER"), Column("HOST"), Column("GPUS"))


def tried(
    job: job_pb2.CustomJob, output: str, *, by_run: bool, also: Sequence[str] = ()
) -> Callable[[Client], Awaitable[int]]:
    """Has the controller check the job, and says what was understood of it and what would become of it."""

    async def work(client: Client) -> int:
        console = Console()
        for note in [*notes(job, os.environ, by_run=by_run), *also]:
            console.note(note)
        if output == "table":
            for note in understood(job):
                console.note(note)
        await name_dependencies(client, job)
        found = await client.dry_run(job, on_warning=console.warning)
        if output != "table":
            from holdfast._sdk import json_view

            dump(json_view.plain(found), output)
            return exit_status.OK
        whose = "The first job of the array" if job.job_spec.scheduling.array else job.display_name or "The job"
        if found.starts:
            say(f"{whose} would start now:")
            table.write(
                _PLANNED,
                [(each.name, each.host, str(len(each.gpus)) if each.gpus else "-") for each in found.workers],
            )
        else:
            behind = f", behind {found.ahead} in the queue" if found.ahead else ""
            say(f"{whose} would wait{behind}: {found.wait_reason}")
        if found.gives_way:
            say(f"These jobs would give way to it: {', '.join(found.gives_way)}")
        if found.account:
            say(f"Its ranks would run as {found.account}.")
        return exit_status.OK

    return work


def understood(job: job_pb2.CustomJob) -> Iterator[str]:
    """Lines about what each worker runs and where, and how many workers, ranks and GPUs there are."""
    pools = [pool for pool in job.job_spec.worker_pool_specs if pool.WhichOneof("task") is not None]
    yield from dict.fromkeys(line for pool in pools for line in _task(pool))
    workers = sum(pool.replica_count for pool in pools)
    ranks = sum(pool.replica_count * max(1, pool.processes_per_worker) for pool in pools)
    gpus = sum(pool.replica_count * pool.machine_spec.accelerator_count for pool in pools)
    each = ", ".join((count(workers, "worker"), count(ranks, "rank"), count(gpus, "GPU")))
    yield _array(job.job_spec.scheduling.array) + each


def _array(text: str) -> str:
    """Such as ``an array of 20 jobs, 4 at once, each with ``; empty where it is none."""
    from holdfast import spec

    asked = spec.read_array(text)
    if not asked.indices:
        return ""
    at_once = f", {asked.at_once} at once" if asked.at_once else ""
    return f"an array of {count(len(asked.indices), 'job')}{at_once}, each with "


def _task(pool: spec_pb2.WorkerPoolSpec) -> Iterator[str]:
    """Lines about what a worker of this pool runs."""
    if pool.WhichOneof("task") == "python_package_spec":
        package = pool.python_package_spec
        yield f"module: {shell_line([package.python_module, *_plain(package.args)])}"
        return
    if pool.WhichOneof("task") == "container_spec":
        container = pool.container_spec
        yield f"image: {container.image_uri}"
        if words := _plain([*container.command, *container.args]):
            yield f"command: {shell_line(words)}"
        return
    process = pool.process_spec
    yield f"command: {shell_line(_plain([*process.command, *process.args]))}"
    if process.HasField("packaged_code"):
        empty = "a copy of the packaged code"
    else:
        empty = "one of the worker's own, which is empty"
    yield f"directory: {process.working_directory or empty}"


def _plain(words: Iterable[str]) -> list[str]:
    return [word.replace("$$", "$") for word in words]
