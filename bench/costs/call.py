"""What a call costs the controller: its CPU for the calls that people and pages make again and again.

``python -m bench.costs.call [--jobs 20 1000 10000]``: a real controller over gRPC, one host, on which the first
job runs and all others wait. CPU of all threads of the controller, less what it takes without calls, divided by the
calls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial

from bench.support.cluster import DevCluster, dev_cluster, job, work_directory
from bench.support.report import Table, framed, progress
from bench.support.usage import own_cpu_s

from holdfast.client import Client

AT_ONCE = 32
PAGE = 20
"""Jobs of one answer, as on the first screen of `holdfast ps`."""
IDLE_S = 2.0
PAUSE_S = 0.02
"""Between two calls, as of several users; calls without a pause would run into the limit of one caller."""


async def fill(client: Client, jobs: int) -> None:
    """Have so many more jobs, each of which wants a host of its own."""
    wanted = job(["sleep", "100000"], grace_s=0.1)
    wanted.job_spec.worker_pool_specs[0].machine_spec.cpu_count = os.cpu_count() or 1
    turns = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with turns:
            await client.create_job(wanted)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(jobs):
            tasks.create_task(one())


async def cores_without_calls(pid: int) -> float:
    """CPU of the controller that nobody calls, in seconds a second."""
    await asyncio.sleep(1.0)
    before = own_cpu_s(pid)
    await asyncio.sleep(IDLE_S)
    return (own_cpu_s(pid) - before) / IDLE_S


async def ms_of(pid: int, call: Callable[[], Awaitable[object]], calls: int, idle: float) -> float:
    """Milliseconds of the controller's CPU for one call; ``idle`` is what it takes without, in seconds a second."""
    began, before = time.monotonic(), own_cpu_s(pid)
    for _ in range(calls):
        await call()
        await asyncio.sleep(PAUSE_S)
    spent = own_cpu_s(pid) - before
    return (spent - idle * (time.monotonic() - began)) / calls * 1000


async def measure(cluster: DevCluster, sizes: list[int], calls: int, runs: int) -> None:
    """Print a table for each number of jobs."""
    pid, there = cluster.controller_pid, 0
    async with cluster.client() as client:
        for size in sizes:
            progress(f"{size:,} jobs")
            await fill(client, size - there)
            there = size
            first, last = (await anext(client.list_jobs(page_size=1))).id, (await client.newest_jobs(1))[0].id
            idle = await cores_without_calls(pid)
            table = Table(f"Calls with {size:,} jobs", "ms of the controller's CPU a call")
            found: dict[str, Callable[[], Awaitable[object]]] = {
                f"ListJobs, the newest {PAGE}": partial(client.newest_jobs, PAGE),
                "the same as rows": partial(client.job_rows, PAGE),
                "GetJob, the one that runs": partial(client.get_job, first),
                "GetJob, the last that waits": partial(client.get_job, last),
                "ListHosts, one host": client.list_hosts,
                "GetStatus": client.status,
            }
            for what, call in found.items():
                table.add(what, [await ms_of(pid, call, calls, idle) for _ in range(runs)])
            table.print()


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="*", default=[20, 1_000, 10_000])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with framed(), work_directory() as directory, dev_cluster(directory) as cluster:
        asyncio.run(measure(cluster, options.jobs, options.calls, options.runs))


if __name__ == "__main__":
    main()
