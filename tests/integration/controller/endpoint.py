"""A receiver of notifications: a real HTTP server on loopback that answers as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

WITHIN_S = 180.0


OPENED: set[int] = set()
"""Ports of all endpoints so far."""


@dataclass
class Endpoint:
    port: int = 0
    status: int = 200
    silent: bool = False
    """Takes what comes, and never answers."""
    got: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=s3cret"

    def events(self) -> list[str]:
        """Kinds of what came, in order."""
        return [body["event"] for body in self.got]

    async def until(self, test: Callable[[Endpoint], object]) -> None:
        """Wait until ``test`` holds of what came."""
        async with asyncio.timeout(WITHIN_S):
            while not test(self):
                self.news.clear()
                await self.news.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                assert line.startswith(b"POST /hook" if self.silent else b"POST /hook?token=s3cret ")
                headers = {}
                while (line := await reader.readline()) != b"\r\n":
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers["content-length"]))
                self.got.append(json.loads(body))
                self.headers.append(headers)
                self.news.set()
                if self.silent:
                    await reader.read()
                    return
                writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def endpoint(**how: Any) -> AsyncIterator[Endpoint]:
    """One that listens while the block runs."""
    made = Endpoint(**how)
    server = await asyncio.start_server(made.serve, "127.0.0.1", made.port)
    made.port = server.sockets[0].getsockname()[1]
    OPENED.add(made.port)
    try:
        yield made
    finally:
        server.close()
