"""``StreamLogs`` through an agent's ``Transfer``: order, credit, hosts that go away."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, OneWriter, job, refusal
from tests.support.stubs import agent_stub, job_stub

from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.shell.services.streams import read_logs, reading, transfers

OUT, ERR = job_pb2.LOG_STREAM_STDOUT, job_pb2.LOG_STREAM_STDERR


@dataclass
class Files:
    """The transfer stream of an agent that has these bytes, and sends no more than it has credit for."""

    call: Any
    contents: dict[tuple[int, int], bytes]
    orders: list[agent_pb2.TransferResponse] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)
    credit: dict[int, int] = field(default_factory=dict)
    chunk: int = 1000
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        try:
            await self.call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))
            while (order := await self.call.read()) is not grpc.aio.EOF:
                self.orders.append(order)
                match order.WhichOneof("message"):
                    case "open":
                        self.sent[order.open.id] = order.open.offset
                        self.credit[order.open.id] = order.open.credit_bytes
                        await self._send(order.open)
                    case "credit":
                        opened = next(o.open for o in self.orders if o.open.id == order.credit.id)
                        self.credit[opened.id] += order.credit.bytes
                        await self._send(opened)
                self.news.set()
        except grpc.aio.AioRpcError:
            pass

    async def _send(self, order: agent_pb2.OpenLog) -> None:
        content = self.contents.get((order.rank, order.stream))
        if content is None:
            end = agent_pb2.TransferEnd(id=order.id, problem="no such file")
            await self.call.write(agent_pb2.TransferRequest(end=end))
            return
        while (at := self.sent[order.id]) < len(content):
            size = min(self.chunk, self.credit[order.id])
            if size <= 0:
                return
            data = content[at : at + size]
            self.sent[order.id] += len(data)
            self.credit[order.id] -= len(data)
            chunk = agent_pb2.TransferChunk(id=order.id, offset=at, data=data)
            await self.call.write(agent_pb2.TransferRequest(chunk=chunk))
        if not order.follow:
            await self.call.write(agent_pb2.TransferRequest(end=agent_pb2.TransferEnd(id=order.id)))

    async def until(self, test: Any) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not test(self):
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def files(
    controller: Controller, contents: dict[tuple[int, int], bytes], host: str = "host-0"
) -> AsyncIterator[Files]:
    call = OneWriter(agent_stub(controller.channel(f"host/{host}")).Transfer())
    made = Files(call, contents)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(made.serve())
        yield made
        call.cancel()
        serving.cancel()


@pytest.fixture
def jobs(controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


@asynccontextmanager
async def running(controller: Controller, jobs: Any) -> AsyncIterator[tuple[str, Any]]:
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
        name = answer.job.id
        await agent.until(lambda a: "RUN" in a.phases(name))
        yield name, agent


async def transferring(jobs: Any, name: str) -> None:
    """Wait until the controller can read from the host."""
    async with asyncio.timeout(WITHIN_S):
        while any("not connected" in chunk.problem for chunk in await read(jobs, name)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def joined(chunks: list[job_pb2.StreamLogsResponse], stream: int) -> bytes:
    """The stream's bytes, whose offsets have to join up."""
    content = b""
    for chunk in chunks:
        if chunk.stream == stream and not chunk.problem:
            assert chunk.offset == len(content)
            content += chunk.data
    return content


async def read(jobs: Any, name: str, **asked: Any) -> list[job_pb2.StreamLogsResponse]:
    call = jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, **asked), timeout=WITHIN_S)
    return [chunk async for chunk in call]


async def test_bytes_arrive_exact_past_the_window(controller: Controller, jobs: Any) -> None:
    content = bytes(range(256)) * 8000
    assert len(content) > reading.WINDOW_BYTES
    async with (
        running(controller, jobs) as (name, _),
        files(controller, {(0, OUT): content, (0, ERR): b"oops"}) as host,
    ):
        host.chunk = 60_000
        await transferring(jobs, name)
        chunks = await read(jobs, name)
    assert joined(chunks, OUT) == content
    assert joined(chunks, ERR) == b"oops"
    assert {(chunk.worker, chunk.rank, chunk.generation) for chunk in chunks} == {("workerpool0-0", 0, 1)}


