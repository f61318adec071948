"""``ListHostEvents`` over gRPC and HTTP: pages, times, kinds, and what is refused."""

from __future__ import annotations

from typing import Any

import grpc
import httpx
import pytest
from tests.integration.controller.calls.web.test_http import fields, web
from tests.integration.controller.cluster import WITHIN_S, Controller, refusal
from tests.integration.controller.web import Web
from tests.support.stubs import host_stub

from holdfast.v1 import agent_pb2, host_pb2

__all__ = ["web"]


async def a_history(controller: Controller) -> Any:
    """A host that joined, was cordoned four times by ann, and whose agent was stopped."""
    hosts = host_stub(controller.channel("user/ann"))
    async with controller.agent() as agent:
        for count in range(4):
            asked = host_pb2.CordonRequest(name="host-0", reason=f"look {count}")
            await hosts.Cordon(asked, timeout=WITHIN_S)
        await agent.call.write(agent_pb2.SessionRequest(agent_stopping=agent_pb2.AgentStopping()))
        await agent.call.done_writing()
        await agent.until(lambda a: a.over)
    return hosts


async def listed(hosts: Any, **asked: Any) -> host_pb2.ListHostEventsResponse:
    request = host_pb2.ListHostEventsRequest(name="host-0", **asked)
    answer: host_pb2.ListHostEventsResponse = await hosts.ListHostEvents(request, timeout=WITHIN_S)
    return answer


def kinds(page: host_pb2.ListHostEventsResponse) -> list[str | None]:
    return [entry.event.WhichOneof("kind") for entry in page.events]


async def test_a_history_says_what_happened_when_by_whom_and_why(controller: Controller) -> None:
    hosts = await a_history(controller)
    page = await listed(hosts)
    assert kinds(page) == ["joined", *["cordoned"] * 4, "agent_stopped"] and page.next_page_token == ""
    joined, cordoned = page.events[0].event.joined, page.events[1]
    assert joined.first and not joined.rebooted and joined.gpu_count == 4
    assert (cordoned.event.cordoned.by, cordoned.event.cordoned.reason) == ("ann", "look 0")
    assert cordoned.message == "host-0 cordoned by ann: look 0"
    shown = (await hosts.GetHost(host_pb2.GetHostRequest(name="host-0"), timeout=WITHIN_S)).host
    assert shown.agent_stopped_at.seconds == page.events[-1].time.seconds


@pytest.mark.parametrize("newest", [False, True])
async def test_pages_together_are_the_whole_history(controller: Controller, newest: bool) -> None:
    hosts = await a_history(controller)
    whole = [entry.cursor for entry in (await listed(hosts)).events]
    pages, token = [], ""
    while True:
        page = await listed(hosts, page_size=2, page_token=token, newest=newest)
        pages.append([entry.cursor for entry in page.events])
        token = page.next_page_token
        if not token:
            break
    assert [len(page) for page in pages] == [2, 2, 2]
    ordered = pages[::-1] if newest else pages
    assert [cursor for page in ordered for cursor in page] == whole


async def test_since_leaves_out_what_is_older(controller: Controller) -> None:
    hosts = await a_history(controller)
    whole = (await listed(hosts)).events
    assert [e.cursor for e in (await listed(hosts, since=whole[3].time)).events] == [e.cursor for e in whole[3:]]


async def test_unknown_hosts_and_foreign_tokens_are_refused(controller: Controller) -> None:
    hosts = await a_history(controller)
    unknown = host_pb2.ListHostEventsRequest(name="host-9")
    code, error = await refusal(hosts.ListHostEvents(unknown))
    assert code is grpc.StatusCode.NOT_FOUND and error.fix == "See: holdfast host list"
    for token in ("-1", "x", "9" * 30):
        code, _ = await refusal(listed(hosts, page_token=token))
        assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_http_has_the_same_history(web: Web) -> None:
    await a_history(web.controller)
    async with web.as_("user/ann") as ann:
        page = (await ann.get("/v1/hosts/host-0/events", params={"pageSize": 2, "newest": "true"})).json()
        assert [entry["event"]["kind"] for entry in page["events"]] == ["cordoned", "agent_stopped"]
        cordoned = page["events"][0]
        assert cordoned["event"]["by"] == "ann" and cordoned["message"] == "host-0 cordoned by ann: look 3"
        since = {"since": cordoned["time"]}
        later: httpx.Response = await ann.get("/v1/hosts/host-0/events", params=since)
        assert [entry["cursor"] for entry in later.json()["events"]] == [e["cursor"] for e in page["events"]]
        wrong = await ann.get("/v1/hosts/host-0/events", params={"since": "yesterday"})
        assert wrong.status_code == 400 and fields(wrong) == ["since"]
        assert (await ann.get("/v1/hosts/host-9/events")).status_code == 404
