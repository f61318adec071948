"""``RecordSamples`` through agents' ``Transfer``: by credit, over a host's absence, until the job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, OneWriter, job, refusal
from tests.support.stubs import agent_stub, hang_stub, job_stub

from holdfast.v1 import agent_pb2, hang_pb2, job_pb2


@dataclass
class Host:
    """An agent's transfer stream, said by hand."""

    call: Any
    orders: list[agent_pb2.TransferResponse] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        while (order := await self.call.read()) is not grpc.aio.EOF:
            self.orders.append(order)
            self.news.set()

    async def ordered(self, kind: str) -> Any:
        """The newest order of that kind, waited for."""
        async with asyncio.timeout(WITHIN_S):
            while not (found := [o for o in self.orders if o.WhichOneof("message") == kind]):
                self.news.clear()
                await self.news.wait()
        return getattr(found[-1], kind)

    async def say(self, **message: Any) -> None:
        await self.call.write(agent_pb2.TransferRequest(**message))


@asynccontextmanager
async def transfer(controller: Controller) -> AsyncIterator[Host]:
    call = OneWriter(agent_stub(controller.channel("host/host-0")).Transfer())
    host = Host(call)
    async with asyncio.TaskGroup() as tasks:
        await host.say(hello=agent_pb2.TransferHello())
        reading = tasks.create_task(host.read())
        yield host
        reading.cancel()
        call.cancel()


@pytest.fixture
def users(controller: Controller) -> tuple[Any, Any]:
    channel = controller.channel("user/ann")
    return job_stub(channel), hang_stub(channel)


def recording(hangs: Any, name: str) -> Any:
    return hangs.RecordSamples(hang_pb2.RecordSamplesRequest(id=name), timeout=WITHIN_S)


async def test_samples_come_until_the_job_has_ended_also_after_its_host_was_away(
    controller: Controller, users: tuple[Any, Any]
) -> None:
    jobs, hangs = users
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        created = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
        name = created.job.id
        await agent.until(lambda a: "RUN" in a.phases(name))
        call = recording(hangs, name)
        answer = await call.read()
        assert (answer.worker, answer.host) == ("workerpool0-0", "host-0")
        assert answer.problem == "host-0 is not connected; its samples come once it is back"

        async with transfer(controller) as host:
            order = await host.ordered("open_samples")
            assert (order.job_id, order.worker, order.credit_bytes > 0) == (name, "workerpool0-0", True)
            await host.say(chunk=agent_pb2.TransferChunk(id=order.id, data=b"first\n"))
            answer = await call.read()
            assert (answer.worker, answer.host, answer.data) == ("workerpool0-0", "host-0", b"first\n")
            credit = await host.ordered("credit")
            assert (credit.id, credit.bytes) == (order.id, 6)
        assert "not connected" in (await call.read()).problem

        async with transfer(controller) as host:
            order = await host.ordered("open_samples")
            await host.say(chunk=agent_pb2.TransferChunk(id=order.id, data=b"second\n"))
            assert (await call.read()).data == b"second\n"
            await agent.exit(name, 0)
            assert await call.read() is grpc.aio.EOF
            assert (await host.ordered("close")).id == order.id
        code, error = await refusal(recording(hangs, name).read())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "has ended" in str(error)


async def test_job_that_waits_is_recorded_from_its_start_and_a_refusal_is_told(
    controller: Controller, users: tuple[Any, Any]
) -> None:
    jobs, hangs = users
    created = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    name = created.job.id
    call = recording(hangs, name)
    async with transfer(controller) as host, controller.agent() as agent:
        await agent.until(lambda a: "RUN" in a.phases(name))
        order = await host.ordered("open_samples")
        await host.say(end=agent_pb2.TransferEnd(id=order.id, problem="too many"))
        assert (await call.read()).problem == "too many"
        call.cancel()


async def test_reader_that_leaves_is_noticed(controller: Controller, users: tuple[Any, Any]) -> None:
    jobs, hangs = users
    async with transfer(controller) as host, controller.agent() as agent:
        await agent.until(lambda a: a.said)
        created = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
        call = recording(hangs, created.job.id)
        order = await host.ordered("open_samples")
        call.cancel()
        assert (await host.ordered("close")).id == order.id


async def test_unknown_job_has_no_samples(users: tuple[Any, Any]) -> None:
    code, _ = await refusal(recording(users[1], "nobody").read())
    assert code is grpc.StatusCode.NOT_FOUND
