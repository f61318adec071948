"""A process of people who look at the web page: what their browsers would ask, without drawing it.

Reads lines of JSON on its standard input, each a viewer's ``{"cookie": ..., "look": [PATH, ...]}``; an empty line
begins the looking, the end of input ends it. As the page does, each viewer reads the stream of changes and asks for
what it shows again at every change, at most once a second. Prints figures as JSON at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import uvloop

LEAST_S = 1.0
"""Between two questions of one viewer for the same."""
COME_AT_ONCE = 8
"""Connections that are opened at a time: the controller takes no flood of handshakes from one address."""
HEADERS = "X-Holdfast: page\r\nSec-Fetch-Site: same-origin\r\nAccept-Encoding: gzip\r\n"


@dataclass
class Seen:
    """What all viewers got."""

    answers: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    changes: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds from being told of a change until the last byte of an answer that was asked for it."""


class Viewer:
    """One browser, signed in by its cookie."""

    def __init__(
        self, port: int, tls: ssl.SSLContext, cookie: str, look: list[str], seen: Seen, door: asyncio.Semaphore
    ) -> None:
        self._port, self._tls, self._cookie, self._seen, self._door = port, tls, cookie, seen, door
        self._due = {path: asyncio.Event() for path in look}
        self._told = dict.fromkeys(look, 0.0)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            for path in self._due:
                tasks.create_task(self._look(path))

    def _request(self, path: str, accept: str) -> bytes:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost:{self._port}\r\nAccept: {accept}\r\n"
        return f"{head}{HEADERS}Cookie: {self._cookie}\r\n\r\n".encode()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._door:
            return await asyncio.open_connection("localhost", self._port, ssl=self._tls)

    async def _follow(self) -> None:
        reader, writer = await self._connected()
        with contextlib.closing(writer):
            writer.write(self._request("/v1/changes", "text/event-stream"))
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    self._seen.changes += 1
                    for path, due in self._due.items():
                        if not due.is_set():
                            self._told[path] = time.monotonic()
                            due.set()

    async def _look(self, path: str) -> None:
        reader, writer = await self._connected()
        with contextlib.closing(writer):
            while True:
                await self._due[path].wait()
                self._due[path].clear()
                told = self._told[path]
                writer.write(self._request(path, "*/*"))
                status, size = await _answer(reader)
                self._seen.answers[status] += 1
                self._seen.bytes += size
                self._seen.waits.append(time.monotonic() - told)
                await asyncio.sleep(LEAST_S)


async def _answer(reader: asyncio.StreamReader) -> tuple[str, int]:
    """Status and number of bytes of an answer, which is read and forgotten."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
    left = length
    while left:
        left -= len(await reader.read(min(left, 1 << 18))) or left
    return head.split(" ", 2)[1], length


async def looking(port: int, ca: str) -> dict[str, Any]:
    """The figures, once standard input has ended."""
    tls = ssl.create_default_context(cafile=ca)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    seen, viewers, door = Seen(), [], asyncio.Semaphore(COME_AT_ONCE)
    while line := (await lines.readline()).strip():
        wanted = json.loads(line)
        viewers.append(Viewer(port, tls, wanted["cookie"], wanted["look"], seen, door))
    cpu = time.process_time()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(viewer.run()) for viewer in viewers]
        await lines.read()
        for each in running:
            each.cancel()
    found = {"answers": dict(seen.answers), "bytes": seen.bytes, "changes": seen.changes, "waits": seen.waits}
    return found | {"cpu": time.process_time() - cpu}


def main() -> None:
    """Look, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", required=True)
    options = parser.parse_args()
    print(json.dumps(uvloop.run(looking(options.port, options.ca))), flush=True)


if __name__ == "__main__":
    main()
