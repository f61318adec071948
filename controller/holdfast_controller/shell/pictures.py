"""Pictures of jobs for users: as the state shows them, told once that is durable."""

from __future__ import annotations

import functools

from google.protobuf import json_format

from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.explain import Standing
from holdfast_controller.core.job import JobState
from holdfast_controller.core.lookup import unknown_job
from holdfast_controller.core.model import Job
from holdfast_controller.core.schedule import takers
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.wire_job import job_to_proto


def find_job(driver: Driver, job_id: str) -> Job:
    """The job. Raises ``NotFound``."""
    job = driver.cluster.jobs.get(job_id)
    if job is None:
        raise unknown_job(job_id)
    return job


def standing(driver: Driver) -> Standing:
    """How things stand in the queue now."""
    return Standing(driver.cluster, takers(driver.cluster), driver.reactor.policies.quotas)


async def durable_picture(driver: Driver, job_id: str) -> job_pb2.CustomJob:
    """The job as it is now, once that is durable. Raises ``NotFound``."""
    cluster, job = driver.cluster, find_job(driver, job_id)
    # Who doesn't wait isn't told of the queue.
    now = standing(driver) if job.state is JobState.QUEUED else Standing(cluster, [], {})
    picture = job_to_proto(cluster, job, spec_message(job.spec_json), now)
    await driver.settled()
    return picture


@functools.lru_cache(maxsize=4096)
def spec_message(spec_json: str) -> spec_pb2.CustomJobSpec:
    """The spec of a job, as it was handed in."""
    return json_format.Parse(spec_json, spec_pb2.CustomJobSpec())
