"""``OpenShell`` and ``WriteShell`` on a real link: who gets a shell, where it goes, and what ends it."""

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
from holdfast_controller.shell.services.streams import rank_shells


@pytest.fixture
def jobs(controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


def allowing() -> job_pb2.CustomJob:
    made = job()
    made.job_spec.enable_web_access = True
    return made


class Host:
    """The transfer stream of host-0: starts each shell, echoes what is typed; ``refuses`` with a reason."""

    def __init__(self, controller: Controller) -> None:
        self.call = OneWriter(agent_stub(controller.channel("host/host-0")).Transfer())
        self.opened: list[agent_pb2.OpenShell] = []
        self.given: list[agent_pb2.GiveInput] = []
        self.closed: list[int] = []
        self.refuses = ""

    async def serve(self) -> None:
        try:
            await self.call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))
            while isinstance(message := await self.call.read(), agent_pb2.TransferResponse):
                match message.WhichOneof("message"):
                    case "open":
                        end = agent_pb2.TransferEnd(id=message.open.id)
                        await self.call.write(agent_pb2.TransferRequest(end=end))
                    case "open_shell":
                        self.opened.append(message.open_shell)
                        if self.refuses:
                            await self.end(problem=self.refuses)
                    case "give_input":
                        await self._take(message.give_input)
                    case "close":
                        self.closed.append(message.close.id)
        except grpc.aio.AioRpcError:
            pass

    async def _take(self, order: agent_pb2.GiveInput) -> None:
        self.given.append(order)
        known = order.shell in [each.id for each in self.opened] and not self.refuses
        taken = agent_pb2.InputTaken(id=order.id, bytes=len(order.data), problem="" if known else "it has ended")
        await self.call.write(agent_pb2.TransferRequest(input_taken=taken))
        if order.data:
            chunk = agent_pb2.TransferChunk(id=order.shell, data=order.data.upper())
            await self.call.write(agent_pb2.TransferRequest(chunk=chunk))

    async def end(self, **fields: Any) -> None:
        """End the newest shell."""
        await self.call.write(agent_pb2.TransferRequest(end=agent_pb2.TransferEnd(id=self.opened[-1].id, **fields)))


async def connected(jobs: Any, job_id: str) -> bool:
    """Whether the controller can ask the host for something."""
    chunks = [chunk async for chunk in jobs.StreamLogs(job_pb2.StreamLogsRequest(id=job_id))]
    return not any("not connected" in chunk.problem for chunk in chunks)


@asynccontextmanager
async def launched(controller: Controller, jobs: Any, what: job_pb2.CustomJob | None = None) -> AsyncIterator[str]:
    """A job on host-0, which has a session, but no transfer stream."""
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        request = job_pb2.CreateJobRequest(job=what or allowing())
        made = await jobs.CreateJob(request, timeout=WITHIN_S)
        await agent.until(lambda a: "RUN" in a.phases(made.job.id))
        yield made.job.id


@asynccontextmanager
async def running(
    controller: Controller, jobs: Any, what: job_pb2.CustomJob | None = None
) -> AsyncIterator[tuple[str, Host]]:
    """A job on host-0, and that host's transfer stream."""
    async with launched(controller, jobs, what) as job_id, asyncio.TaskGroup() as tasks:
        host = Host(controller)
        serving = tasks.create_task(host.serve())
        async with asyncio.timeout(WITHIN_S):
            while not await connected(jobs, job_id):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield job_id, host
        host.call.cancel()
        serving.cancel()


