"""What jobs take of the controller's disk has an owner and a limit, over restarts too; deleting jobs frees it."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.integration.controller.process import Process, ended, stub
from tests.support.stubs import cluster_stub

from holdfast._base.rpc_status import from_rpc_error
from holdfast.v1 import cluster_pb2, job_pb2

PADDING = "x" * 60_000
MIB = 1 << 20


async def submitted(controller: Controller) -> str:
    """A job that takes 200 kB, of a user who may have 1 MiB."""
    asked = job()
    asked.job_spec.worker_pool_specs[0].process_spec.args.append(PADDING)
    answer = await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=asked), timeout=WITHIN_S)
    return str(answer.job.id)


async def submit_on(controller: Controller, accepted: list[str]) -> None:
    while len(accepted) < 100:
        accepted.append(await submitted(controller))


async def stored(controller: Controller, who: str) -> dict[str, cluster_pb2.StoredBytes]:
    call = cluster_stub(controller.channel(f"user/{who}")).GetStatus
    found = await call(cluster_pb2.GetStatusRequest(), timeout=WITHIN_S)
    return {each.subject: each for each in found.stored}


async def test_jobs_of_a_user_have_a_limit_and_deleting_them_frees_it(daemon: Process) -> None:
    config = daemon.root / "controller.toml"
    config.write_text(config.read_text() + "[retention]\nuser_mb = 1\n")
    process = daemon.start()
    controller = await daemon.ready(process)
    accepted: list[str] = []
    with pytest.raises(grpc.aio.AioRpcError) as full:
        await submit_on(controller, accepted)
    said = str(from_rpc_error(full.value))
    assert said.startswith("The jobs of ann take 1 MiB of the controller's disk; a user's may take 1.")
    assert "None of them has ended: cancel one and delete it." in said
    assert "holdfast usage" in said
    before = await stored(controller, "ann")
    assert before["user/ann"].jobs == len(accepted)
    assert before["user/ann"].limit_bytes == MIB <= before["user/ann"].bytes
    assert before[f"job/{accepted[0]}"].bytes > 2 * len(PADDING)

    process.terminate()
    assert await ended(process) == 0
    await controller.close()
    controller = await daemon.ready(daemon.start())
    async with asyncio.timeout(WITHIN_S):
        after = await stored(controller, "ann")
        while "user/ann" not in after or after["user/ann"].bytes < before["user/ann"].bytes:
            after = await stored(controller, "ann")
            await asyncio.sleep(0.1)
    assert after["user/ann"].bytes < 1.1 * before["user/ann"].bytes
    with pytest.raises(grpc.aio.AioRpcError):
        await submitted(controller)
    for each in accepted[:2]:
        await stub(controller).CancelJob(job_pb2.CancelJobRequest(id=each), timeout=WITHIN_S)
    with pytest.raises(grpc.aio.AioRpcError) as full:
        await submitted(controller)
    named = [each for each in accepted[:2] if f"holdfast job delete {each}" in (str(from_rpc_error(full.value)))]
    assert named, "a job that has ended is named, with what to type"
    for each in accepted[:2]:
        await stub(controller).DeleteJob(job_pb2.DeleteJobRequest(id=each), timeout=WITHIN_S)
    assert await submitted(controller)
    await controller.close()
