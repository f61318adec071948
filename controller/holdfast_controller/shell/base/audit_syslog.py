"""Sends the lines of the audit log to a syslog server as they are made, so that there is a copy off this machine.

RFC 5424; over a stream each message is preceded by its length (RFC 6587), over TLS as RFC 5425 says. The message is
the line as it is on disk. A server that can't be reached delays no call: lines wait within a bound, then the oldest are
dropped and counted, and the numbers in the lines show the gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
from collections import deque
from datetime import UTC, datetime

from holdfast._base.backoff import Backoff
from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast.errors import ConfigError

WAITING_MOST = 50_000
"""Lines that wait for a server that can't be reached."""
BATCH = 500
TIMEOUT_S = 5.0
RETRY_S, RETRY_MOST_S = 1.0, 60.0
_PRIORITY = 13 * 8 + 5
"""Facility "log audit", severity "notice"."""
_STREAMS = ("tcp", "tls")


@dataclass(frozen=True)
class SyslogServer:
    """The address of a server: a socket's path, or host and port. ``kind``: unix, udp, tcp or tls."""

    kind: str
    host: str = ""
    port: int = 0
    path: str = ""


def parse(text: str) -> SyslogServer:
    """The server that ``audit_syslog`` names. Raises ``ConfigError``."""
    kind, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if kind == "unix" and rest.startswith("/"):
        return SyslogServer(kind, path=rest)
    if kind in ("udp", *_STREAMS) and host and port.isdecimal() and 0 < int(port) < 65536:
        return SyslogServer(kind, host, int(port))
    fix = 'Write "unix:/dev/log", "udp:HOST:514", "tcp:HOST:601" or "tls:HOST:6514".'
    raise ConfigError(f"audit_syslog is {text!r}.", fix=fix)


class SyslogCopy:
    """Sends lines to one server. ``put`` never waits; ``run`` sends."""

    def __init__(self, server: SyslogServer) -> None:
        self._server = server
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()
        self._socket: socket.socket | None = None
        self.dropped = 0
        """Lines since the start that could not be sent in time."""

    def put(self, lines: list[bytes]) -> None:
        """Have lines sent."""
        self._waiting.extend(lines)
        self._sent.clear()
        while len(self._waiting) > WAITING_MOST:
            self._waiting.popleft()
            self.dropped += 1
        self._wake.set()

    async def drain(self, within_s: float) -> None:
        """Return once all lines are sent, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._sent.wait()

    async def run(self) -> None:
        """Send until cancelled."""
        backoff, failed = Backoff(RETRY_S, RETRY_MOST_S, random.Random()), False
        try:
            while True:
                if not self._waiting:
                    self._sent.set()
                    self._wake.clear()
                    await self._wake.wait()
                batch = [self._waiting[at] for at in range(min(len(self._waiting), BATCH))]
                try:
                    await asyncio.to_thread(self._send, batch)
                except (OSError, UnicodeError) as error:  # the latter for what can be no name
                    self._close()
                    if not failed:
                        server = self._server.host or self._server.path
                        log.warning("audit.syslog_unreachable", server=server, error=str(error))
                    failed = True
                    await asyncio.sleep(backoff.failed())
                    continue
                if failed:
                    log.info("audit.syslog_reached", dropped=self.dropped)
                backoff.reset()
                failed = False
                for line in batch:
                    if self._waiting and self._waiting[0] is line:
                        self._waiting.popleft()
        finally:
            self._close()

    def _send(self, batch: list[bytes]) -> None:
        if self._socket is None:
            self._socket = _connect(self._server)
        if self._server.kind in _STREAMS:
            framed = (f"{len(message)} ".encode() + message for message in map(_message, batch))
            self._socket.sendall(b"".join(framed))
        else:
            for line in batch:
                self._socket.send(_message(line))

    def _close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


def _message(line: bytes) -> bytes:
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    header = f"<{_PRIORITY}>1 {at} {socket.gethostname()} holdfast-controller {os.getpid()} audit - "
    return header.encode() + line.rstrip(b"\n")


def _connect(server: SyslogServer) -> socket.socket:
    if server.kind == "unix":
        return _connect_unix(server.path)
    if server.kind == "udp":
        family, kind, protocol, _, address = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_DGRAM)[0]
        made = socket.socket(family, kind, protocol)
        made.connect(address)
        return made
    made = socket.create_connection((server.host, server.port), TIMEOUT_S)
    if server.kind == "tcp":
        return made
    try:
        return ssl.create_default_context().wrap_socket(made, server_hostname=server.host)
    except BaseException:
        made.close()
        raise


def _connect_unix(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.settimeout(TIMEOUT_S)
    try:
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made
