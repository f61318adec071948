"""``InjectFault`` on a real link: what the host is told, what it refuses, what is never asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.integration.controller.calls.test_shells import connected
from tests.integration.controller.cluster import WITHIN_S, Controller, OneWriter, job, refusal
from tests.support.stubs import agent_stub, job_stub

from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.shell.base.config import ControllerConfig


class Host:
    """The transfer stream of host-0: takes each fault, or refuses it with a reason."""

    def __init__(self, controller: Controller, *, injects: bool) -> None:
        self.call = OneWriter(agent_stub(controller.channel("host/host-0")).Transfer())
        self.orders: list[agent_pb2.InjectFault] = []
        self.refuses = ""
        self.leaves = False
        self._hello = agent_pb2.TransferHello(injects_faults=injects)

    async def serve(self) -> None:
        try:
            await self.call.write(agent_pb2.TransferRequest(hello=self._hello))
            while isinstance(message := await self.call.read(), agent_pb2.TransferResponse):
                match message.WhichOneof("message"):
                    case "open":
                        end = agent_pb2.TransferEnd(id=message.open.id)
                        await self.call.write(agent_pb2.TransferRequest(end=end))
                    case "inject_fault":
                        self.orders.append(message.inject_fault)
                        if self.leaves:
                            self.call.cancel()
                            return
                        answer = agent_pb2.FaultAnswer(id=message.inject_fault.id, problem=self.refuses)
                        await self.call.write(agent_pb2.TransferRequest(fault_answer=answer))
        except grpc.aio.AioRpcError:
            pass


@pytest.fixture
def allowing(config: ControllerConfig) -> ControllerConfig:
    """The settings of a controller whose admin allows faults in all projects."""
    object.__setattr__(config, "injection_projects", ("*",))
    return config


@asynccontextmanager
async def running(controller: Controller, *, injects: bool = True) -> AsyncIterator[tuple[Any, str, Host]]:
    """Ann's stub, her job on host-0, and that host's transfer stream."""
    jobs = job_stub(controller.channel("user/ann"))
    async with controller.agent() as agent, asyncio.TaskGroup() as tasks:
        await agent.until(lambda a: a.said)
        made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
        await agent.until(lambda a: "RUN" in a.phases(made.job.id))
        host = Host(controller, injects=injects)
        serving = tasks.create_task(host.serve())
        async with asyncio.timeout(WITHIN_S):
            while not await connected(jobs, made.job.id):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield jobs, made.job.id, host
        host.call.cancel()
        serving.cancel()


async def event_of(jobs: Any, job_id: str, kind: str) -> Any:
    """The first event of a kind in the job's history."""
    async with asyncio.timeout(WITHIN_S):
        async for entry in jobs.WatchJob(job_pb2.WatchJobRequest(id=job_id)):
            if entry.event.WhichOneof("kind") == kind:
                return getattr(entry.event, kind)
    raise AssertionError(f"no {kind}")


def asked(job_id: str, fault: str, *, seconds: float = 0, **fields: Any) -> job_pb2.InjectFaultRequest:
    request = job_pb2.InjectFaultRequest(id=job_id, fault=job_pb2.FaultKind.Value(f"FAULT_KIND_{fault}"), **fields)
    if seconds:
        request.duration.FromNanoseconds(round(seconds * 1e9))
    return request


@pytest.mark.usefixtures("allowing")
async def test_the_host_is_told_once_the_fault_is_on_record(controller: Controller) -> None:
    async with running(controller) as (jobs, job_id, host):
        await jobs.InjectFault(asked(job_id, "SLOW", seconds=30, speed_percent=20), timeout=WITHIN_S)
        (order,) = host.orders
        assert (order.job_id, order.generation, order.worker, order.rank) == (job_id, 1, "workerpool0-0", 0)
        assert (order.fault, order.for_s, order.speed) == ("slow", 30.0, 20)
        event = await event_of(jobs, job_id, "fault_injected")
        assert (event.by, event.rank.worker, event.rank.rank) == ("ann", "workerpool0-0", 0)
        assert (event.fault, event.speed_percent) == (job_pb2.FAULT_KIND_SLOW, 20)


@pytest.mark.usefixtures("allowing")
async def test_what_the_host_refuses_is_told_and_on_record(controller: Controller) -> None:
    async with running(controller) as (jobs, job_id, host):
        host.refuses = "its worker has no cgroup"
        code, error = await refusal(jobs.InjectFault(asked(job_id, "NET", seconds=5)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and host.refuses in str(error)
        assert (await event_of(jobs, job_id, "fault_not_injected")).reason == host.refuses


@pytest.mark.usefixtures("allowing")
async def test_an_agent_of_an_older_release_is_not_asked(controller: Controller) -> None:
    async with running(controller, injects=False) as (jobs, job_id, host):
        code, error = await refusal(jobs.InjectFault(asked(job_id, "KILL")))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "older release" in str(error)
        assert not host.orders


@pytest.mark.usefixtures("allowing")
async def test_a_host_that_goes_away_meanwhile_is_no_answer(controller: Controller) -> None:
    async with running(controller) as (jobs, job_id, host):
        host.leaves = True
        code, error = await refusal(jobs.InjectFault(asked(job_id, "KILL")))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "went away" in str(error)
        assert "may have been injected" in str(error)
        await event_of(jobs, job_id, "fault_injected")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):  # the rank may be dead by it: no host is to be suspected
                await event_of(jobs, job_id, "fault_not_injected")


async def test_nothing_is_injected_where_the_admin_has_not_allowed_it(controller: Controller) -> None:
    async with running(controller) as (jobs, job_id, host):
        code, error = await refusal(jobs.InjectFault(asked(job_id, "KILL")))
        assert code is grpc.StatusCode.PERMISSION_DENIED and "injection_projects" in str(error)
        assert not host.orders


@pytest.mark.parametrize(
    ("request_of", "field"),
    [
        (lambda job_id: asked(job_id, "UNSPECIFIED"), "fault"),
        (lambda job_id: job_pb2.InjectFaultRequest(id=job_id, fault=99), "fault"),  # type: ignore[arg-type]
        (lambda job_id: asked(job_id, "KILL", seconds=3), "duration"),
        (lambda job_id: asked(job_id, "STOP"), "duration"),
        (lambda job_id: asked(job_id, "STOP", seconds=3601), "duration"),
        (lambda job_id: asked(job_id, "STOP", seconds=3, speed_percent=5), "speed_percent"),
        (lambda job_id: asked(job_id, "SLOW", seconds=3), "speed_percent"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_field(controller: Controller, request_of: Any, field: str) -> None:
    async with running(controller) as (jobs, job_id, host):
        code, error = await refusal(jobs.InjectFault(request_of(job_id)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and field in str(error)
        assert not host.orders
