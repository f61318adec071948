"""The page on the user's own machine: each request as the user, by way of gRPC, and none for others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.integration.controller.calls.test_shells import running, until
from tests.integration.controller.cluster import Controller
from tests.integration.controller.web import BODY, WITHIN_S
from tests.support.stubs import job_stub

from holdfast._sdk.web_bridge import WebBridge
from holdfast.client import Client
from holdfast.settings import ClientSettings
from holdfast_controller.shell.rest import streams

PAGE = {"X-Holdfast": "page", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def address(controller: Controller) -> AsyncIterator[str]:
    files = controller.certificates.files["user/ann"]
    settings = ClientSettings(f"127.0.0.1:{controller.port}", files.ca, files.cert, files.key)
    async with Client(settings) as client, WebBridge(client.web).serving() as found:
        yield found


def browser(address: str, **headers: str) -> httpx.AsyncClient:
    base = address.partition("/login")[0]
    return httpx.AsyncClient(base_url=base, trust_env=False, timeout=WITHIN_S, headers=PAGE | headers)


async def test_the_code_opens_the_page_once_as_its_user(address: str) -> None:
    code = address.partition("#")[2]
    async with browser(address) as ann, browser(address) as other:
        shell = await ann.get("/jobs/x")
        assert shell.status_code == 200 and "frame-ancestors 'none'" in shell.headers["content-security-policy"]
        assert (await ann.get("/v1/jobs")).status_code == 401
        assert (await ann.post("/web/login", json={"code": "x"})).status_code == 401
        assert (await ann.post("/web/login", json={"code": code})).status_code == 200
        assert (await other.post("/web/login", json={"code": code})).status_code == 401
        assert (await ann.get("/v1/me")).json()["user"]["name"] == "ann"
        made = await ann.post("/v1/jobs", json=BODY)
        job = made.json()["id"]
        assert [each["id"] for each in (await ann.get("/v1/jobs?view=ROW&newest=true")).json()["jobs"]] == [job]
        assert (await ann.get("/v1/jobs/none")).status_code == 404
        assert (await other.get("/v1/jobs")).status_code == 401
        async with asyncio.timeout(WITHIN_S), ann.stream("GET", f"/v1/jobs/{job}:watch") as watching:
            assert json.loads(await anext(watching.aiter_lines()))["type"] == "JobSubmitted"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_pages_of_others_and_other_names_get_nothing(
    address: str, headers: dict[str, str], status: int
) -> None:
    async with browser(address) as ann:
        assert (await ann.post("/web/login", json={"code": address.partition("#")[2]})).status_code == 200
        assert (await ann.get("/v1/jobs", headers=headers)).status_code == status
        assert (await ann.post("/v1/jobs", json=BODY, headers=headers)).status_code == status
        del ann.headers["X-Holdfast"]
        assert (await ann.get("/v1/jobs")).status_code == 403


async def answered(address: str, method: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    """The first line of the answer to a request whose address is sent as it stands."""
    port = int(address.partition("/login")[0].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}", *headers]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    async with asyncio.timeout(WITHIN_S):
        line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize("base", ["/v1", "/%761", "/v%31", "/%76%31", "/%2576%31"])
async def test_an_address_that_is_written_otherwise_is_open_to_no_one_else(address: str, base: str) -> None:
    form = ("Content-Type: application/x-www-form-urlencoded", "Origin: https://evil.example")
    followed = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    json_page = ("Content-Type: application/json", "X-Holdfast: page")
    refused = (b" 401 ", b" 403 ", b" 405 ")
    async with browser(address) as ann:
        assert (await ann.post("/web/login", json={"code": address.partition("#")[2]})).status_code == 200
        job = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        for line in (
            await answered(address, "POST", f"{base}/jobs/{job}:cancel"),
            await answered(address, "POST", f"{base}/jobs/{job}:cancel", *form, *followed),
            await answered(address, "POST", f"{base}/jobs", *json_page, body=json.dumps(BODY).encode()),
        ):
            assert any(status in line for status in refused), line
        found = (await ann.get("/v1/jobs")).json()["jobs"]
        assert [(each["id"], each["state"]) for each in found] == [(job, "JOB_STATE_QUEUED")]
    if base != "/%2576%31":  # which no address is: it gets the document, as any other
        assert b" 403 " in await answered(address, "GET", f"{base}/me")
        assert b" 401 " in await answered(address, "GET", f"{base}/me", "X-Holdfast: page")


async def test_a_code_that_is_no_text_is_refused(address: str) -> None:
    page = ("Content-Type: application/json", "X-Holdfast: page")
    for body in (b'{"code": "\\ud800"}', b'{"code": null}', b"[]", b"{"):
        assert b" 401 " in await answered(address, "POST", "/web/login", *page, body=body)


async def test_what_a_browser_reads_ends_when_it_goes_away(
    address: str, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, not with the next sign of life: a shell must not outlive its page."""
    monkeypatch.setattr(streams, "STILL_S", 600.0)
    async with running(controller, job_stub(controller.channel("user/ann"))) as (job, host):
        async with browser(address) as ann:
            assert (await ann.post("/web/login", json={"code": address.partition("#")[2]})).status_code == 200
            async with ann.stream("POST", f"/v1/jobs/{job}:shell", json={"terminal": True}) as shell:
                assert "shell" in json.loads(await anext(shell.aiter_lines()))
        await until(lambda: host.closed == [host.opened[0].id])


async def test_what_is_no_request_is_refused_and_the_next_one_is_served(address: str) -> None:
    port = int(address.partition("/login")[0].rpartition(":")[2])
    host = f"Host: 127.0.0.1:{port}\r\n"
    for head, status in (
        ("GET\r\n\r\n", b" 400 "),
        (f"GET / HTTP/1.1\r\n{host}{host}\r\n", b" 400 "),
        (f"POST /web/login HTTP/1.1\r\n{host}X-Holdfast: page\r\nContent-Length: 99999999\r\n\r\n", b" 413 "),
        (f"POST /web/login HTTP/1.1\r\n{host}X-Holdfast: page\r\nTransfer-Encoding: chunked\r\n\r\n", b" 411 "),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode())
        async with asyncio.timeout(WITHIN_S):
            assert status in await reader.readline(), head
        writer.close()
    async with browser(address) as ann:
        assert (await ann.get("/")).status_code == 200
