"""Serves a page of metrics over HTTP/1.1, and nothing else: GET /metrics.

Plain on a loopback address, where whoever may log in may read it; over mutual TLS anywhere else. It is a protocol
of callbacks in the daemon's own loop, without a task or a thread: a scraper that says nothing, or reads nothing,
costs a socket until its time is up.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, cast

from holdfast._base import identity
from holdfast._base.identity import Identity
from holdfast._security.server_tls import server_context
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, Denied, HoldfastError

MAX_CONNECTIONS = 32
MAX_HEAD = 16 << 10
"""Bytes of a request's line and headers."""
HANDSHAKE_S = 10.0
REQUEST_S = 120.0
"""A connection on which no request has come in whole for so long is closed; Prometheus asks more often."""

Page = Callable[[str], tuple[bytes, str]]
"""Makes (page, content type) for an Accept header."""
Admits = Callable[[Identity], None]
"""Returns if somebody may read; raises ``HoldfastError`` otherwise."""


def parse(address: str, key: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT. Raises ``ConfigError`` that names the setting."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{key} is {address!r}.", fix="Write HOST:PORT, such as 127.0.0.1:9470.")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Listener:
    """What listens. ``port`` is the one that was taken where any was asked for."""

    def __init__(self, server: asyncio.Server, open_now: set[_Connection]) -> None:
        self._server = server
        self._open = open_now
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop, and cut scrapes off that are in progress."""
        self._server.close()
        for connection in list(self._open):
            connection.abort()


async def listen(
    address: str, page: Page, *, key: str, files: TlsFiles | None = None, admits: Admits | None = None
) -> Listener:
    """Serve ``page`` at HOST:PORT; port 0 takes any free one.

    ``key`` is the setting's name in errors. Where the address is not a loopback one, ``files`` serve TLS and
    ``admits`` judges each reader. Raises ``ConfigError`` when that can't be done.
    """
    host, port = parse(address, key)
    context = None
    if not is_loopback(host):
        if files is None or admits is None:
            fix = "Use 127.0.0.1, or scrape /metrics on http_port."
            raise ConfigError(f"{key} is {address}, and without TLS only this machine may read metrics.", fix=fix)
        context = server_context(files)
    open_now: set[_Connection] = set()
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(page, admits if context else None, open_now),
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_S if context else None,
        )
    except OSError as error:
        problem = f"Cannot serve metrics on {address}: {error.strerror}."
        raise ConfigError(problem, fix=f"Choose another {key}.") from error
    return Listener(server, open_now)


class _Connection(asyncio.Protocol):
    """One scraper: a request, its answer, and the next one."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, page: Page, admits: Admits | None, open_now: set[_Connection]) -> None:
        self._page = page
        self._admits = admits
        self._open = open_now
        self._head = b""

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._open) >= MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._open.add(self)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._head += data
        while b"\r\n\r\n" in self._head:
            head, _, self._head = self._head.partition(b"\r\n\r\n")
            self._await_request()
            if not self._answer(head.decode("latin-1").split("\r\n")):
                self._transport.close()
                return
        if len(self._head) > MAX_HEAD:
            self._transport.abort()

    def _await_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self.abort)

    def _answer(self, lines: list[str]) -> bool:
        """Whether the connection may go on."""
        split = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in split}
        try:
            method, target, version = lines[0].split(" ")
        except ValueError:
            return self._say(400, b"This is no HTTP request.\n", last=True)
        # A body, which a scrape never has, would be taken for the next request.
        brings_more = "content-length" in headers or "transfer-encoding" in headers
        last = version != "HTTP/1.1" or headers.get("connection", "").lower() == "close" or brings_more
        if target.partition("?")[0] != "/metrics":
            return self._say(404, b"Metrics are at /metrics.\n", last=last)
        if method not in ("GET", "HEAD"):
            return self._say(405, b"Metrics are read with GET.\n", last=True)
        problem = self._problem(headers)
        if problem is not None:
            return self._say(403, f"{problem}\n".encode(), last=True)
        body, content_type = self._page(headers.get("accept", ""))
        return self._say(200, body, content_type, last=last, whole=method == "GET")

    def _problem(self, headers: dict[str, str]) -> HoldfastError | None:
        """Why this reader gets nothing."""
        if self._admits is None:
            # A page of somebody else's, whose name was made to point here, would be read by its maker.
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
        self, status: int, body: bytes, content_type: str = "text/plain", *, last: bool, whole: bool = True
    ) -> bool:
        lines = (
            f"HTTP/1.1 {status} {_WORDS[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            f"Connection: {'close' if last else 'keep-alive'}",
        )
        self._transport.write("\r\n".join((*lines, "", "")).encode() + (body if whole else b""))
        return not last


_WORDS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