async def test_follower_that_does_not_read_stops_the_agent(
    controller: Controller, jobs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    content = b"x" * (12 << 20)
    async with (
        running(controller, jobs) as (name, _),
        files(controller, {(0, OUT): content, (0, ERR): b""}) as host,
    ):
        host.chunk = 100_000
        call = jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, follow=True), timeout=WITHIN_S)
        await host.until(lambda h: any(h.sent.values()))
        held = -1
        while max(host.sent.values()) != held:
            held = max(host.sent.values())
            await asyncio.sleep(0.3)
        assert held < len(content)
        # A second follower isn't held up by the first.
        other = jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, ranks=[0]), timeout=WITHIN_S)
        assert sum([len(chunk.data) async for chunk in other]) == len(content)
        call.cancel()
        await host.until(lambda h: any(o.WhichOneof("message") == "close" for o in h.orders))
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_host_that_is_away_is_named(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (name, _):
        chunks = await read(jobs, name)
    assert [chunk.problem for chunk in chunks] == ["host-0 is not connected"] * 2


async def test_nobody_waits_for_the_host_of_a_job_that_has_ended(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_logs, "HOST_BACK_WITHIN_S", 10 * WITHIN_S)
    async with running(controller, jobs) as (name, agent):
        await agent.exit(name, 0)
        async for event in jobs.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S):
            if event.state == job_pb2.JOB_STATE_SUCCEEDED:
                break
        chunks = await read(jobs, name, follow=True)
    assert [chunk.problem for chunk in chunks] == ["host-0 is not connected"] * 2


async def test_stream_that_cannot_be_read_says_why(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (name, _), files(controller, {(0, OUT): b"fine"}):
        await transferring(jobs, name)
        chunks = await read(jobs, name)
    assert joined(chunks, OUT) == b"fine"
    assert [chunk.problem for chunk in chunks if chunk.stream == ERR] == ["no such file"]


async def test_follower_goes_on_where_it_was_when_the_host_is_back(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (name, _):
        call = jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, follow=True), timeout=WITHIN_S)
        async with files(controller, {(0, OUT): b"first ", (0, ERR): b""}):
            assert (await call.read()).data == b"first "
        async with files(controller, {(0, OUT): b"first second", (0, ERR): b""}):
            chunk = await call.read()
            assert (chunk.offset, chunk.data) == (6, b"second")
        call.cancel()


async def test_follower_gives_up_on_a_host_that_does_not_return(
    controller: Controller, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_logs, "HOST_BACK_WITHIN_S", 0.1)
    async with running(controller, jobs) as (name, _):
        call = jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, follow=True), timeout=WITHIN_S)
        assert [(await call.read()).problem for _ in range(2)] == ["host-0 is not connected"] * 2
        call.cancel()


async def test_orders_carry_what_was_asked_for(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs) as (name, _), files(controller, {(0, OUT): b"", (0, ERR): b""}) as host:
        await transferring(jobs, name)
        host.orders.clear()
        asked = job_pb2.StreamLogsRequest(id=name, tail_lines=5)
        asked.since.seconds = 77
        async for _ in jobs.StreamLogs(asked, timeout=WITHIN_S):
            pass
        opened = [order.open for order in host.orders if order.WhichOneof("message") == "open"]
    assert sorted(order.stream for order in opened) == [OUT, ERR]
    assert {(o.job_id, o.generation, o.worker, o.tail_lines, o.since.seconds, o.follow) for o in opened} == {
        (name, 1, "workerpool0-0", 5, 77, False)
    }


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"workers": ["nobody"]}, "workers"),
        ({"ranks": [1]}, "ranks"),
        ({"ranks": [-1]}, "ranks"),
        ({"generation": 2}, "generation"),
        ({"end_offset": 5, "follow": True}, "end_offset"),
        ({"end_offset": 5, "offset": 6}, "end_offset"),
        ({"contains": "a\nb"}, "contains"),
        ({"contains": "x" * 1001}, "contains"),
        ({"offset": -1}, "offset"),
        ({"streams": [OUT, ERR, OUT]}, "streams"),
    ],
)
async def test_what_the_job_does_not_have_cannot_be_read(
    controller: Controller, jobs: Any, asked: Any, path: str
) -> None:
    async with running(controller, jobs) as (name, _):
        code, error = await refusal(jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, **asked)).read())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.path for violation in error.violations] == [path]  # type: ignore[attr-defined]


