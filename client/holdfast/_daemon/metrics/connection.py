"""One scraper's connection: GET /metrics over HTTP/1.1, and nothing else.

h11 reads and writes HTTP. This is a protocol of callbacks in the daemon's own loop, without a task or a thread: a
scraper that sends nothing, or reads nothing, costs a socket until its time is up, and one page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import h11

from holdfast._base import identity
from holdfast._base.identity import Identity
from holdfast._daemon.metrics.listener import is_loopback
from holdfast.errors import Denied, HoldfastError

MAX_CONNECTIONS = 32
MAX_HEAD = 16 << 10
"""Bytes of a request's line and headers."""
REQUEST_S = 120.0
"""A connection that brings no complete request for this long is closed; Prometheus asks more often."""

Page = Callable[[str], tuple[bytes, str]]
"""Makes (page, content type) for an Accept header."""
Admits = Callable[[Identity], None]
"""Returns if an identity may read; raises ``HoldfastError`` otherwise."""


class Connection(asyncio.Protocol):
    """Answers requests one after another. ``open_now`` holds the connections of the listener."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, page: Page, admits: Admits | None, open_now: set[Connection]) -> None:
        self._page = page
        self._admits = admits
        self._open = open_now
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._full = False
        """The scraper reads more slowly than it asks; its next request waits."""

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock, or refuse one connection too many."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._open) >= MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._open.add(self)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._http.receive_data(data)
        self._proceed()

    def pause_writing(self) -> None:
        """Take no more requests until the answers have been read."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with the requests that waited."""
        self._full = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            # Not at once: asyncio's transport, which calls this, loses count when it is closed in here.
            asyncio.get_running_loop().call_soon(self._proceed)

    def _proceed(self) -> None:
        while not (self._full or self._transport.is_closing()):
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._give_up(error)
                return
            match event:
                case h11.Request():
                    self._await_request()
                    self._answer(event)
                case h11.EndOfMessage() if self._http.our_state is h11.DONE:
                    self._http.start_next_cycle()
                case _:  # no more data, or a body, which was answered by closing
                    return

    def _await_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self.abort)

    def _give_up(self, error: h11.RemoteProtocolError) -> None:
        if error.error_status_hint != HTTPStatus.BAD_REQUEST or self._http.our_state is not h11.IDLE:
            self._transport.abort()  # a head without an end, say: a client that sends that reads no answer
            return
        self._say(HTTPStatus.BAD_REQUEST, b"This is no HTTP request.\n", last=True)

    def _answer(self, request: h11.Request) -> None:
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        # A body, which a scrape never has, would have to be read first.
        last = "content-length" in headers or "transfer-encoding" in headers
        if request.target.partition(b"?")[0] != b"/metrics":
            self._say(HTTPStatus.NOT_FOUND, b"Metrics are at /metrics.\n", last=last)
        elif request.method not in (b"GET", b"HEAD"):
            self._say(HTTPStatus.METHOD_NOT_ALLOWED, b"Metrics are read with GET.\n", last=True)
        elif (problem := self._problem(headers)) is not None:
            self._say(HTTPStatus.FORBIDDEN, f"{problem}\n".encode(), last=True)
        else:
            body, content_type = self._page(headers.get("accept", ""))
            self._say(HTTPStatus.OK, body, content_type, last=last, whole=request.method == b"GET")

    def _problem(self, headers: dict[str, str]) -> HoldfastError | None:
        """Return why this reader gets nothing."""
        if self._admits is None:
            # A foreign page whose name was made to point here (DNS rebinding) could read the answer.
            name = headers.get("host", "").rpartition(":")[0].removeprefix("[").removesuffix("]")
            return None if is_loopback(name or headers.get("host", "")) else Denied("Ask for 127.0.0.1.")
        certificate: dict[str, Any] = self._transport.get_extra_info("peercert") or {}
        uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        try:
            self._admits(identity.of_uris(uris))
        except HoldfastError as error:
            return error
        return None

    def _say(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain", *, last: bool, whole: bool = True
    ) -> None:
        headers = [
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
        ]
        if last:
            headers.append(("Connection", "close"))
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        parts = (response, h11.Data(data=body), h11.EndOfMessage()) if whole else (response, h11.EndOfMessage())
        self._transport.write(b"".join(self._http.send(part) or b"" for part in parts))
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
