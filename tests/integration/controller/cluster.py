"""Callers of a controller under test: users, and an agent that says what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from tests.support.stubs import agent_stub

from holdfast._base import rpc_status
from holdfast._security import tls
from holdfast._security.tls import SERVER_NAME, TlsFiles
from holdfast.errors import HoldfastError
from holdfast.v1 import agent_pb2, host_pb2, job_pb2, spec_pb2

WITHIN_S = 180.0


@dataclass
class Certificates:
    directory: Path
    files: dict[str, TlsFiles]


class OneWriter:
    """A stream whose writers wait for each other: gRPC ends one that two tasks write to at once."""

    def __init__(self, call: Any) -> None:
        self.read = call.read
        self.done_writing = call.done_writing
        self.cancel = call.cancel
        self.code = call.code
        self._call = call
        self._writing = asyncio.Lock()

    async def write(self, message: Any) -> None:
        async with self._writing:
            await self._call.write(message)


@dataclass
class Controller:
    """Where it is served, and open channels to it."""

    port: int
    certificates: Certificates
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    def channel(self, who: str) -> grpc.aio.Channel:
        credentials = tls.channel_credentials(self.certificates.files[who])
        options = [("grpc.ssl_target_name_override", SERVER_NAME)]
        channel = grpc.aio.secure_channel(f"127.0.0.1:{self.port}", credentials, options)
        self.channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close(None)

    @asynccontextmanager
    async def agent(
        self, host: str = "host-0", gpus: int = 4, workers: tuple[Any, ...] = (), **said: Any
    ) -> AsyncIterator[Agent]:
        """A session of an agent that obeys, until the block is left; ``said`` are further fields of its hello."""
        call = OneWriter(agent_stub(self.channel(f"host/{host}")).Session())
        agent = Agent(host, call)
        await agent.hello(gpus, workers, **said)
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(agent.read())
            # A job that comes before the hello is taken in would wait in the queue first.
            await agent.until(lambda a: a.said or a.over)
            yield agent
            call.cancel()
            reader.cancel()


@dataclass
class Agent:
    """Prepares and runs what it is assigned, and stops it; ``obey`` False only listens."""

    host: str
    call: Any
    obey: bool = True
    said: list[agent_pb2.SessionResponse] = field(default_factory=list)
    sequence: int = 0
    ended: set[tuple[str, int, int]] = field(default_factory=set)
    over: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def hello(self, gpus: int = 4, workers: tuple[Any, ...] = (), **said: Any) -> None:
        inventory = host_pb2.Inventory(
            cpu_count=16,
            memory_bytes=64 << 30,
            max_workers=8,
            accounts=True,
            gpus=[
                host_pb2.Gpu(uuid=f"{self.host}-{i}", index=i, model="NVIDIA H100 80GB HBM3") for i in range(gpus)
            ],
        )
        usual: dict[str, Any] = {
            "agent_version": "1",
            "boot_id": "boot-1",
            "inventory": inventory,
            "address": "127.0.0.1",
        }
        hello = agent_pb2.Hello(**usual | said, workers=workers)
        await self.call.write(agent_pb2.SessionRequest(hello=hello))

    async def read(self) -> None:
        try:
            while (message := await self.call.read()) is not grpc.aio.EOF:
                self.said.append(message)
                if self.obey and message.WhichOneof("message") == "assignment":
                    await self._answer(message.assignment)
                self._ring()
        except grpc.aio.AioRpcError:
            pass
        finally:
            self.over = True
            self._ring()

    async def _answer(self, order: agent_pb2.Assignment) -> None:
        match order.phase:
            case agent_pb2.ASSIGNMENT_PHASE_PREPARE:
                await self.report(order, agent_pb2.REPORTED_STATE_PREPARED)
            case agent_pb2.ASSIGNMENT_PHASE_RUN:
                await self.report(order, agent_pb2.REPORTED_STATE_RUNNING)
            case agent_pb2.ASSIGNMENT_PHASE_STOP:
                await self.report(order, agent_pb2.REPORTED_STATE_EMPTY)

    async def report(self, order: agent_pb2.Assignment, state: Any, message: str = "") -> None:
        report = agent_pb2.WorkerReport(
            job_id=order.job_id,
            attempt=order.attempt,
            generation=order.generation,
            worker=order.worker,
            state=state,
            port=20001,
            master_port=20002,
            shim_pid=7,
            message=message,
        )
        if state == agent_pb2.REPORTED_STATE_RUNNING:
            report.ranks.add(rank=order.launch.first_rank, pid=8)
        await self.call.write(agent_pb2.SessionRequest(worker_report=report))

    async def exit(
        self, job: str, code: int, *, generation: int = 1, rank: int = 0, worker: str = "workerpool0-0", **more: Any
    ) -> int:
        """Report an exit; its sequence."""
        self.sequence += 1
        reason = job_pb2.EXIT_REASON_NONZERO_EXIT if code else job_pb2.EXIT_REASON_COMPLETED
        ended = job_pb2.Exit(
            **{"attempt": 1, "generation": generation, "rank": rank, "exit_code": code, "reason": reason, **more}
        )
        ended.end_time.GetCurrentTime()
        report = agent_pb2.ExitReport(sequence=self.sequence, job_id=job, worker=worker, exit=ended)
        await self.call.write(agent_pb2.SessionRequest(exit_report=report))
        order = self.newest_order(job, worker)
        if self.obey and order is not None and order.phase == agent_pb2.ASSIGNMENT_PHASE_RUN:
            await self.report(order, agent_pb2.REPORTED_STATE_EMPTY)  # its only rank has ended by itself
        return self.sequence

    def newest_order(self, job: str, worker: str) -> agent_pb2.Assignment | None:
        """What the controller wanted last of a worker."""
        orders = [m.assignment for m in self.said if m.WhichOneof("message") == "assignment"]
        return next((each for each in reversed(orders) if (each.job_id, each.worker) == (job, worker)), None)

    async def exits_together(self, reports: list[agent_pb2.ExitReport]) -> None:
        """Report exits in one message."""
        await self.call.write(agent_pb2.SessionRequest(exit_reports=agent_pb2.ExitReports(reports=reports)))

    async def until(self, test: Callable[[Agent], Any]) -> Any:
        """Wait for what ``test`` finds in what the controller has said."""
        async with asyncio.timeout(WITHIN_S):
            while not (found := test(self)):
                self.news.clear()
                await self.news.wait()
            return found

    def phases(self, job: str) -> list[str]:
        """Phases that were asked for, in order."""
        return [
            agent_pb2.AssignmentPhase.Name(m.assignment.phase).removeprefix("ASSIGNMENT_PHASE_")
            for m in self.said
            if m.WhichOneof("message") == "assignment" and m.assignment.job_id == job
        ]

    def acks(self) -> list[int]:
        return [sequence for together in self.acks_together() for sequence in together]

    def acks_together(self) -> list[list[int]]:
        """Of each message."""
        acks = [m.exit_ack for m in self.said if m.WhichOneof("message") == "exit_ack"]
        return [[ack.sequence, *ack.others] for ack in acks]

    def _ring(self) -> None:
        self.news.set()


def job(name: str = "train", *, replicas: int = 1, gpus: int = 1, **fields: Any) -> job_pb2.CustomJob:
    """A job of one pool of processes."""
    pool = spec_pb2.WorkerPoolSpec(
        replica_count=replicas,
        machine_spec=spec_pb2.MachineSpec(accelerator_type="NVIDIA_H100_80GB", accelerator_count=gpus),
        process_spec=spec_pb2.ProcessSpec(command=["train"]),
    )
    spec = spec_pb2.CustomJobSpec(worker_pool_specs=[pool])
    return job_pb2.CustomJob(display_name=name, job_spec=spec, **fields)


async def refusal(call: Any) -> tuple[grpc.StatusCode, HoldfastError]:
    """The code of a call that is refused, and the error in its details."""
    try:
        async with asyncio.timeout(WITHIN_S):
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), rpc_status.from_rpc_error(error)
    raise AssertionError("the call was not refused")
