"""A shell through the page's listener: the calls of ``test_shells`` by a browser, and what ends them there."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.integration.controller.calls.test_shells import Host, running, until
from tests.integration.controller.calls.web.test_web import Site, _served
from tests.integration.controller.calls.web.test_web import config as config
from tests.integration.controller.cluster import Certificates
from tests.integration.controller.web import WITHIN_S
from tests.support.stubs import job_stub, web_stub

from holdfast.v1 import access_pb2, web_pb2
from holdfast_controller.shell.base.config import ControllerConfig

ASKED = {"command": ["sh"], "terminal": True, "rows": 30, "columns": 100, "term": "xterm-256color"}


@pytest.fixture
async def site(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    async for served in _served(config, certificates):
        yield served


@asynccontextmanager
async def job_of(site: Site, who: str = "user/ann") -> AsyncIterator[tuple[str, Host]]:
    async with running(site.controller, job_stub(site.controller.channel(who))) as (job, host):
        yield job, host


@asynccontextmanager
async def opened(browser: httpx.AsyncClient, job: str) -> AsyncIterator[tuple[str, AsyncIterator[Any]]]:
    """A new shell's name, and what comes of it then."""
    async with browser.stream("POST", f"/v1/jobs/{job}:shell", json=ASKED) as response:
        assert response.status_code == 200

        async def parts() -> AsyncIterator[Any]:
            async for line in response.aiter_lines():
                if line:
                    yield json.loads(line)

        read = parts()
        first = await anext(read)
        assert (first["worker"], first["host"]) == ("workerpool0-0", "host-0")
        yield first["shell"], read


async def write(browser: httpx.AsyncClient, job: str, shell: str, data: bytes, **more: Any) -> httpx.Response:
    body = {"shell": shell, "data": base64.b64encode(data).decode(), **more}
    return await browser.post(f"/v1/jobs/{job}:writeShell", json=body)


async def test_keys_window_output_and_the_end_pass_through_the_page(site: Site) -> None:
    async with job_of(site) as (job, host), site.signed_in("user/ann") as ann, opened(ann, job) as (shell, read):
        order = host.opened[0]
        assert (order.terminal, order.rows, order.columns, order.term) == (True, 30, 100, "xterm-256color")
        typed = await write(ann, job, shell, b"l\xff\r", rows=40, columns=120)
        assert (typed.status_code, typed.json()) == (200, {"taken": 3})
        assert (host.given[-1].rows, host.given[-1].columns) == (40, 120)
        assert base64.b64decode((await anext(read))["data"]) == b"L\xff\r"
        await host.end(exit_status=0)
        assert await anext(read) == {"exitStatus": 0}
        assert (await write(ann, job, shell, b"x")).status_code == 404
    async with asyncio.timeout(WITHIN_S):
        read_audit = await site.people.ReadAudit(access_pb2.ReadAuditRequest())
    told = [entry for entry in read_audit.entries if entry.call == "JobService/OpenShell"]
    assert [(entry.who, entry.outcome, entry.peer.partition(" ")[2]) for entry in told] == [
        ("user/ann", "OK", "(web)"),
        ("user/ann", "OK", "(web)"),
    ], "its beginning and its end"


async def test_no_one_else_opens_one_or_types_into_it(site: Site) -> None:
    await site.add_bob(access_pb2.ROLE_ADMIN)
    async with (
        job_of(site) as (job, host),
        site.signed_in("user/ann") as ann,
        site.signed_in("user/bob") as bob,
        site.browser() as stranger,
        opened(ann, job) as (shell, _),
    ):
        for browser, status in ((bob, 403), (stranger, 401)):
            assert (await browser.post(f"/v1/jobs/{job}:shell", json=ASKED)).status_code == status
            assert (await write(browser, job, shell, b"x")).status_code == status
        assert len(host.opened) == 1 and not any(each.data for each in host.given)


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
    ids=["origin", "cross-site", "same-site"],
)
async def test_a_page_of_another_origin_neither_opens_nor_types(site: Site, headers: dict[str, str]) -> None:
    async with job_of(site) as (job, host), site.signed_in("user/ann") as ann, opened(ann, job) as (shell, _):
        body = {"shell": shell, "data": "eA=="}
        for path, sent in ((":shell", ASKED), (":writeShell", body)):
            refused = await ann.post(f"/v1/jobs/{job}{path}", json=sent, headers=headers)
            assert refused.status_code == 403
        bare = {key: value for key, value in ann.headers.items() if key != "x-holdfast"}
        ann.headers = httpx.Headers(bare)
        assert (await ann.post(f"/v1/jobs/{job}:shell", json=ASKED)).status_code == 403
        assert len(host.opened) == 1 and not any(each.data for each in host.given)


async def cut(read: AsyncIterator[Any]) -> None:
    """Return once the answer breaks off."""
    with pytest.raises(httpx.RemoteProtocolError):
        await anext(read)


async def test_a_session_or_a_user_that_ends_ends_the_shell_on_its_host(site: Site) -> None:
    await site.add_bob()
    async with job_of(site, "user/bob") as (job, host):
        async with site.signed_in("user/bob") as bob, opened(bob, job) as (_, read):
            stub = web_stub(site.controller.channel("user/bob"))
            listed = await stub.ListSessions(web_pb2.ListSessionsRequest(), timeout=WITHIN_S)
            await stub.EndSession(web_pb2.EndSessionRequest(id=listed.sessions[0].id), timeout=WITHIN_S)
            await until(lambda: host.closed == [host.opened[0].id])
            await cut(read)
        async with site.signed_in("user/bob") as bob, opened(bob, job) as (_, read):
            await site.remove_bob()
            await until(lambda: len(host.closed) == 2)
            await cut(read)


async def test_a_browser_that_goes_away_ends_it(site: Site) -> None:
    async with job_of(site) as (job, host), site.signed_in("user/ann") as ann:
        async with opened(ann, job):
            pass
        await until(lambda: host.closed == [host.opened[0].id])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"rank": 99}, "rank"),
        ({"rank": "x"}, "rank"),
        ({"command": ["a\0b"]}, "command"),
        ({"term": "../x"}, "term"),
        ({"rows": 100_000}, "rows"),
        ({"colour": "red"}, "colour"),
        ([], "object"),
    ],
)
async def test_a_bad_request_is_refused_with_its_field(site: Site, body: Any, said: str) -> None:
    async with job_of(site) as (job, host), site.signed_in("user/ann") as ann:
        refused = await ann.post(f"/v1/jobs/{job}:shell", json=body)
        assert refused.status_code == 400 and said in refused.text
        assert not host.opened


async def test_what_is_too_long_or_no_base64_is_not_typed(site: Site) -> None:
    async with job_of(site) as (job, host), site.signed_in("user/ann") as ann, opened(ann, job) as (shell, _):
        assert (await write(ann, job, shell, b"x" * 32_001)).status_code == 400
        wrong = await ann.post(f"/v1/jobs/{job}:writeShell", json={"shell": shell, "data": "x"})
        assert wrong.status_code == 400 and "data" in wrong.text
        assert not any(each.data for each in host.given)
