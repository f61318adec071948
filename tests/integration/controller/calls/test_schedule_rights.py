"""A schedule is refused what its job would be refused, in the same words."""

from __future__ import annotations

import grpc
import pytest
from tests.integration.controller.calls.test_access import config, people
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.support.stubs import job_stub, schedule_stub

from holdfast.v1 import access_pb2, access_pb2_grpc, job_pb2, schedule_pb2

__all__ = ["config", "people"]
pytestmark = pytest.mark.anyio


async def test_a_schedule_after_a_job_of_a_hidden_project_is_refused_as_that_job_is(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    grant = access_pb2.Grant(project="speech", role=access_pb2.ROLE_USER)
    await people.AddUser(access_pb2.AddUserRequest(name="elsa", grant=grant), timeout=WITHIN_S)
    owen, elsa = job_stub(controller.channel("owen")), job_stub(controller.channel("elsa"))
    hidden = await owen.CreateJob(job_pb2.CreateJobRequest(job=job(project="vision")), timeout=WITHIN_S)
    wanted = job(project="speech")
    wanted.job_spec.scheduling.after.add(job=hidden.job.id)

    at_once = await refusal(elsa.CreateJob(job_pb2.CreateJobRequest(job=wanted), timeout=WITHIN_S))
    request = schedule_pb2.CreateScheduleRequest(name="peek", cron="* * * * *", job=wanted)
    later = await refusal(schedule_stub(controller.channel("elsa")).CreateSchedule(request, timeout=WITHIN_S))

    assert at_once[0] is later[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert str(later[1]) == str(at_once[1]) and hidden.job.id in str(later[1])
