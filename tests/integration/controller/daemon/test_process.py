"""The controller as a process: killed, doubled, on a full disk."""

from __future__ import annotations

import asyncio
import resource
import signal
from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S, job
from tests.integration.controller.process import Process, ended, stub

from holdfast.v1 import job_pb2


async def test_killed_controller_remembers_every_job_that_it_accepted(daemon: Process) -> None:
    accepted: list[str] = []

    async def submit_on(jobs: Any) -> None:
        while True:
            answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
            accepted.append(answer.job.id)

    for _ in range(2):
        process = daemon.start()
        controller = await daemon.ready(process)
        before = len(accepted)
        submitting = asyncio.gather(*(submit_on(stub(controller)) for _ in range(4)), return_exceptions=True)
        async with asyncio.timeout(WITHIN_S):
            while len(accepted) < before + 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        await ended(process)
        await submitting
        await controller.close()
    controller = await daemon.ready(daemon.start())
    for name in accepted:
        await stub(controller).GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)
    listed = await stub(controller).ListJobs(job_pb2.ListJobsRequest(page_size=1000), timeout=WITHIN_S)
    assert len(listed.jobs) == len({one.id for one in listed.jobs}) >= len(accepted)
    await controller.close()


async def test_job_runs_on_over_the_controller_s_death_and_the_watch_resumes(daemon: Process) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        name = (await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
        await agent.until(lambda a: "RUN" in a.phases(name))
        call = stub(controller).WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S)
        seen = [await call.read() for _ in range(4)]
        process.kill()
        await ended(process)
        await agent.until(lambda a: a.over)
    await controller.close()
    controller = await daemon.ready(daemon.start())
    from holdfast.v1 import agent_pb2

    known = agent_pb2.WorkerReport(
        job_id=name, attempt=1, generation=1, worker="workerpool0-0", state=agent_pb2.REPORTED_STATE_RUNNING
    )
    async with controller.agent(workers=(known,)) as agent:
        await agent.until(lambda a: a.phases(name) == ["RUN"])
        assert agent.said[0].welcome.epoch == 2
        await agent.exit(name, 0)
        request = job_pb2.WatchJobRequest(id=name, cursor=seen[-1].cursor)
        rest = [event.type async for event in stub(controller).WatchJob(request, timeout=WITHIN_S)]
    assert [event.type for event in seen] == ["JobSubmitted", "JobPlaced", "GangLaunched", "GangStarted"]
    assert rest == ["RankExited", "JobEnding", "WorkerEmptied", "JobEnded"]
    await controller.close()


async def test_second_controller_on_the_same_store_is_refused_in_a_sentence(daemon: Process) -> None:
    first = daemon.start()
    controller = await daemon.ready(first)
    assert await ended(daemon.start()) == 1
    assert f"holdfast-controller: Another controller (pid {first.pid}) runs on " in daemon.log
    assert "Stop it first, or name another state_dir." in daemon.log
    assert "Traceback" not in daemon.log
    await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    await controller.close()


async def test_disk_that_takes_no_more_ends_the_process_and_what_was_accepted_stays(daemon: Process) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    jobs = stub(controller)
    accepted = [
        (await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id for _ in range(3)
    ]
    size = (daemon.root / "state/holdfast.db-wal").stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
    with pytest.raises(grpc.aio.AioRpcError):  # noqa: PT012
        for _ in range(1000):
            answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
            accepted.append(answer.job.id)
    assert await ended(process) == 1
    assert "cannot be written" in daemon.log
    await controller.close()
    controller = await daemon.ready(daemon.start())
    listed = await stub(controller).ListJobs(job_pb2.ListJobsRequest(page_size=1000), timeout=WITHIN_S)
    assert [one.id for one in listed.jobs][: len(accepted)] == accepted
    await controller.close()


async def test_told_to_stop_it_ends_well(daemon: Process) -> None:
    process = daemon.start()
    controller = await daemon.ready(process)
    name = (await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
    watching = stub(controller).WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S)
    await watching.read()
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        process.terminate()
        assert await ended(process) == 0
        await agent.until(lambda a: a.over)
    with pytest.raises(grpc.aio.AioRpcError) as cut:  # noqa: PT012
        while await watching.read() is not grpc.aio.EOF:
            pass
    assert (cut.value.code(), cut.value.details()) == (grpc.StatusCode.UNAVAILABLE, "The controller stops.")
    assert "Traceback" not in daemon.log
    assert "never retrieved" not in daemon.log
    await controller.close()


def test_address_that_is_taken_is_named(daemon: Process) -> None:
    import socket

    config = daemon.root / "controller.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(config.read_text().replace("127.0.0.1:0", address))
        assert daemon.start().wait(30) == 1
    assert f"holdfast-controller: Cannot listen on {address}." in daemon.log
    assert "Traceback" not in daemon.log
