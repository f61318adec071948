"""Notification URLs and variables that look secret reach no viewer, by whatever way a job came to have them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.integration.controller.conftest import certificates, controller
from tests.integration.controller.conftest import config as plain_config
from tests.support.stubs import access_stub, job_stub, schedule_stub

from holdfast.v1 import access_pb2, job_pb2, schedule_pb2, spec_pb2
from holdfast_controller.shell.base.config import ControllerConfig

__all__ = ["certificates", "controller", "plain_config"]
pytestmark = pytest.mark.anyio
MARK, HOST = "TOPSECRET", "hooks.example"
URL = f"https://{HOST}/services/{MARK}"
ENV = [{"name": "API_KEY", "value": MARK}]


@pytest.fixture
def config(plain_config: ControllerConfig) -> ControllerConfig:
    return dataclasses.replace(plain_config, admins=("ann",), notification_hosts=(HOST,))


def marked(name: str) -> job_pb2.CustomJob:
    made = job(name)
    made.job_spec.notifications.add(url=URL, events=[spec_pb2.NOTIFICATION_EVENT_FAILED])
    made.job_spec.worker_pool_specs[0].process_spec.env.add(name="API_KEY", value=MARK)
    return made


def patches() -> list[str]:
    """The same in the names of a job file and in those of HTTP."""
    pool = {"replicaCount": 1, "processSpec": {"command": ["true"], "env": ENV}}
    snake = {"replica_count": 1, "process_spec": {"command": ["true"], "env": ENV}}
    return [
        json.dumps({"jobSpec": {"notifications": [{"url": URL}], "workerPoolSpecs": [pool]}}),
        json.dumps({"job_spec": {"notifications": [{"url": URL}], "worker_pool_specs": [snake]}}),
    ]


async def answers(channel: Any) -> list[Any]:
    """All that a viewer is told of jobs, templates and schedules."""
    said: list[Any] = []
    jobs, plans = job_stub(channel), schedule_stub(channel)
    listed = await jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    said.append(listed)
    for each in listed.jobs:
        said.append(await jobs.GetJob(job_pb2.GetJobRequest(id=each.id), timeout=WITHIN_S))
        call = jobs.WatchJob(job_pb2.WatchJobRequest(id=each.id), timeout=WITHIN_S)
        said.append(await call.read())
        call.cancel()
    for name in ("", "t"):
        said.append(await plans.ListTemplates(schedule_pb2.ListTemplatesRequest(name=name), timeout=WITHIN_S))
    for name in ("", "s0", "s1", "s2"):
        said.append(await plans.ListSchedules(schedule_pb2.ListSchedulesRequest(name=name), timeout=WITHIN_S))
    return said


async def test_no_answer_to_a_viewer_has_a_secret_that_a_patch_or_a_job_brought(controller: Controller) -> None:
    ann = controller.channel("user/ann")
    jobs, plans, access = job_stub(ann), schedule_stub(ann), access_stub(ann)
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_VIEWER)
    await access.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)
    await plans.CreateTemplate(schedule_pb2.CreateTemplateRequest(name="t", job=marked("train")), timeout=WITHIN_S)
    await jobs.CreateJob(job_pb2.CreateJobRequest(job=marked("plain")), timeout=WITHIN_S)
    asked = schedule_pb2.CreateScheduleRequest(name="s0", cron="@daily", job=marked("night"))
    await plans.CreateSchedule(asked, timeout=WITHIN_S)
    await jobs.CreateJob(job_pb2.CreateJobRequest(template="t"), timeout=WITHIN_S)
    for number, patch in enumerate(patches(), 1):
        made = await jobs.CreateJob(job_pb2.CreateJobRequest(template="t", patch=patch), timeout=WITHIN_S)
        shown = made.job.annotations["template-patch"]
        assert json.loads(shown) == json.loads(patch.replace(URL, f"https://{HOST}/***").replace(MARK, "***"))
        asked = schedule_pb2.CreateScheduleRequest(name=f"s{number}", cron="@daily", template="t", patch=patch)
        await plans.CreateSchedule(asked, timeout=WITHIN_S)
    said = await answers(controller.channel("user/bob"))
    assert [str(each) for each in said if MARK in str(each)] == []
    assert sum(f"https://{HOST}/***" in str(each) for each in said) >= 8, "they were there to be seen"
    own = await plans.ListTemplates(schedule_pb2.ListTemplatesRequest(name="t"), timeout=WITHIN_S)
    (template,) = own.templates
    (variable,) = template.job.job_spec.worker_pool_specs[0].process_spec.env
    assert variable.value == MARK, "the owner's is theirs to read"
