"""Calls whose requests never end: what one caller has sent of them doesn't fill the controller's memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import psutil
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.integration.controller.conftest import certificates, config, controller, daemon
from tests.integration.controller.process import Process
from tests.support.raw_calls import RawCalls, prefix
from tests.support.stubs import access_stub, job_stub

from holdfast._base.identity import Kind
from holdfast.errors import DeadlineExceeded, InvalidInput, TooMany
from holdfast.v1 import access_pb2, bundle_pb2, bundle_pb2_grpc, job_pb2
from holdfast_controller.shell.calls import caller_limits, receiving
from holdfast_controller.shell.calls.bounds import MESSAGE_BYTES

__all__ = ["certificates", "config", "controller", "daemon"]
pytestmark = pytest.mark.anyio
UPLOAD = "/holdfast.v1.BundleService/UploadBundle"
CREATE = "/holdfast.v1.JobService/CreateJob"
SESSION = "/holdfast.v1.AgentService/Session"
MB = 1 << 20
GROWTH_MB = 250
SENT_MOST_MB = 3 * GROWTH_MB
"""An attack that got so much through has done its harm."""
OF_ONE_CONNECTION = 1_000
UNKNOWN_FIELD = b"\xfa\x3f\x80\x80\x08" + bytes(128 << 10)


async def unfinished(port: int, files: Any, method: str, size: int) -> list[RawCalls]:
    """Two connections with as many calls as each carries, all but the last bytes of whose messages are sent."""
    part = prefix(size) + bytes(size - 100)
    made = [await RawCalls.connect(port, files) for _ in range(2)]
    loop = asyncio.get_running_loop()
    sending = [
        loop.create_task(each.send(each.begin(method), part)) for each in made for _ in range(OF_ONE_CONNECTION)
    ]
    before = -1
    while before < (sent := sum(each.sent for each in made)) < SENT_MOST_MB * MB:
        before = sent
        await asyncio.sleep(2)
    for task in sending:
        task.cancel()
    await asyncio.wait(sending)
    return made


@pytest.mark.parametrize(
    ("who", "method", "size"),
    [
        ("user/bob", UPLOAD, 900_000),
        ("user/bob", CREATE, MESSAGE_BYTES),
        ("host/host-0", SESSION, MESSAGE_BYTES),
        ("host/host-0", CREATE, MESSAGE_BYTES),
    ],
    ids=["uploads", "calls of a user", "sessions of a host", "calls of a host"],
)
async def test_thousands_of_calls_that_are_never_finished_take_little_memory_and_others_go_on(
    daemon: Process, who: str, method: str, size: int
) -> None:
    process = daemon.start()
    served = await daemon.ready(process)
    ann = job_stub(served.channel("user/ann"))
    await ann.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    quiet = memory_mb(process.pid)
    made = await unfinished(served.port, served.certificates.files[who], method, size)
    grown = memory_mb(process.pid) - quiet
    await ann.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    for each in made:
        await each.close()
    await ann.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    await served.close()
    assert grown < GROWTH_MB, f"{grown:.0f} MB for {sum(each.sent for each in made) / MB:.0f} MB sent"
    assert "Traceback" not in daemon.log


def memory_mb(pid: int) -> float:
    return float(psutil.Process(pid).memory_full_info().pss) / MB


async def test_a_user_with_many_uploads_in_progress_is_told_to_wait(controller: Controller) -> None:
    channel = controller.channel("user/bob")

    async def held() -> AsyncIterator[bundle_pb2.UploadBundleRequest]:
        opened = bundle_pb2.UploadOpen(digest="a" * 64, size=1, offset=0)
        yield bundle_pb2.UploadBundleRequest(open=opened)
        await asyncio.sleep(WITHIN_S)

    stub: Any = bundle_pb2_grpc.BundleServiceStub(channel)
    uploads = [stub.UploadBundle(held(), timeout=WITHIN_S) for _ in range(9)]
    code, error = await next(asyncio.as_completed([refusal(each) for each in uploads]))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert isinstance(error, TooMany)
    said = "bob has 8 uploads in progress, which is the most for one user. Wait until some are complete."
    assert str(error) == said
    for upload in uploads:
        upload.cancel()


async def test_requests_that_do_not_come_hold_up_their_own_caller_for_a_while(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "COMING_MOST", 1)
    monkeypatch.setattr(receiving, "RECEIVE_S", 3.0)
    first, has_place = receiving._first, asyncio.Event()

    def noted(context: Any) -> Any:
        has_place.set()
        return first(context)

    monkeypatch.setattr(receiving, "_first", noted)
    raw = await RawCalls.connect(controller.port, controller.certificates.files["user/bob"])
    await raw.send(raw.begin(CREATE), prefix(100) + b"x")
    async with asyncio.timeout(WITHIN_S):
        await has_place.wait()  # the next call comes over another connection, and may be served before
    bob, ann = (job_stub(controller.channel(f"user/{who}")) for who in ("bob", "ann"))
    waiting = bob.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    waiting.add_done_callback(lambda _: None)
    await ann.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    assert not raw.ended and not waiting.done()
    try:
        await waiting
    except grpc.aio.AioRpcError:
        code, error = await refusal(waiting)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED and isinstance(error, DeadlineExceeded)
    async with asyncio.timeout(WITHIN_S):
        await raw.first_end.wait()
    audit = await access_stub(controller.channel("user/ann")).ReadAudit(
        access_pb2.ReadAuditRequest(refused=True), timeout=WITHIN_S
    )
    assert {(entry.who, entry.call) for entry in audit.entries} == {("user/bob", "JobService/CreateJob")}
    await bob.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    await raw.close()


async def test_large_requests_of_streams_that_are_open_keep_out_further_ones_and_no_small_ones(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "LARGE_MOST", 1)
    monkeypatch.setattr(receiving, "COMING_MOST", 1)
    async with controller.agent():
        bob = job_stub(controller.channel("user/bob"))
        made = (await bob.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
        follow: Any = controller.channel("user/bob").unary_stream(
            "/holdfast.v1.JobService/WatchJob", lambda asked: asked.SerializeToString() + UNKNOWN_FIELD
        )
        following = follow(job_pb2.WatchJobRequest(id=made))
        await following.read()
        code, error = await refusal(follow(job_pb2.WatchJobRequest(id=made)).read())
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 streams with requests of more than 64 KiB are open" in str(error)
        await bob.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
        following.cancel()


@pytest.mark.parametrize("body", [b"\xff" * 100, b""], ids=["no message of ours", "none"])
async def test_a_request_that_is_none_is_refused_in_words(controller: Controller, body: bytes) -> None:
    channel = controller.channel("user/bob")
    call: Any = channel.stream_unary(CREATE, request_serializer=bytes)(iter([body] if body else []))
    code, error = await refusal(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, InvalidInput)


async def test_a_large_request_that_is_refused_before_it_is_read_is_told_why(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(caller_limits.CALLS_MOST, Kind.USER, 0)
    bob = job_stub(controller.channel("user/bob"))
    asked = job_pb2.CreateJobRequest(job=job_pb2.CustomJob(display_name="x" * 3 * MB))
    code, error = await refusal(bob.CreateJob(asked, timeout=WITHIN_S))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(error).startswith("bob has 0 calls in progress")
