"""Attacks by calls that are expensive to read or to answer."""

from __future__ import annotations

import asyncio
import os

from bench.attacks import Site, attack

from holdfast.v1 import job_pb2, spec_pb2

BLANKS = " " * 100_000


@attack("a list filter of 100,000 blanks", role="viewer")
async def blank_filter(site: Site) -> None:
    jobs = site.jobs()
    while True:
        await site.refused(jobs.ListJobs(job_pb2.ListJobsRequest(filter=f"x=y{BLANKS}z=1")))


@attack("a list filter of as many terms as it may have", role="viewer")
async def long_filter(site: Site) -> None:
    jobs = site.jobs()
    while True:
        await site.refused(jobs.ListJobs(job_pb2.ListJobsRequest(filter=" ".join(["a=b OR"] * 570) + " a=b")))


@attack("step patterns that take long to compile")
async def huge_step_pattern(site: Site) -> None:
    jobs = site.jobs()
    while True:
        wanted = job_pb2.CustomJob(display_name="p", job_spec=spec())
        wanted.job_spec.fault_tolerance.hang_detection.step_pattern = r"((\pL{1000}){30})" * 20
        await site.refused(jobs.CreateJob(job_pb2.CreateJobRequest(job=wanted)))


@attack("jobs of 50 KB each, and pages of a thousand of them", lead_s=20)
async def huge_pages(site: Site) -> None:
    jobs = site.jobs()
    wanted = job_pb2.CustomJob(display_name="wide", job_spec=spec(), project="mallory")
    process = wanted.job_spec.worker_pool_specs[0].process_spec
    process.env.extend(spec_pb2.EnvVar(name=f"V{number}", value="x" * 1000) for number in range(50))
    # Half of what a user may have waiting.
    for _ in range(50):
        await asyncio.gather(
            *(site.refused(jobs.CreateJob(job_pb2.CreateJobRequest(job=wanted))) for _ in range(10))
        )
    while True:
        await site.refused(jobs.ListJobs(job_pb2.ListJobsRequest(page_size=1000)))


def spec() -> spec_pb2.CustomJobSpec:
    """A worker that wants every core of the host, which are all but the attacker's: all jobs but the first wait."""
    process = spec_pb2.ProcessSpec(command=["sleep", "1000"])
    machine = spec_pb2.MachineSpec(cpu_count=(os.cpu_count() or 2) - 1)
    pool = spec_pb2.WorkerPoolSpec(replica_count=1, process_spec=process, machine_spec=machine)
    return spec_pb2.CustomJobSpec(worker_pool_specs=[pool])
