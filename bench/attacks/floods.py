"""Floods: messages, streams and refusals without end, by a caller with one certificate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Awaitable, Callable

import grpc.aio
from bench.attacks import Site, attack
from bench.attacks.calls import spec

from holdfast.v1 import agent_pb2, host_pb2, job_pb2

STREAMS = 1_000
STOLEN = "host/stolen"
"""A host of its own, so that the attack is on the controller and not on the cluster's one host."""


@attack("inventories of a stolen host key, each another one", role="host")
async def inventories(site: Site) -> None:
    call = site.agents(STOLEN).Session()
    await call.write(agent_pb2.SessionRequest(hello=_hello(0)))
    number = 0
    while True:
        number += 1
        await call.write(
            agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat(inventory=_hello(number).inventory))
        )


@attack("sessions of a stolen host key, each another host by its words", role="host")
async def hellos(site: Site) -> None:
    agents, number = site.agents(STOLEN), 0
    while True:
        number += 1
        call = agents.Session()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(agent_pb2.SessionRequest(hello=_hello(number)))
            await call.read()
        call.cancel()


@attack("bytes of a stolen host key that nothing asked for", role="host")
async def unasked_bytes(site: Site) -> None:
    call = site.agents(STOLEN).Transfer()
    await call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))
    chunk = agent_pb2.TransferRequest(chunk=agent_pb2.TransferChunk(id=7, data=b"x" * (1 << 20)))
    while True:
        await call.write(chunk)


@attack("refused calls, to wash the audit log away", role="viewer")
async def refusals(site: Site) -> None:
    async def refuse() -> None:
        hosts = site.hosts()
        while True:
            await site.refused(hosts.Cordon(host_pb2.CordonRequest(name="x" * 200)))

    await asyncio.gather(*(refuse() for _ in range(8)))


@attack("1,000 watches of a job that is restarted all the time")
async def watches(site: Site) -> None:
    jobs = site.jobs()
    made = (await jobs.CreateJob(job_pb2.CreateJobRequest(job=_job()))).job
    await asyncio.gather(_held(lambda: jobs.WatchJob(job_pb2.WatchJobRequest(id=made.id))), _churned(site))


@attack("1,000 followers of a job's output")
async def followers(site: Site) -> None:
    jobs = site.jobs()
    made = (await jobs.CreateJob(job_pb2.CreateJobRequest(job=_job()))).job
    await asyncio.gather(
        _held(lambda: jobs.StreamLogs(job_pb2.StreamLogsRequest(id=made.id, follow=True))), _churned(site)
    )


@attack("1,000 watches of all hosts")
async def host_watches(site: Site) -> None:
    hosts = site.hosts()
    await _held(lambda: hosts.WatchHosts(host_pb2.WatchHostsRequest()))


async def _held(begin: Callable[[], AsyncIterable[object]]) -> None:
    """Hold as many streams as are let through; one that is refused tries again."""

    async def hold() -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in begin():
                    pass
            await asyncio.sleep(0.5)

    await asyncio.gather(*(hold() for _ in range(STREAMS)))


async def _churned(site: Site) -> None:
    """Events without end: jobs that are submitted and cancelled."""
    jobs = site.jobs()
    while True:
        made: Awaitable[job_pb2.CreateJobResponse] = jobs.CreateJob(job_pb2.CreateJobRequest(job=_job()))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await jobs.CancelJob(job_pb2.CancelJobRequest(id=(await made).job.id))


def _job() -> job_pb2.CustomJob:
    return job_pb2.CustomJob(display_name="churn", job_spec=spec())


def _hello(number: int) -> agent_pb2.Hello:
    gpus = [
        host_pb2.Gpu(
            uuid=f"g{index}", index=index, model="NVIDIA H100 80GB HBM3", problem=f"{number} {'x' * 3_000}"
        )
        for index in range(64)
    ]
    inventory = host_pb2.Inventory(cpu_count=16, memory_bytes=64 << 30, max_workers=8, gpus=gpus)
    return agent_pb2.Hello(agent_version="0", boot_id=f"b{number}", address="127.0.0.1", inventory=inventory)