@pytest.mark.parametrize("exit_status", [0, 7, 137])
async def test_what_is_typed_and_shown_passes_until_the_shell_says_its_status(
    controller: Controller, jobs: Any, exit_status: int
) -> None:
    async with running(controller, jobs) as (job_id, host):
        request = job_pb2.OpenShellRequest(
            id=job_id, command=["sh"], terminal=True, rows=30, columns=100, term="vt100"
        )
        call = jobs.OpenShell(request)
        first = await call.read()
        assert (first.worker, first.host) == ("workerpool0-0", "host-0")
        order = host.opened[0]
        assert (order.job_id, order.generation, order.worker, order.rank) == (job_id, 1, "workerpool0-0", 0)
        assert (list(order.command), order.terminal, order.term) == (["sh"], True, "vt100")
        write = job_pb2.WriteShellRequest(id=job_id, shell=first.shell, data=b"ls\r", rows=40, columns=120)
        assert (await jobs.WriteShell(write, timeout=WITHIN_S)).taken == 3
        assert (host.given[-1].rows, host.given[-1].columns) == (40, 120)
        assert (await call.read()).data == b"LS\r"
        await host.end(exit_status=exit_status)
        assert (await call.read()).exit_status == exit_status
        assert await call.read() is grpc.aio.EOF
        code, _ = await refusal(jobs.WriteShell(write))
        assert code is grpc.StatusCode.NOT_FOUND


async def test_a_job_that_does_not_allow_it_has_none(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs, job()) as (job_id, host):
        code, error = await refusal(jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id)).read())
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "allows no shells" in str(error)
        assert not host.opened


async def test_the_host_s_refusal_is_told(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (job_id, host):
        host.refuses = "its host's admin allows no shells there (shells = 0 in agent.toml)"
        code, error = await refusal(jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id)).read())
        assert code is grpc.StatusCode.FAILED_PRECONDITION and host.refuses in str(error)


async def test_a_host_that_has_a_session_is_waited_for(controller: Controller, jobs: Any) -> None:
    """After a restart of the controller its other connection may come a moment later."""
    async with launched(controller, jobs) as job_id, asyncio.TaskGroup() as tasks:
        call = jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id))
        first = tasks.create_task(call.read())
        await asyncio.sleep(0.2)
        assert not first.done()
        host = Host(controller)
        serving = tasks.create_task(host.serve())
        assert (await first).host == "host-0"
        call.cancel()
        host.call.cancel()
        serving.cancel()


async def test_a_host_that_is_not_connected_is_named(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_shells, "FOLLOWS_WITHIN_S", 0.1)
    async with launched(controller, jobs) as job_id:
        code, error = await refusal(jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id)).read())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "The host of rank 0, host-0, is not connected; try again once it is." in str(error)


async def test_no_one_else_opens_one_or_types_into_it(controller: Controller, jobs: Any) -> None:
    bob = job_stub(controller.channel("user/bob"))  # an admin of everything
    async with running(controller, jobs) as (job_id, host):
        call = jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id))
        name = (await call.read()).shell
        code, _ = await refusal(bob.OpenShell(job_pb2.OpenShellRequest(id=job_id)).read())
        assert code is grpc.StatusCode.PERMISSION_DENIED
        code, _ = await refusal(bob.WriteShell(job_pb2.WriteShellRequest(id=job_id, shell=name, data=b"x")))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        code, _ = await refusal(jobs.WriteShell(job_pb2.WriteShellRequest(id=job_id, shell="guessed", data=b"x")))
        assert code is grpc.StatusCode.NOT_FOUND
        assert len(host.opened) == 1 and not any(each.data for each in host.given)
        call.cancel()


async def test_it_is_closed_on_its_host_when_its_user_leaves(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (job_id, host):
        call = jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id))
        await call.read()
        call.cancel()
        await until(lambda: host.closed == [host.opened[0].id])


async def test_a_host_that_goes_away_ends_it_in_words(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (job_id, host):
        call = jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id))
        await call.read()
        await host.call.done_writing()
        assert "the connection to host-0 broke" in (await call.read()).problem


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"rank": 99}, "rank"),
        ({"command": [""]}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": ["x" * 1_000] * 200}, "command"),
        ({"term": "a b"}, "term"),
        ({"term": "../../x"}, "term"),
        ({"rows": 100_000}, "rows"),
    ],
)
async def test_a_bad_request_is_refused_with_its_field(
    controller: Controller, jobs: Any, fields: dict[str, Any], path: str
) -> None:
    async with running(controller, jobs) as (job_id, host):
        code, error = await refusal(jobs.OpenShell(job_pb2.OpenShellRequest(id=job_id, **fields)).read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert [each.path for each in error.violations] == [path]  # type: ignore[attr-defined]
        assert not host.opened


async def until(condition: Any) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
