"""A controller without descriptors or memory: it keeps what it has acknowledged, and is well again."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import grpc
import psutil
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.integration.controller.conftest import certificates, config, daemon
from tests.integration.controller.process import Process, ended, stub

from holdfast.v1 import job_pb2

__all__ = ["certificates", "config", "daemon"]
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def submitted(jobs: Any) -> str:
    answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    return str(answer.job.id)


async def listed(jobs: Any) -> set[str]:
    answer = await jobs.ListJobs(job_pb2.ListJobsRequest(page_size=1000), timeout=WITHIN_S)
    return {each.id for each in answer.jobs}


@contextlib.contextmanager
def connections(port: int, most: int) -> Iterator[None]:
    """So many at once that say nothing, or as many as are taken."""
    with contextlib.ExitStack() as held:
        for _ in range(most):
            each = held.enter_context(socket.socket())
            each.settimeout(1)
            with contextlib.suppress(OSError):
                each.connect(("127.0.0.1", port))
        yield


async def test_connections_without_a_certificate_leave_the_controller_descriptors_for_its_own_files(
    daemon: Process,
) -> None:
    """More of them than it may open files, from callers without a certificate."""
    process = daemon.start("prlimit", "--nofile=256:256")
    controller = await daemon.ready(process)
    jobs = stub(controller)
    before = await submitted(jobs)
    with connections(controller.port, 400):
        await asyncio.sleep(1)
        during = await submitted(jobs)  # over a connection that is there
    assert process.poll() is None, daemon.log
    await controller.close()
    again = Controller(controller.port, controller.certificates)
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await listed(stub(again)) == {before, during}
                break
            await asyncio.sleep(0.5)
    assert "Traceback" not in daemon.log
    await again.close()


async def test_a_controller_out_of_memory_acknowledges_nothing_that_it_does_not_keep(daemon: Process) -> None:
    """It refuses, or ends; the next one has all that was acknowledged."""
    process = daemon.start()
    controller = await daemon.ready(process)
    jobs = stub(controller)
    accepted = {await submitted(jobs) for _ in range(3)}
    limits = resource.prlimit(process.pid, resource.RLIMIT_AS)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (psutil.Process(process.pid).memory_info().vms, limits[1]))
    large = job(labels={f"label-{n}": "x" * 60 for n in range(60)})
    with contextlib.suppress(grpc.aio.AioRpcError):
        for _ in range(40):
            answer = await jobs.CreateJob(job_pb2.CreateJobRequest(job=large), timeout=5)
            accepted.add(answer.job.id)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, 5)
    process.kill()  # as its service manager does with one that doesn't end
    await ended(process)
    await controller.close()
    controller = await daemon.ready(daemon.start())
    assert accepted <= await listed(stub(controller))
    await controller.close()
