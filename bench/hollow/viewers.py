"""A process of people who look at the web page: what their browsers would ask, without drawing it.

Reads lines of JSON on its standard input, each a viewer's ``{"cookie": ..., "look": [PATH, ...]}``; an empty line
begins the looking, the end of input ends it. As the page does, each viewer asks for what it shows, and follows that on
the stream of changes; a list of jobs, whose path begins with ``ask:``, it asks for again at each change, every two
seconds at most. Prints figures as JSON at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import sys
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvloop

LEAST_S = 2.0
"""Between two questions of one viewer for the same."""
ASKED = "ask:"
COME_AT_ONCE = 8
"""Connections that are opened at a time: the controller takes no flood of handshakes from one address."""
HEADERS = "X-Holdfast: page\r\nSec-Fetch-Site: same-origin\r\nAccept-Encoding: gzip\r\n"


@dataclass
class Seen:
    """What all viewers got."""

    answers: Counter[str] = field(default_factory=Counter)
    """By status; what is told on the stream counts as 200."""
    bytes: int = 0
    changes: int = 0
    shown: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """By viewer and path: when an answer had come, and the position of the log that it is not older than."""


class Viewer:
    """One browser, signed in by its cookie."""

    def __init__(
        self, port: int, tls: ssl.SSLContext, cookie: str, look: list[str], seen: Seen, door: asyncio.Semaphore
    ) -> None:
        self._port, self._tls, self._cookie, self._seen, self._door = port, tls, cookie, seen, door
        self._followed = [path for path in look if not path.startswith(ASKED)]
        self._due = {path.removeprefix(ASKED): asyncio.Event() for path in look if path.startswith(ASKED)}
        self._cursor = 0
        self._name = f"{id(self)} "

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
            asked = []
            for path in self._followed:
                writer.write(self._request(path, "*/*"))
                status, size, tag = await _answer(reader)
                self._note(path, status, size, 0)
                asked.append(("follow", f"{path}#{tag}"))
            writer.write(self._request(f"/v1/changes?{urlencode(asked)}", "text/event-stream"))
            async for event, data in _events(reader, self._seen):
                if event == "change":
                    self._seen.changes += 1
                    self._cursor = int(
                        data[10 : data.index(b",")]
                    )  # the first field; to parse the rest costs as much
                    for due in self._due.values():
                        due.set()
                elif event == "answer":
                    self._note(data[9 : data.index(b'"', 9)].decode(), "200", 0, self._cursor)

    async def _look(self, path: str) -> None:
        await self._due[path].wait()  # a connection on which nothing is asked is closed
        reader, writer = await self._connected()
        with contextlib.closing(writer):
            while True:
                await self._due[path].wait()
                self._due[path].clear()
                cursor = self._cursor
                writer.write(self._request(path, "*/*"))
                status, size, _ = await _answer(reader)
                self._note(path, status, size, cursor)
                await asyncio.sleep(LEAST_S)

    def _note(self, path: str, status: str, size: int, cursor: int) -> None:
        self._seen.answers[status] += 1
        self._seen.bytes += size
        self._seen.shown.setdefault(self._name + path, []).append((time.monotonic(), cursor))


async def _answer(reader: asyncio.StreamReader) -> tuple[str, int, str]:
    """Status, number of bytes and tag of an answer, which is read and forgotten."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    fields = dict(line.split(": ", 1) for line in head.split("\r\n") if ": " in line)
    left = length = int(fields["content-length"])
    while left:
        left -= len(await reader.read(min(left, 1 << 18))) or left
    return head.split(" ", 2)[1], length, fields.get("etag", "").strip('"')


async def _events(reader: asyncio.StreamReader, seen: Seen) -> AsyncIterator[tuple[str, bytes]]:
    """Name and data of each event of a stream that comes in chunks."""
    packed, left = b"gzip" in await reader.readuntil(b"\r\n\r\n"), b""
    unpack = zlib.decompressobj(wbits=31).decompress if packed else bytes
    while size := int(await reader.readline() or b"0", 16):
        seen.bytes += size
        *whole, left = (left + unpack((await reader.readexactly(size + 2))[:-2])).split(b"\n\n")
        for event in whole:
            lines = dict(line.split(b": ", 1) for line in event.split(b"\n"))
            yield lines.get(b"event", b"").decode(), lines.get(b"data", b"")


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
    found = {"answers": dict(seen.answers), "bytes": seen.bytes, "changes": seen.changes, "shown": seen.shown}
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
