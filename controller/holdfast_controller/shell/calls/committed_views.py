"""Views of jobs for users, returned once the state they show is durable."""

from __future__ import annotations

from collections import OrderedDict

from google.protobuf import json_format

from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.pending_reason import QueueView
from holdfast_controller.core.scheduling.schedule import schedulable_hosts
from holdfast_controller.core.step.lookup import unknown_job
from holdfast_controller.shell.convert.job_to_proto import job_to_proto
from holdfast_controller.shell.driver import Driver


def find_job(driver: Driver, job_id: str) -> Job:
    """The job with this id. Raises ``NotFound``."""
    job = driver.cluster.jobs.get(job_id)
    if job is None or job.deleted:
        raise unknown_job(job_id)
    return job


def queue_view(driver: Driver) -> QueueView:
    """The queue as it is now, for pending reasons."""
    return QueueView(driver.cluster, schedulable_hosts(driver.cluster), driver.reactor.policies.quotas)


async def committed_job(driver: Driver, job_id: str) -> job_pb2.CustomJob:
    """The job as it is now, once that is durable. Raises ``NotFound``."""
    cluster, job = driver.cluster, find_job(driver, job_id)
    # A job that doesn't wait has no pending reason.
    now = queue_view(driver) if job.state is JobState.QUEUED else QueueView(cluster, [], {})
    picture = job_to_proto(cluster, job, spec_message(job.spec_json), now)
    await driver.settled()
    return picture


KNOWN_SPECS = 4096
_specs: OrderedDict[str, spec_pb2.CustomJobSpec] = OrderedDict()


def spec_message(spec_json: str) -> spec_pb2.CustomJobSpec:
    """The spec of a job, as it was submitted."""
    found = _specs.get(spec_json)
    return (
        found if found is not None else know_spec(spec_json, json_format.Parse(spec_json, spec_pb2.CustomJobSpec()))
    )


def know_spec(spec_json: str, message: spec_pb2.CustomJobSpec) -> spec_pb2.CustomJobSpec:
    """Remember ``message`` as the parsed form of ``spec_json``, and return it. The newest are kept."""
    _specs[spec_json] = message
    if len(_specs) > KNOWN_SPECS:
        _specs.popitem(last=False)
    return message
