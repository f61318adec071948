"""HTTP requests that come over gRPC: the page for users whose own machine serves it to their browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import web_pb2
from holdfast_controller.shell.calls.rpc import Context, beside, peer_of
from holdfast_controller.shell.rest.calls import CallContext

METHODS = ("GET", "POST", "DELETE")
HEADERS = ("accept", "accept-encoding", "content-type", "last-event-id")
AHEAD = 4
"""Parts of an answer that wait for a slow reader."""


async def relay(
    app: ASGIApp, request: web_pb2.RelayRequest, context: Context
) -> AsyncGenerator[web_pb2.RelayResponse, None]:
    """The answer of ``app`` to one request of the caller. Raises ``InvalidInput``."""
    parts: asyncio.Queue[web_pb2.RelayResponse | None] = asyncio.Queue()
    free, waiting = asyncio.Semaphore(AHEAD), asyncio.Event()
    body = [request.body]

    def end() -> None:
        parts.put_nowait(None)

    async def receive() -> Message:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await waiting.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        await free.acquire()
        part = web_pb2.RelayResponse(data=message.get("body", b""))
        if message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            part = web_pb2.RelayResponse(status=message["status"], headers=headers)
        parts.put_nowait(part)

    async def answer() -> None:
        await app(scope, receive, send)

    scope = _scope(request, CallContext.relayed(context.auth_context(), f"{peer_of(context)} (web)", end))
    async with beside(answer(), end):
        while (part := await parts.get()) is not None:
            free.release()
            yield part


def _scope(request: web_pb2.RelayRequest, context: CallContext) -> dict[str, Any]:
    path, _, query = request.target.partition("?")
    if request.method not in METHODS or not path.startswith("/"):
        raise InvalidInput([Violation("method", f"must be {', '.join(METHODS)}, and target a path")])
    headers = [(name, value) for name, value in request.headers.items() if name in HEADERS]
    headers.append(("content-length", str(len(request.body))))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers],
        "client": None,
        "server": None,
        "state": {"context": context, "abort": context.abort},
    }
