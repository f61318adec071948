"""Listens for scrapers of metrics: plain HTTP on a loopback address, mutual TLS anywhere else.

What is said on a connection is in ``connection``, which a daemon loads only where metrics are served.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from holdfast._daemon.tls_door import TlsDoor, open_door
from holdfast._security.server_tls import server_context
from holdfast._security.tls import TlsFiles
from holdfast.errors import AddressUnavailable, ConfigError

if TYPE_CHECKING:
    from holdfast._daemon.metrics.connection import Admits, Connection, Page

HANDSHAKE_S = 10.0


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
    """A listening server; ``port`` is the one chosen if any was asked for."""

    def __init__(self, server: asyncio.Server | TlsDoor, open_now: set[Connection], port: int) -> None:
        self._server = server
        self._open = open_now
        self.port = port

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
    from holdfast._daemon.metrics.connection import Connection  # HTTP, which a daemon without metrics need not load

    host, port = parse(address, key)
    context = None
    if not is_loopback(host):
        if files is None or admits is None:
            fix = "Use 127.0.0.1, or scrape /metrics on http_port."
            raise ConfigError(f"{key} is {address}, and without TLS only this machine may read metrics.", fix=fix)
        context = server_context(files)
    open_now: set[Connection] = set()
    loop = asyncio.get_running_loop()

    def connection() -> Connection:
        return Connection(page, admits if context else None, open_now)

    try:
        if context is not None:
            door = await open_door(connection, host, port, context, HANDSHAKE_S)
            return Listener(door, open_now, door.port)
        server = await loop.create_server(connection, host, port)
    except OSError as error:
        problem = f"Cannot serve metrics on {address}: {error.strerror}."
        raise AddressUnavailable(problem, fix=f"Choose another {key}.") from error
    return Listener(server, open_now, server.sockets[0].getsockname()[1])
