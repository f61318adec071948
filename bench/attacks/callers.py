"""Attacks on what everybody shares: the queue, and a host's logs."""

from __future__ import annotations

import asyncio
import contextlib

from bench.attacks import Site, attack
from bench.attacks.calls import spec

from holdfast.v1 import job_pb2

READERS = 64
# A log that is all hole: nothing to show, and terabytes to look through.
SPARSE = "import os, time; os.ftruncate(1, 8 << 40); time.sleep(1000)"


@attack("page tokens of 5,000 digits", role="viewer")
async def page_tokens(site: Site) -> None:
    async def ask() -> None:
        jobs = site.jobs()
        while True:
            await site.refused(jobs.ListJobs(job_pb2.ListJobsRequest(page_token="9" * 5_000)))

    await asyncio.gather(*(ask() for _ in range(8)))


@attack("64 readers of the last lines of a log of 8 TiB", lead_s=10)
async def sparse_tails(site: Site) -> None:
    jobs, wanted = site.jobs(), spec()
    pool = wanted.worker_pool_specs[0]
    pool.process_spec.command[:] = ["python3", "-c", SPARSE]
    pool.machine_spec.cpu_count = 0
    made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job_pb2.CustomJob(display_name="s", job_spec=wanted)))

    async def read() -> None:
        while True:
            with contextlib.suppress(Exception):
                async for _ in jobs.StreamLogs(job_pb2.StreamLogsRequest(id=made.job.id, tail_lines=10)):
                    pass
            await asyncio.sleep(0.05)

    await asyncio.gather(*(read() for _ in range(READERS)))


@attack("jobs that wait, as many as one may have")
async def endless_queue(site: Site) -> None:
    async def submit() -> None:
        jobs = site.jobs()
        wanted = job_pb2.CreateJobRequest(job=job_pb2.CustomJob(display_name="q", job_spec=spec()))
        while True:
            await site.refused(jobs.CreateJob(wanted))

    await asyncio.gather(*(submit() for _ in range(8)))