async def test_a_refusal_names_few_of_many_ranks_that_a_job_does_not_have(
    controller: Controller, jobs: Any
) -> None:
    async with running(controller, jobs) as (name, _):
        asked = job_pb2.StreamLogsRequest(id=name, ranks=range(50_000, 50_100), workers=["w"] * 100)
        _, error = await refusal(jobs.StreamLogs(asked).read())
    paths = [violation.path for violation in error.violations]  # type: ignore[attr-defined]
    assert paths == ["workers"] + ["ranks"] * read_logs.NAMED_MOST


async def test_logs_of_a_queued_job_are_empty_and_end_with_it(controller: Controller, jobs: Any) -> None:
    answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    name = answer.job.id
    assert await read(jobs, name) == []
    following = asyncio.gather(read(jobs, name, follow=True))
    await asyncio.sleep(0.1)
    assert not following.done()
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=name), timeout=WITHIN_S)
    assert list(await following) == [[]]


async def test_a_search_is_the_hosts_work_and_an_older_agent_is_named(controller: Controller, jobs: Any) -> None:
    async with (
        running(controller, jobs) as (name, _),
        files(controller, {(0, OUT): b"one\ntwo\n", (0, ERR): b""}) as host,
    ):
        await transferring(jobs, name)
        said = await read(jobs, name, contains="two")
        assert {chunk.problem for chunk in said} == {"host-0 can't search: its agent is of an older release"}
        await host.call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello(searches_logs=True)))
        asked = {"contains": "two", "ignore_case": True, "offset": 4, "end_offset": 8, "streams": [OUT]}
        async with asyncio.timeout(WITHIN_S):
            while any(chunk.problem for chunk in await read(jobs, name, **asked)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        order = host.orders[-1].open if host.orders[-1].HasField("open") else host.orders[-2].open
    assert (order.contains, order.ignore_case, order.offset, order.end_offset) == ("two", True, 4, 8)
    assert order.stream == OUT


async def test_a_piece_that_is_refused_ends_its_reading_with_the_reason(controller: Controller, jobs: Any) -> None:
    async with (
        running(controller, jobs) as (name, _),
        files(controller, {(0, OUT): b"", (0, ERR): b""}) as host,
    ):
        await transferring(jobs, name)
        reader = asyncio.gather(read(jobs, name, streams=[OUT], follow=True))
        await host.until(lambda h: h.orders and h.orders[-1].open.follow)
        opened = host.orders[-1].open.id
        chunk = agent_pb2.TransferChunk(id=opened, data=b"a\n" * 1001, line_offsets=range(0, 2002, 2))
        await host.call.write(agent_pb2.TransferRequest(chunk=chunk))
        await host.until(lambda h: h.orders[-1].close.id == opened)
        await jobs.CancelJob(job_pb2.CancelJobRequest(id=name), timeout=WITHIN_S)
        [[said]] = await reader
    assert said.problem.startswith("host-0 sent what is not taken: chunk.lineOffsets: has 1,001 entries")


def test_a_search_has_less_under_way_since_offsets_are_kept_beside_its_lines() -> None:
    asked = transfers.Transfers()
    asked._lines["host-0"] = transfers._Line()
    plain = asked.open("host-0", agent_pb2.OpenLog(), "ann")
    search = asked.open("host-0", agent_pb2.OpenLog(contains="a"), "ann")
    assert plain and search and search.credit * 5 <= plain.credit == reading.WINDOW_BYTES
