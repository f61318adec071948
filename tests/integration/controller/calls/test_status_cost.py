"""The status page of a controller with many jobs: they are counted once for all who look."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.support.stubs import cluster_stub, job_stub

from holdfast.v1 import cluster_pb2, job_pb2
from holdfast_controller.shell.services import cluster_service

pytestmark = pytest.mark.anyio


async def counted(controller: Controller) -> int:
    """Jobs that wait, as the page says."""
    stub = cluster_stub(controller.channel("user/ann"))
    answer = await stub.GetStatus(cluster_pb2.GetStatusRequest(), timeout=WITHIN_S)
    return answer.jobs["QUEUED"]


async def submit(controller: Controller) -> None:
    jobs = job_stub(controller.channel("user/ann"))
    await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)


async def test_a_count_that_took_long_serves_those_who_look_next(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_service, "COUNT_S", -1.0)
    monkeypatch.setattr(cluster_service, "COUNTED_FOR", 1e9)
    monkeypatch.setattr(cluster_service, "KEPT_S", 1e9)
    assert await counted(controller) == 0
    await submit(controller)
    assert await counted(controller) == 0


async def test_other_counts_are_as_of_now(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_service, "COUNT_S", 1e9)
    assert await counted(controller) == 0
    await submit(controller)
    assert await counted(controller) == 1


async def test_one_task_waits_for_the_next_call_whichever_method_it_is_of(controller: Controller) -> None:
    await job_stub(controller.channel("user/ann")).ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    waiting = [name for name in names if name.startswith("AioServer._request")]
    assert waiting, "gRPC calls them otherwise by now"
    assert len(waiting) < 10, "gRPC looks at all of them whenever a call comes"
