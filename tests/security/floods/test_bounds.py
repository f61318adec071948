"""Absurd values in every place where a caller can put one: each is refused in a sentence, by gRPC and over HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.integration.controller.calls.web.test_http import ann, web
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.integration.controller.conftest import certificates, config, controller
from tests.support.stubs import access_stub, agent_stub, bundle_stub, host_stub, job_stub, secret_stub

from holdfast.v1 import access_pb2, agent_pb2, bundle_pb2, host_pb2, job_pb2, secret_pb2
from holdfast_controller.shell.rest.routes import routes
from holdfast_controller.shell.web.application import Login, login_routes, page

__all__ = ["ann", "certificates", "config", "controller", "web"]
pytestmark = pytest.mark.anyio
DIGITS = "9" * 5_000
ODD = timestamp_pb2.Timestamp(seconds=1, nanos=-(2**31))
LATE = timestamp_pb2.Timestamp(seconds=253_402_300_800)
AGES = duration_pb2.Duration(seconds=2**61)


def absurd(channel: grpc.aio.Channel) -> list[tuple[Any, Any, str]]:
    """A call, its request, and the field that its refusal names."""
    jobs, hosts, access = job_stub(channel), host_stub(channel), access_stub(channel)
    return [
        (jobs.ListJobs, job_pb2.ListJobsRequest(page_token=DIGITS), "pageToken"),
        (jobs.ListJobs, job_pb2.ListJobsRequest(page_token="٣"), "pageToken"),
        (jobs.ListJobs, job_pb2.ListJobsRequest(page_size=-1), "pageSize"),
        (jobs.ListJobs, job_pb2.ListJobsRequest(page_size=2**31 - 1), "pageSize"),
        (jobs.ListJobs, job_pb2.ListJobsRequest(filter=" " * 100_000), "filter"),
        (hosts.GetHost, host_pb2.GetHostRequest(name="x" * 100_000), "name"),
        (hosts.Uncordon, host_pb2.UncordonRequest(name="h", request_id="x" * 129), "requestId"),
        (jobs.CreateJob, job_pb2.CreateJobRequest(request_id="x" * 4_000_000, job=job()), "requestId"),
        (hosts.Cordon, host_pb2.CordonRequest(name="h", start=LATE), "start"),
        (hosts.Cordon, host_pb2.CordonRequest(name="h", reason="x" * 5_000), "reason"),
        (hosts.Drain, host_pb2.DrainRequest(name="h", deadline=AGES), "deadline"),
        (hosts.Drain, host_pb2.DrainRequest(name="h", end=ODD), "end"),
        (access.CreateToken, access_pb2.CreateTokenRequest(user="ann", ttl=AGES), "ttl"),
        (access.ReadAudit, access_pb2.ReadAuditRequest(limit=-7), "limit"),
        (access.AddUser, access_pb2.AddUserRequest(name="u", accounts=["a"] * 17), "accounts"),
        (access.SetMotd, access_pb2.SetMotdRequest(text="x" * 20_000), "text"),
        (access.SetMotd, access_pb2.SetMotdRequest(text="x" * 5_000), "text"),
        (bundle_stub(channel).GetBundle, bundle_pb2.GetBundleRequest(digest="f" * 100_000), "digest"),
        (secret_stub(channel).SetSecret, secret_pb2.SetSecretRequest(name="s", value=b"x" * 70_000), "value"),
    ]


async def test_absurd_values_are_refused_by_the_name_of_their_field(controller: Controller) -> None:
    for call, request, field in absurd(controller.channel("user/ann")):
        code, error = await refusal(call(request, timeout=WITHIN_S))
        assert code is grpc.StatusCode.INVALID_ARGUMENT, (request, error)
        assert f"\n  {field}: " in str(error)
    # And the times that were refused have made nothing unprintable.
    hosts = host_stub(controller.channel("user/ann"))
    await hosts.ListHosts(host_pb2.ListHostsRequest(), timeout=WITHIN_S)


async def test_streams_of_absurd_values_end_with_a_sentence(controller: Controller) -> None:
    channel = controller.channel("user/ann")
    jobs = job_stub(channel)
    name = (await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
    for call, field in (
        (jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, since=LATE), timeout=WITHIN_S), "since"),
        (jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, tail_lines=-1), timeout=WITHIN_S), "tailLines"),
        (jobs.StreamLogs(job_pb2.StreamLogsRequest(id=name, ranks=[1, -1]), timeout=WITHIN_S), "ranks"),
    ):
        code, error = await refusal(call.read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert f"\n  {field}: " in str(error)
    opened = bundle_pb2.UploadBundleRequest(open=bundle_pb2.UploadOpen(digest="f" * 64, size=-1))
    code, error = await refusal(bundle_stub(channel).UploadBundle(iter([opened]), timeout=WITHIN_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "open.size: -1 is out of range" in str(error)


@pytest.mark.parametrize(
    ("address", "field"),
    [
        (f"/v1/jobs?pageToken={DIGITS}", "pageToken"),
        (f"/v1/jobs?pageSize={DIGITS}", "pageSize"),
        ("/v1/jobs?pageSize=-1", "pageSize"),
        ("/v1/jobs?pageSize=1e400", "pageSize"),
        ("/v1/jobs?pageSize=NaN", "pageSize"),
        ("/v1/jobs?pageSize=٣", "pageSize"),
        ("/v1/jobs?pageSize=1001", "pageSize"),
        ("/v1/jobs?filter=" + "+" * 20_000, "filter"),
        (f"/v1/hosts?pageToken={DIGITS}", "pageToken"),
        (f"/v1/jobs/x:watch?cursor={DIGITS}", "cursor"),
        (f"/v1/jobs/x:logs?tailLines={DIGITS}", "tailLines"),
        (f"/v1/jobs/x:logs?rank=0,{DIGITS}", "rank"),
        ("/v1/jobs/x:logs?since=10000-01-01T00:00:00Z", "since"),
    ],
)
async def test_absurd_values_are_refused_over_http_too(ann: httpx.AsyncClient, address: str, field: str) -> None:
    answer = await ann.get(address)
    assert answer.status_code == 400, answer.text
    assert field in answer.text


@pytest.mark.parametrize(
    "content",
    ["[" * 200_000, '{"jobSpec":' * 50_000, '{"displayName": ' + DIGITS + "}", '{"labels": {"a": 1e400}}'],
)
async def test_absurd_bodies_are_refused_over_http(ann: httpx.AsyncClient, content: str) -> None:
    answer = await ann.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text


STREAMS = {"Gate.watch", "Gate.logs", "Pages.changes", "Pages.stacks", "Pages.shell", "Pages.evidence"}
LOGINS = {"Login.sign_in", "Login.sign_out"}
FILES = {"page.<locals>.asset", "page.<locals>.shell"}
"""Answers from memory, which read nothing of the request but its address."""


def unbounded(routes: Iterable[Any]) -> Iterator[str]:
    """Addresses whose endpoint takes no place among the bounded calls, streams or logins."""
    for route in routes:
        name = getattr(route.endpoint, "__qualname__", "")
        source = inspect.getsource(route.endpoint)
        stream = name in STREAMS and ("streams.response(" in source or "self._many(" in source)
        login = name in LOGINS and 'with self._bounds.call(""):' in source
        if not (name.startswith("bounded.<locals>.") or stream or login or name in FILES):
            yield route.path


async def test_every_address_over_http_is_among_the_bounded_calls_streams_or_logins() -> None:
    over_grpc: Any = None
    found: list[Any] = [*routes(over_grpc), *login_routes(Login(over_grpc)), *page(over_grpc).routes]
    assert {route.path for route in found} >= {"/v1/jobs", "/v1/changes", "/web/login", "/{path:path}"}
    assert list(unbounded(found)) == []


async def planted(request: Request) -> Response:
    """An endpoint that holds a caller as long as it takes to send what it wants."""
    return Response(await request.body())


async def test_an_address_without_a_place_is_found() -> None:
    assert list(unbounded([Route("/v1/planted", planted)])) == ["/v1/planted"]


async def test_one_absurd_report_of_a_host_does_not_cost_its_session(controller: Controller) -> None:
    async with controller.agent() as agent:
        wrong = agent_pb2.WorkerReport(job_id="x" * 5_000, worker="workerpool0-0")
        await agent.call.write(agent_pb2.SessionRequest(worker_report=wrong))
        await agent.call.write(agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat()))
        await agent.until(lambda a: any(m.WhichOneof("message") == "heartbeat_ack" for m in a.said))
    hello = agent_pb2.Hello(agent_version="1", boot_id="b" * 300)
    call = agent_stub(controller.channel("host/host-1")).Session(iter([agent_pb2.SessionRequest(hello=hello)]))
    code, error = await refusal(call.read())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "hello.bootId: has 300 bytes; at most 255 are allowed" in str(error)
