"""Daemons without descriptors, threads or memory: refused at their start, or they keep what they have acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import psutil
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job
from tests.integration.controller.conftest import certificates, config, daemon
from tests.integration.controller.process import Process, ended, stub
from tests.support import machine_parts

from holdfast._daemon import limits
from holdfast.errors import HoldfastError
from holdfast.v1 import job_pb2

__all__ = ["certificates", "config", "daemon"]
pytestmark = pytest.mark.anyio


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


MODULES = {"holdfast-controller": "holdfast_controller", "holdfast-agent": "holdfast_agent"}
PIDS = machine_parts.pids_tree()


def start_of(daemon: str, *before: str) -> tuple[int, str]:
    """Exit status and last words of a daemon that has no settings: it must not come as far as to look for them."""
    own = [sys.executable, "-m", MODULES[daemon], "--config", "/nonexistent/settings.toml"]
    ran = subprocess.run([*before, *own], capture_output=True, text=True, timeout=180, check=False)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("daemon", MODULES)
@pytest.mark.parametrize(
    ("limit", "values", "words"),
    [
        ("nofile", (12, 20, 127), ("open files is", "ulimit -n", "LimitNOFILE=")),
        ("as", (100 << 20, 400 << 20, 2 << 30), ("address space is", "ulimit -v", "MemoryMax=")),
        ("data", (100 << 20, 700 << 20), ("data is", "ulimit -d", "MemoryMax=")),
        ("fsize", (1 << 20,), ("a file's size is", "ulimit -f", "LimitFSIZE=")),
    ],
)
def test_a_limit_that_is_too_low_is_named_at_the_start(
    daemon: str, limit: str, values: tuple[int, ...], words: tuple[str, ...]
) -> None:
    """From what the interpreter itself needs up to just too little: before, gRPC aborted, or a thread was missing."""
    for value in values:
        status, said = start_of(daemon, "prlimit", f"--{limit}={value}:{value}")
        assert status == 2, said
        assert said.startswith(f"{daemon}: The limit on ") and f"{value:,}" in said and said.count("\n") == 1
        assert all(word in said for word in words), said
        assert not re.search(r"  |\d[A-Za-z]", said), "words and figures are a space apart"


@pytest.mark.parametrize("daemon", MODULES)
@pytest.mark.require("pids")
def test_a_daemon_that_can_start_too_few_threads_says_how_many(daemon: str) -> None:
    group = PIDS / f"holdfast-test-{os.getpid()}-{daemon}"
    group.mkdir()
    try:
        (group / "pids.max").write_text("9")
        status, said = start_of(daemon, "sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    finally:
        group.rmdir()
    assert status == 1
    assert said.startswith(f"{daemon}: {daemon} can start 8 threads; it needs ") and "pids.max" in said


async def test_a_controller_with_just_enough_of_everything_serves(daemon: Process) -> None:
    needed = limits.address_space()
    just = (f"--as={needed}:{needed}", f"--nofile={limits.FILES}:{limits.FILES}", f"--data={limits.DATA_BYTES}")
    controller = await daemon.ready(daemon.start("prlimit", *just))
    jobs = stub(controller)
    made = await submitted(jobs)
    assert await listed(jobs) == {made}
    await controller.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "has run out of something: memory"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
    ],
)
def test_what_runs_out_later_is_told_with_the_limits(error: Exception, words: str) -> None:
    with pytest.raises(HoldfastError, match=words) as caught, limits.named("holdfast-agent"):
        raise error
    assert "ulimit -u" in str(caught.value) and "ulimit -v" in str(caught.value)


def test_another_error_is_left_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="a mistake"), limits.named("holdfast-agent"):
        raise RuntimeError("a mistake")
