"""Views of jobs for users, returned once the state they show is durable."""

from __future__ import annotations

from collections import OrderedDict
from copy import copy

from google.protobuf import json_format

from holdfast._base.job_file.secret_names import hide_secrets
from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.step.lookup import is_array, unknown_job
from holdfast_controller.core.views.exits_alike import exits_alike
from holdfast_controller.shell.calls.slices import TURNS, apart_if_large
from holdfast_controller.shell.convert.job_to_proto import (
    exit_group_to_proto,
    job_to_proto,
    recovery_to_proto,
    workers_to_proto,
)
from holdfast_controller.shell.driver import Driver, now


async def find_job(driver: Driver, job_id: str) -> Job:
    """The job with this id. Raises ``NotFound``, also for the id of an array."""
    await driver.bring((job_id,))
    job, array = driver.cluster.jobs.get(job_id), driver.cluster.arrays.get(job_id)
    if array is not None:
        raise is_array(job_id, array)
    if job is None or job.deleted:
        raise unknown_job(job_id)
    return job


async def committed_job(
    driver: Driver,
    job_id: str,
    viewer: str,
    exits_of_newest: int = 0,
    *,
    fold_exits: bool = False,
    workers: bool = True,
    projected: bool = True,
) -> job_pb2.CustomJob:
    """The job as it is now, once that is durable, with what ``viewer`` may see of it. Raises ``NotFound``.

    With the exits of so many of its newest generations; of all, where that is 0. With ``fold_exits`` those that are
    alike are one, and none are in ``workers``. Without ``projected`` it is not said when a waiting job is expected to
    start: to work that out takes as long as all else of an answer.
    """
    cluster, job, slices = driver.cluster, await find_job(driver, job_id), TURNS.begin()
    wanted, at = await spec_of(job), now()
    # A job that doesn't wait has no pending reason, and a view of the queue looks at every host.
    queue = (
        driver.reactor.queue_view(at, projected=projected)
        if job.state is JobState.QUEUED
        else QueueView(cluster, [], {})
    )
    picture = seen_by(viewer, job_to_proto(cluster, job, wanted, queue, at, recoveries=False))
    for recovery in list(map(copy, job.recoveries)):  # as they are now; there may have been hundreds
        await slices.rest()
        picture.recoveries.append(recovery_to_proto(recovery))
    after = job.generation - exits_of_newest if exits_of_newest > 0 else 0
    if fold_exits:
        alike = await slices.through(exits_alike(job, after))
        picture.exit_groups.extend(map(exit_group_to_proto, alike))
        after = job.generation
    if not workers:
        picture.host_count = len({place.host for place in job.places})
    members = job.gang.members if workers and job.places else ()
    for member in members:
        await slices.rest()  # of a gang that was restarted often one has thousands of exits
        if not job.places:
            # It was stopped meanwhile, and has no workers any more.
            picture.ClearField("workers")
            break
        picture.workers.extend(workers_to_proto(cluster, job, (member,), after))
    await driver.settled()
    return picture


def seen_by(viewer: str, picture: job_pb2.CustomJob) -> job_pb2.CustomJob:
    """The job without the values of variables that look secret, unless the viewer is its owner."""
    if viewer != picture.owner:
        hide_secrets(picture.job_spec)
    return picture


KNOWN_BYTES = 64 << 20
"""Of specs as text, whose messages take about as much again."""
_specs: OrderedDict[str, spec_pb2.CustomJobSpec] = OrderedDict()
_known = 0


async def spec_of(job: Job) -> spec_pb2.CustomJobSpec:
    """The spec of a job, as it was submitted. A large one that is not known is read beside the event loop."""
    found = _specs.get(job.spec_json)
    if found is not None:
        _specs.move_to_end(job.spec_json)
        return found
    text = job.spec_json
    return know_spec(text, await apart_if_large(len(text), json_format.Parse, text, spec_pb2.CustomJobSpec()))


def know_spec(spec_json: str, message: spec_pb2.CustomJobSpec) -> spec_pb2.CustomJobSpec:
    """Remember ``message`` as the parsed form of ``spec_json``, and return it. Those used last are kept."""
    global _known
    if spec_json not in _specs:
        _specs[spec_json] = message
        _known += len(spec_json)
    while _known > KNOWN_BYTES:
        _known -= len(_specs.popitem(last=False)[0])
    return message
