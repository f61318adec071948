"""Bodies that don't come, questions that fail and readers that leave hold up no one else, and nothing stays of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.protobuf.message import Message
from starlette.requests import Request
from tests.integration.controller.calls.web.test_web import Site, config, site
from tests.integration.controller.web import WITHIN_S, context

from holdfast.v1 import job_pb2
from holdfast_controller.shell.rest import guards, streams
from holdfast_controller.shell.rest.calls import CallContext
from holdfast_controller.shell.rest.guards import MAX_CALLS_OF_ONE, Bounds
from holdfast_controller.shell.web import application
from holdfast_controller.shell.web.browsers import COOKIE

__all__ = ["config", "site"]


class Unfinished:
    """Requests to the page whose bodies never come."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._writers: list[asyncio.StreamWriter] = []
        self.readers: list[asyncio.StreamReader] = []

    async def __aenter__(self) -> Unfinished:
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def post(self, path: str, cookie: str = "") -> None:
        tls = context(self._site.controller.certificates.files["user/ann"], certificate=False)
        reader, writer = await asyncio.open_connection("localhost", self._site.port, ssl=tls)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost:{self._site.port}\r\nX-Holdfast: page\r\n"
        head += "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\nContent-Length: 20\r\n"
        head += f"Cookie: {COOKIE}={cookie}\r\n" if cookie else ""
        writer.write(f"{head}\r\n".encode())
        await writer.drain()
        self._writers.append(writer)
        self.readers.append(reader)


async def test_logins_whose_codes_do_not_come_keep_nobody_from_signing_in(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "LOGIN_BODY_S", 3.0)
    async with Unfinished(site) as unfinished:
        for _ in range(2 * application.MAX_LOGINS):
            await unfinished.post("/web/login")
        async with site.signed_in("user/ann") as ann:
            assert (await ann.get("/v1/jobs")).status_code == 200
        async with asyncio.timeout(WITHIN_S):
            assert b" 408 " in await unfinished.readers[0].readline()


async def test_a_login_in_chunks_is_refused_whatever_length_it_claims(site: Site) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(3):
            yield b" " * 4_000
        yield b'{"code": "x"}'

    async with site.browser() as browser:
        headers = {"Content-Type": "application/json", "Content-Length": "5", "Transfer-Encoding": "chunked"}
        answer = await browser.post("/web/login", content=chunks(), headers=headers)
    assert (answer.status_code, "must have 4,096 bytes at most" in answer.text) == (413, True), answer.text


async def test_one_users_calls_whose_bodies_do_not_come_hold_up_nobody_else(site: Site) -> None:
    await site.add_bob()
    async with site.signed_in("user/bob") as bob, site.signed_in("user/ann") as ann, Unfinished(site) as unfinished:
        cookie = str(bob.cookies[COOKIE])
        for _ in range(application.MAX_CALLS):
            await unfinished.post("/v1/jobs/x:hold", cookie)
        async with asyncio.timeout(WITHIN_S):
            while (answer := await bob.get("/v1/jobs")).status_code == 200:  # noqa: ASYNC110 they come one by one
                await asyncio.sleep(0.05)
        assert answer.status_code == 503
        assert f"user/bob has {MAX_CALLS_OF_ONE} calls over HTTP in progress" in answer.text
        assert (await ann.get("/v1/jobs")).status_code == 200


def test_places_are_free_again_for_each_and_for_all() -> None:
    bounds = Bounds(calls=MAX_CALLS_OF_ONE + 1)
    with contextlib.ExitStack() as held:
        for _ in range(MAX_CALLS_OF_ONE):
            held.enter_context(bounds.call("user/bob"))
        with pytest.raises(Exception, match="user/bob has 16 calls"), bounds.call("user/bob"):
            pass
        with bounds.aside("user/bob"), bounds.call("user/bob"):
            pass
        held.enter_context(bounds.call("user/ann"))
        with pytest.raises(Exception, match="17 calls over HTTP"), bounds.call("user/cid"):
            pass
    assert not bounds._calls


class Endless:
    """Calls whose one stream never ends."""

    def __init__(self) -> None:
        self.open = 0

    def caller(self, _: CallContext) -> str:
        return "user/ann"

    async def many(self, *_: object) -> AsyncGenerator[Message, None]:
        self.open += 1
        try:
            while True:
                yield job_pb2.StreamLogsResponse(data=b"x" * 1000)
                await asyncio.sleep(0)
        finally:
            self.open -= 1


@pytest.mark.parametrize("taken", [0, 1, 3])
async def test_a_reader_that_leaves_while_output_waits_for_it_frees_its_place_and_ends_its_call(taken: int) -> None:
    """Without any collection of cycles, which a controller does seldom."""
    bounds, calls, full = guards.Bounds(), Endless(), asyncio.Event()
    app: Any = type("App", (), {"state": type("State", (), {"bounds": bounds})})
    scope: dict[str, Any] = {"type": "http", "app": app, "headers": [], "method": "GET", "path": "/"}
    scope["asgi"] = {"spec_version": "2.0"}
    sent = 0

    async def send(_: object) -> None:
        nonlocal sent
        sent += 1
        if sent > taken:
            full.set()
            await asyncio.Event().wait()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    gc.disable()
    try:
        form = streams.lines_form(lambda chunk: {"size": len(chunk.data)})
        made: Any = calls
        of_caller = CallContext((), "", "", lambda: None)
        response = await streams.response(Request(scope), made, "", job_pb2.StreamLogsRequest(), of_caller, form)
        async with asyncio.timeout(WITHIN_S):
            reading = asyncio.create_task(response(scope, receive, send))  # noqa: TID251 it is cancelled as a server's
            await full.wait()
            assert calls.open == 1 and bounds._streams.total() == 1
            reading.cancel()
            await asyncio.wait({reading})
        assert calls.open == 0 and not bounds._streams
    finally:
        gc.enable()
