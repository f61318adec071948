"""Durable one-worker jobs with real processes: how many a second until the queue is empty.

Every job is submitted, placed, prepared, launched, ended, recorded and acknowledged durably; its process is a
static program that ends at once. The time counts from the first CreateJob to the end of the last job.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import time
from pathlib import Path

from bench.support.cluster import DevCluster, dev_cluster, job, work_directory
from bench.support.report import Table, framed, progress
from bench.support.stamps import Stamps, build
from bench.support.usage import cpu_s, own_cpu_s

from holdfast.client import TERMINAL, Client
from holdfast.v1 import job_pb2

AT_ONCE = 32
"""Calls of CreateJob that are under way at the same time."""
LOOK_S = 0.5
DRAIN_S = 300.0


async def drain(cluster: DevCluster, client: Client, program: Path, stamps: Stamps, jobs: int) -> dict[str, float]:
    """Submit ``jobs`` at once and await the last; jobs a second, and milliseconds of CPU that each has cost."""
    controller, agent = cluster.controller_pid, cluster.agent_pid()
    turns = asyncio.Semaphore(AT_ONCE)
    ids: set[str] = set()

    async def one() -> None:
        async with turns:
            ids.add((await client.create_job(job([str(program), str(stamps.path), "exit"]))).id)

    before = own_cpu_s(controller), own_cpu_s(agent), cpu_s(agent)
    began = time.time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(jobs):
            tasks.create_task(one())
    submitted = time.time()
    deadline = time.monotonic() + DRAIN_S
    while True:
        await asyncio.sleep(LOOK_S)
        listed = [found for found in await client.newest_jobs(min(jobs, 1000)) if found.id in ids]
        if all(found.state in TERMINAL for found in listed):
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"{sum(f.state not in TERMINAL for f in listed)} jobs still run after {DRAIN_S:g} s")
    after = own_cpu_s(controller), own_cpu_s(agent), cpu_s(agent)
    if bad := [found for found in listed if found.state != job_pb2.JOB_STATE_SUCCEEDED]:
        raise SystemExit(f"{len(bad)} jobs did not succeed; the first: {bad[0].error.message}")
    ended = max(found.end_time.ToNanoseconds() / 1e9 for found in listed)
    return {
        "rate": jobs / (ended - began),
        "submit_rate": jobs / (submitted - began),
        "controller_ms": (after[0] - before[0]) / jobs * 1000,
        "agent_ms": (after[1] - before[1]) / jobs * 1000,
    }


def bare(program: Path, stamps: Stamps, jobs: int) -> float:
    """The floor: the same program run one after the other, with a synced line for each end; runs a second."""
    log = os.open(stamps.path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    began = time.monotonic()
    for _ in range(jobs):
        status = subprocess.run([program, stamps.path, "exit"], check=True).returncode
        os.write(log, f"{status}\n".encode())
        os.fdatasync(log)
    os.close(log)
    return jobs / (time.monotonic() - began)


async def main() -> None:
    """A few rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300, help="of each round (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="rounds (%(default)s)")
    options = parser.parse_args()
    if options.jobs > 1000:
        parser.error("at most 1000 jobs a round")
    rounds: list[dict[str, float]] = []
    floor: list[float] = []
    with framed():
        with work_directory() as directory:
            program, stamps = build(directory), Stamps(directory / "stamps")
            with dev_cluster(directory / "cluster") as cluster:
                async with cluster.client() as client:
                    await drain(cluster, client, program, stamps, 10)
                    for turn in range(options.runs):
                        rounds.append(await drain(cluster, client, program, stamps, options.jobs))
                        floor.append(await asyncio.to_thread(bare, program, stamps, options.jobs))
                        progress(f"round {turn + 1}: {rounds[-1]['rate']:.1f} jobs/s")
        rate = Table(f"Rounds of {options.jobs} durable one-worker jobs on one agent", "jobs/s")
        rate.add(
            "Holdfast, until the queue is empty", [r["rate"] for r in rounds], "Slurm, cited: 43 tuned, 17 default"
        )
        rate.add("Holdfast, submission alone", [r["submit_rate"] for r in rounds])
        rate.add("spawn, wait, sync a line", floor, "one after the other, nothing else")
        rate.print()
        cost = Table("CPU that one such job costs", "ms")
        cost.add("controller", [r["controller_ms"] for r in rounds])
        cost.add("agent, without shims", [r["agent_ms"] for r in rounds])
        cost.print()


if __name__ == "__main__":
    asyncio.run(main())
