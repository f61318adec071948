"""Answers that go on: histories and logs, as JSON lines, server-sent events or plain bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import zlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import json_text
from holdfast._base.proto_values import short_name
from holdfast._sdk import json_view
from holdfast.errors import HoldfastError, InvalidInput, Violation
from holdfast.v1 import cluster_pb2, job_pb2
from holdfast_controller.shell.rest import errors
from holdfast_controller.shell.rest.calls import Aborted, CallContext, Calls

FIRST_S = 1.0
"""A call that has not been refused by then is taken for good, and its response begins."""
STILL_S = 15.0
"""After so much silence something without meaning is sent: proxies close what they think dead."""


@dataclass(frozen=True, slots=True)
class Form:
    """How answers are written: each one, an error after the first, and the sign of life."""

    media_type: str
    write: Callable[[Any], bytes]
    fail: Callable[[dict[str, Any]], bytes]
    still: bytes
    begin: bytes = b""
    encoding: str = ""


def events_form(request: Request) -> Form:
    """Server-sent events for who asks for them, else JSON lines."""
    if "text/event-stream" in request.headers.get("accept", ""):
        return Form("text/event-stream", _sse, lambda body: b"event: error\n" + _data(body), b": still here\n\n")
    return Form("application/x-ndjson", lambda entry: _line(json_view.event(entry)), _line, b"\n")


def changes_form(request: Request) -> Form:
    """Server-sent events for who asks for them, else JSON lines."""
    if "text/event-stream" not in request.headers.get("accept", ""):
        return lines_form(json_view.plain)

    return Form(
        "text/event-stream", change_event, lambda body: b"event: error\n" + _data(body), b": still here\n\n"
    )


def change_event(entry: cluster_pb2.WatchChangesResponse) -> bytes:
    """A change as a server-sent event."""
    return f"id: {entry.cursor}\nevent: change\n".encode() + _data(json_view.plain(entry))


GZIP_BEGIN = zlib.compressobj(1, wbits=31).flush(zlib.Z_FULL_FLUSH)[:10]
"""Begins a stream of which each ``gzip_block`` is the rest so far, whichever they are."""


def gzip_block(data: bytes) -> bytes:
    """A part of a stream in gzip that stands for itself: compressed once, it is sent to many."""
    packer = zlib.compressobj(1, wbits=-15)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


def gzipped(form: Form) -> Form:
    """The same in gzip, for answers that are blocks of it already."""

    def fail(body: dict[str, Any]) -> bytes:
        return gzip_block(form.fail(body))

    return Form(form.media_type, lambda entry: entry, fail, gzip_block(form.still), GZIP_BEGIN, "gzip")


def lines_form(printed: Callable[[Any], json_view.Json]) -> Form:
    """Each answer as a line of JSON."""
    return Form("application/x-ndjson", lambda entry: _line(printed(entry)), _line, b"\n")


def logs_form(request: Request, asked: job_pb2.StreamLogsRequest) -> Form:
    """The bytes of one rank for who asks for text, else JSON lines with bytes in base64, as protobuf prints them.

    Raises ``InvalidInput`` for the text of several ranks, which could not be distinguished.
    """
    if "text/plain" not in request.headers.get("accept", ""):
        return Form("application/x-ndjson", lambda chunk: _line(_chunk(chunk)), _line, b"\n")
    if len(asked.ranks) != 1:
        raise InvalidInput([Violation("rank", "must be one: as text the ranks could not be distinguished")])

    def write(chunk: job_pb2.StreamLogsResponse) -> bytes:
        return f"\n[{chunk.problem}]\n".encode() if chunk.problem else chunk.data

    return Form("text/plain; charset=utf-8", write, lambda body: f"\n[{body['error']['message']}]\n".encode(), b"")


async def response(
    request: Request,
    calls: Calls,
    method: str,
    message: Message,
    context: CallContext,
    form: Form,
    through: Callable[[AsyncGenerator[Any, None]], AsyncGenerator[Any, None]] = lambda answers: answers,
) -> Response:
    """The stream's response; refusals that come at once are raised, later ones end the stream with their words.

    What ``form`` writes is what ``through`` makes of the answers.
    """
    place = request.app.state.bounds.stream(context.session or calls.caller(context))
    try:
        answers = through(calls.many(method, message, context))
        first = asyncio.get_running_loop().create_task(_next(answers))
        try:
            await asyncio.wait({first}, timeout=FIRST_S)
            if first.done():
                first.result()
        except BaseException:
            await _close(first, answers)
            raise
    except BaseException:
        place.close()
        raise
    return _Stream(answers, first, form, place)


class _Stream(StreamingResponse):
    """The response of a stream; when it is over, its place is free and the call has ended, however that came about."""

    def __init__(
        self,
        answers: AsyncGenerator[Any, None],
        pending: asyncio.Task[Any],
        form: Form,
        place: contextlib.ExitStack,
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if form.encoding:
            headers["Content-Encoding"] = form.encoding
        super().__init__(self._body(), headers=headers, media_type=form.media_type)
        self._answers, self._pending, self._form, self._place = answers, pending, form, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not in the body, which is left as it stands where what it has yielded can't be sent.
            self._place.close()
            await asyncio.shield(_close(self._pending, self._answers))

    async def _body(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        if self._form.begin:
            yield self._form.begin
        while True:
            done, _ = await asyncio.wait({self._pending}, timeout=STILL_S)
            if not done:
                yield self._form.still
                continue
            try:
                found = self._pending.result()
            except (Aborted, HoldfastError) as error:
                yield self._form.fail(json.loads(bytes(errors.answer(error).body)))
                return
            if found is None:
                return
            yield self._form.write(found)
            self._pending = loop.create_task(_next(self._answers))


async def _next(answers: AsyncGenerator[Any, None]) -> Any:
    """The next answer; None after the last."""
    return await anext(answers, None)


async def _close(pending: asyncio.Task[Any], answers: AsyncGenerator[Any, None]) -> None:
    pending.cancel()
    await asyncio.wait({pending})
    if not pending.cancelled():
        pending.exception()
    await answers.aclose()


def _sse(entry: job_pb2.WatchJobResponse) -> bytes:
    head = f"id: {entry.cursor}\nevent: {entry.type}\n"
    return head.encode() + _data(json_view.event(entry))


def _data(value: object) -> bytes:
    return b"data: " + json_text(value).encode() + b"\n\n"


def _line(value: object) -> bytes:
    return json_text(value).encode() + b"\n"


def _chunk(chunk: job_pb2.StreamLogsResponse) -> json_view.Json:
    return {
        "worker": chunk.worker,
        "rank": chunk.rank,
        "generation": chunk.generation,
        "stream": short_name(job_pb2.LogStream, chunk.stream),
        "offset": chunk.offset,
        "data": base64.b64encode(chunk.data).decode(),
        "problem": chunk.problem,
        "lineOffsets": list(chunk.line_offsets),
    }
