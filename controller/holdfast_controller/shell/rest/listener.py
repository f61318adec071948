"""The listening side: mutual TLS, connections within bounds, and an end to those that only hold on.

uvicorn's protocol reads and writes HTTP; its server, which would take the process's signals, is not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from holdfast._daemon import log
from holdfast._daemon.tls_door import TlsDoor, network_of, open_door
from holdfast._security import server_names
from holdfast._security.tls import TlsFiles
from holdfast.errors import AddressUnavailable, ConfigError

MAX_CONNECTIONS = 256
HANDSHAKE_S = 10.0
HEAD_S = 30.0
"""A connection on which no request has come in whole for so long is closed."""
MAX_HEAD = 32 << 10
"""Bytes of a request's line and headers."""


class Listener:
    """Serves an application until it is closed."""

    def __init__(self, door: TlsDoor, state: ServerState) -> None:
        self.port = door.port
        self._door = door
        self._state = state

    async def close(self, grace_s: float) -> None:
        """Take no more connections, let calls in progress end within ``grace_s``, and cut off the rest."""
        self._door.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=grace_s)
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=grace_s)


async def listen(
    app: ASGIApp,
    host: str,
    port: int,
    context: ssl.SSLContext,
    *,
    key: str = "http_port",
    most: int = MAX_CONNECTIONS,
    most_of_one: int = MAX_CONNECTIONS,
) -> Listener:
    """Serve ``app`` at ``host``, on ``most`` connections at once, of one address ``most_of_one``.

    Port 0 takes any free one. ``key`` is the setting's name in errors. Raises ``ConfigError`` when that can't be done.
    """
    config = Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=MAX_HEAD,
    )
    config.load()
    state = ServerState()
    try:
        door = await open_door(
            lambda: _Protocol(config, state, {"bounds": (most, most_of_one)}), host, port, context, HANDSHAKE_S
        )
    except OSError as error:
        raise AddressUnavailable(
            f"Cannot serve HTTP on {host}:{port}: {error.strerror}.", fix=f"Choose another {key}."
        ) from error
    return Listener(door, state)


class ServedNames:
    """The names and addresses in the server's certificate, lower case, also after it was replaced."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the certificate. Raises ``ConfigError``."""
        self._file = files.cert
        self._stamp = files.cert.stat().st_mtime_ns
        self._names = server_names.named(files.cert)

    def __call__(self) -> frozenset[str]:
        """The names as of now; while the file can't be read, those before."""
        with contextlib.suppress(OSError, ConfigError):
            stamp = self._file.stat().st_mtime_ns
            if stamp != self._stamp:
                self._names, self._stamp = server_names.named(self._file), stamp
        return self._names


class _Protocol(H11Protocol):
    """One connection; knows whose it is, and gives up on one that brings no request."""

    network = ""
    """The addresses that its caller may have: of IPv6 a whole network."""
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        most, most_of_one = self.app_state["bounds"]
        address = (transport.get_extra_info("peername") or ("",))[0]
        self.network = network_of(address)
        of_one = sum(getattr(each, "network", "") == self.network for each in self.connections)
        if len(self.connections) >= most or of_one >= most_of_one:
            log.warning("http.connection_refused", open=len(self.connections), address=address)
            transport.abort()
            return
        certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
        names = certificate.get("subjectAltName", ())
        connection = transport.get_extra_info("ssl_object")
        shown = connection.getpeercert(binary_form=True) if connection is not None else None
        self.app_state |= {
            "uris": tuple(v for kind, v in names if kind == "URI"),
            "certificate": ssl.DER_cert_to_PEM_cert(shown) if shown else "",
            "abort": transport.abort,
        }
        super().connection_made(transport)
        self._await_request()

    def on_response_complete(self) -> None:
        self._await_request()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self.transport is not None:
            super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(HEAD_S, self._give_up, self.cycle)

    def _give_up(self, last: object) -> None:
        if self.cycle is last:
            self.transport.abort()
