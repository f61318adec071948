"""``WriteTerminal`` on a real link: from a user's call to the host of rank 0, and its answer back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, OneWriter, job, refusal
from tests.support.stubs import agent_stub, job_stub

from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.shell.services.streams import transfers


@pytest.fixture
def jobs(controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


def with_terminal() -> job_pb2.CustomJob:
    made = job()
    made.job_spec.worker_pool_specs[0].process_spec.terminal = True
    return made


@asynccontextmanager
async def running(controller: Controller, jobs: Any, what: job_pb2.CustomJob) -> AsyncIterator[str]:
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=what), timeout=WITHIN_S)
        await agent.until(lambda a: "RUN" in a.phases(made.job.id))
        yield made.job.id


class Host:
    """The transfer stream of host-0; answers what it is given as ``taken`` and ``problem`` say, or not at all."""

    def __init__(self, controller: Controller) -> None:
        self.call = OneWriter(agent_stub(controller.channel("host/host-0")).Transfer())
        self.given: list[agent_pb2.GiveInput] = []
        self.answers = True
        self.taken: int | None = None
        self.problem = ""
        self.leaves = False

    async def serve(self) -> None:
        try:
            await self.call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))
            while isinstance(message := await self.call.read(), agent_pb2.TransferResponse):
                order = message.give_input
                self.given.append(order)
                if self.leaves:
                    await self.call.done_writing()
                    return
                taken = len(order.data) if self.taken is None else self.taken
                answer = agent_pb2.InputTaken(id=order.id, bytes=taken, problem=self.problem)
                if self.answers:
                    await self.call.write(agent_pb2.TransferRequest(input_taken=answer))
        except grpc.aio.AioRpcError:
            pass


@asynccontextmanager
async def connected(controller: Controller) -> AsyncIterator[Host]:
    host = Host(controller)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(host.serve())
        yield host
        host.call.cancel()
        serving.cancel()


async def typed(jobs: Any, job_id: str, data: bytes = b"x", **fields: Any) -> int:
    request = job_pb2.WriteTerminalRequest(id=job_id, data=data, **fields)
    return int((await jobs.WriteTerminal(request, timeout=WITHIN_S)).taken)


async def until_connected(jobs: Any, job_id: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await typed(jobs, job_id, b"")
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.02)
            else:
                return


async def test_keys_reach_the_host_of_rank_0_and_its_answer_comes_back(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs, with_terminal()) as job_id, connected(controller) as host:
        await until_connected(jobs, job_id)
        assert await typed(jobs, job_id, b"ls\r", rows=30, columns=100) == 3
        order = host.given[-1]
        assert (order.job_id, order.generation, order.worker, order.rank) == (job_id, 1, "workerpool0-0", 0)
        assert (order.data, order.rows, order.columns) == (b"ls\r", 30, 100)
        host.taken = 0
        assert await typed(jobs, job_id) == 0
        host.taken = 1_000
        assert await typed(jobs, job_id, b"abc") == 3, "a host can't say that it took more than there was"


@pytest.mark.parametrize(
    ("what", "fields", "words"),
    [
        (job(), {}, "Rank 0 of the job {} has no terminal."),
        (with_terminal(), {"rank": 1}, "Rank 1 of the job {} has no terminal."),
        (with_terminal(), {}, "host-0 is not connected"),
    ],
    ids=["plain", "rank", "away"],
)
async def test_where_no_terminal_is_the_call_says_so(
    controller: Controller, jobs: Any, what: job_pb2.CustomJob, fields: dict[str, Any], words: str
) -> None:
    async with running(controller, jobs, what) as job_id:
        code, error = await refusal(jobs.WriteTerminal(job_pb2.WriteTerminalRequest(id=job_id, **fields)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and words.format(job_id) in str(error)


async def test_a_job_that_does_not_run_has_none(controller: Controller, jobs: Any) -> None:
    made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=with_terminal()), timeout=WITHIN_S)
    code, error = await refusal(jobs.WriteTerminal(job_pb2.WriteTerminalRequest(id=made.job.id, data=b"x")))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "no running ranks" in str(error)


async def test_a_host_that_gives_no_answer_or_goes_away_leaves_no_call_waiting(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(controller, jobs, with_terminal()) as job_id, connected(controller) as host:
        await until_connected(jobs, job_id)
        host.answers = False
        monkeypatch.setattr(transfers, "INPUT_WITHIN_S", 0.3)
        code, error = await refusal(jobs.WriteTerminal(job_pb2.WriteTerminalRequest(id=job_id, data=b"x")))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "gave no answer within 0.3 s" in str(error)
        monkeypatch.setattr(transfers, "INPUT_WITHIN_S", 60.0)
        host.leaves = True
        with pytest.raises(grpc.aio.AioRpcError, match="went away"):
            await typed(jobs, job_id)


async def test_too_much_at_once_is_refused(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs, with_terminal()) as job_id:
        code, _ = await refusal(jobs.WriteTerminal(job_pb2.WriteTerminalRequest(id=job_id, data=b"x" * 4_001)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
