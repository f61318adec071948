"""A package index over TLS, and an HTTP proxy in front of it: real servers on loopback, in threads."""

from __future__ import annotations

import base64
import html
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import trustme

USER, PASSWORD = "build", "p@ss/w0rd:1"
"""With characters that a URL has to quote."""


@dataclass
class Index:
    """Serves the wheels in ``folder`` by the simple API. ``asked`` are the paths that were answered."""

    folder: Path
    port: int = 0
    asked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Paths that were asked for without the right credentials."""


@dataclass
class Proxy:
    """Passes connections on to ``upstream``, whatever host they name: such names need not be known here."""

    upstream: int
    port: int = 0
    authorization: str = ""
    targets: list[str] = field(default_factory=list)
    refused: int = 0


@contextmanager
def index(folder: Path, ca: trustme.CA | None, *, authenticated: bool = False) -> Iterator[Index]:
    """An index on loopback; over TLS if there is a CA, whose certificate is good for index.example too."""
    made = Index(folder)
    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(_Quiet):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if authenticated and self.headers.get("Authorization") != wanted:
                made.refused.append(path)
                self.answer(401, b"", **{"WWW-Authenticate": 'Basic realm="index"'})
                return
            made.asked.append(path)
            file = folder / path.rpartition("/")[2]
            if path.startswith("/files/") and file.is_file():
                self.answer(200, file.read_bytes(), **{"Content-Type": "application/octet-stream"})
                return
            name = path.strip("/").rpartition("/")[2]
            links = "".join(
                f'<a href="/files/{html.escape(wheel.name)}">{html.escape(wheel.name)}</a>\n'
                for wheel in sorted(folder.iterdir())
                if wheel.name.startswith(f"{name}-")
            )
            body = f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
            self.answer(200 if links else 404, body, **{"Content-Type": "text/html"})

    server = _Server(("127.0.0.1", 0), Handler)
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("localhost", "127.0.0.1", "index.example").configure_cert(context)
        server.context = context
    with _running(server) as made.port:
        yield made


@contextmanager
def proxy(upstream: int, *, authenticated: bool = False) -> Iterator[Proxy]:
    """A proxy on loopback, for CONNECT and for plain http."""
    made = Proxy(upstream)
    if authenticated:
        made.authorization = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(_Quiet):
        def do_CONNECT(self) -> None:
            if not self._taken():
                return
            with socket.create_connection(("127.0.0.1", made.upstream)) as there:
                self.send_response(200)
                self.end_headers()
                _pass_on(self.connection, there)
            self.close_connection = True

        def do_GET(self) -> None:
            if not self._taken():
                return
            with socket.create_connection(("127.0.0.1", made.upstream)) as there:
                path = self.path.partition("://")[2].partition("/")[2]
                there.sendall(f"GET /{path} HTTP/1.0\r\n".encode())
                for name, value in self.headers.items():
                    if not name.lower().startswith(("proxy-", "connection")):
                        there.sendall(f"{name}: {value}\r\n".encode())
                there.sendall(b"\r\n")
                while data := there.recv(1 << 16):
                    self.wfile.write(data)
            self.close_connection = True

        def _taken(self) -> bool:
            if made.authorization and self.headers.get("Proxy-Authorization") != made.authorization:
                made.refused += 1
                self.answer(407, b"", **{"Proxy-Authenticate": 'Basic realm="proxy"'})
                return False
            made.targets.append(self.path)
            return True

    with _running(_Server(("127.0.0.1", 0), Handler)) as made.port:
        yield made


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.answer(405, b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            if self.context is not None:
                request = self.context.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)
        except OSError:
            pass  # a client that doesn't trust the certificate, or that is done
        finally:
            request.close()


@contextmanager
def _running(server: _Server) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([one, other], [], [], 60)
        if not ready:
            return
        for source in ready:
            data = source.recv(1 << 16)
            if not data:
                return
            (other if source is one else one).sendall(data)
