"""JSON over HTTP: every way of asking wrongly. Real TLS, real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.integration.controller.calls.web.test_http import ann, fields, refusal, web
from tests.integration.controller.web import BODY, POOL, WITHIN_S, Web, context

from holdfast_controller.shell.rest import body as reading
from holdfast_controller.shell.rest import listener

__all__ = ["ann", "web"]


async def test_what_is_no_json_is_refused(ann: httpx.AsyncClient) -> None:
    for content, said in (
        (b"{", "is not valid JSON"),
        (b"displayName: train", "is not valid JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "is nested too deeply"),
        (b"\xff{}", "is not UTF-8"),
        (b"", "is not valid JSON"),
        (b'{"displayName": NaN}', "NaN"),
        (b" " * (1 << 20) + b"{}", "is larger than"),
    ):
        response = await ann.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        code, status, message = refusal(response)
        assert (code, status) == (400, "INVALID_ARGUMENT") and said in message


async def test_unknown_and_broken_fields_are_named_all_at_once(ann: httpx.AsyncClient) -> None:
    pool = POOL | {"replicaCount": 0, "colour": "red"}
    body = {"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}, "extra": 1}
    response = await ann.post("/v1/jobs", json=body)
    assert refusal(response)[:2] == (400, "INVALID_ARGUMENT")
    pool_at = "jobSpec.workerPoolSpecs[0]"
    assert sorted(fields(response)) == ["extra", f"{pool_at}.colour", f"{pool_at}.replicaCount"]
    info = next(d for d in response.json()["error"]["details"] if d["@type"].endswith("ErrorInfo"))
    assert (info["reason"], info["domain"]) == ("INVALID_SPEC", "holdfast")
    again = b'{"displayName": "x", "displayName": "y", "jobSpec": {}}'
    response = await ann.post("/v1/jobs", content=again, headers={"Content-Type": "application/json"})
    assert "displayName" in fields(response)


async def test_bodies_that_are_too_large_or_of_another_type_are_refused(ann: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(reading.MAX_BODY // 65_536 + 1):
            yield b" " * 65_536

    kind = {"Content-Type": "application/json"}
    assert refusal(await ann.post("/v1/jobs", content=endless(), headers=kind))[0] == 413
    assert refusal(await ann.post("/v1/jobs", content=b" " * (reading.MAX_BODY + 1), headers=kind))[0] == 413
    for other in ("text/plain", "application/x-yaml", "application/json; charset=latin-1", ""):
        assert refusal(await ann.post("/v1/jobs", content=b"{}", headers={"Content-Type": other}))[0] == 415


async def test_body_that_does_not_come_is_not_waited_for(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BODY_S", 0.2)
    files = web.controller.certificates.files["user/ann"]
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection("localhost", web.port, ssl=context(files))
        head = (
            "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        )
        writer.write(f"{head}\r\n{{".encode())
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ") and b"DEADLINE_EXCEEDED" in answer


async def test_connection_that_asks_nothing_is_closed(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 0.2)
    files = web.controller.certificates.files["user/ann"]
    async with asyncio.timeout(WITHIN_S):
        for sent in (b"", b"GET /v1/jobs HTTP/1.1\r\nHost: local"):
            reader, writer = await asyncio.open_connection("localhost", web.port, ssl=context(files))
            writer.write(sent)
            try:
                assert await reader.read() == b""
            except OSError:
                pass  # A reset is an end too.
            writer.close()


async def test_pages_of_other_sites_and_other_names_are_refused(ann: httpx.AsyncClient) -> None:
    answers: list[tuple[dict[str, str], int]] = [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:443"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "holdfast-controller"}, 200),
        ({"Host": "HOLDFAST-controller:9"}, 200),
        ({"Host": "localhost:9", "Origin": "https://localhost:9", "Sec-Fetch-Site": "same-origin"}, 200),
    ]
    for headers, code in answers:
        assert (await ann.get("/v1/jobs", headers=headers)).status_code == code, headers


async def test_who_has_no_certificate_of_a_user_gets_nowhere(web: Web) -> None:
    files = web.controller.certificates.files
    bare = context(files["user/ann"], certificate=False)
    async with httpx.AsyncClient(base_url=f"https://localhost:{web.port}", verify=bare, trust_env=False) as client:
        with pytest.raises((httpx.HTTPError, ssl.SSLError)):
            await client.get("/v1/jobs")
    for who in ("host/host-0", "stranger"):
        async with web.as_(who) as client:
            for answer in (
                await client.get("/v1/jobs"),
                await client.post("/v1/jobs", json=BODY),
                await client.get("/v1/jobs/x:watch"),
                await client.get("/v1/hosts"),
            ):
                assert refusal(answer)[:2] == (403, "PERMISSION_DENIED")


async def test_addresses_that_do_not_exist_are_not_found(ann: httpx.AsyncClient) -> None:
    for address in ("/", "/v1/jobs/", "/v2/jobs", "/v1/projects/p/customJobs", "/v1/jobs/a/b"):
        assert refusal(await ann.get(address))[:2] == (404, "NOT_FOUND"), address
