"""Calls of gRPC that are never finished, over frames of HTTP/2 written by hand: no client library sends half a message.

It heeds flow control, as an attacker has to: gRPC closes the connection of one who doesn't.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections import defaultdict

from holdfast._security.tls import SERVER_NAME, TlsFiles

DATA, HEADERS, RST, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4
FRAME_BYTES = 16_384


class RawCalls:
    """Calls over one connection. Those that the server has ended are in ``ended``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._calls = 0
        self._initial, self._window = 65_535, 65_535
        self._granted: defaultdict[int, int] = defaultdict(int)
        """By call, beyond the initial window and less what was sent."""
        self._news = asyncio.Condition()
        self.ended: set[int] = set()
        self.first_end = asyncio.Event()
        self.closed = False
        self.sent = 0
        """Bytes of all messages."""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(cls, port: int, files: TlsFiles) -> RawCalls:
        """A connection of its own to this machine's port."""
        context = ssl.create_default_context(cafile=str(files.ca))
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(files.cert, files.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=SERVER_NAME)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, b""))
        return cls(reader, writer)

    async def close(self) -> None:
        """End the connection and all its calls."""
        self._reading.cancel()
        self._writer.transport.abort()
        await asyncio.wait([self._reading])

    def begin(self, method: str) -> int:
        """Begin a call of ``/SERVICE/METHOD``; returns its number."""
        number = 2 * self._calls + 1
        self._calls += 1
        fields = {
            ":method": "POST",
            ":scheme": "https",
            ":path": method,
            ":authority": SERVER_NAME,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        self._writer.write(_frame(HEADERS, END_HEADERS, number, block))
        return number

    async def send(self, number: int, data: bytes) -> None:
        """Send ``data`` as fast as the server lets; return when all is sent or the call has ended."""
        at = 0
        while at < len(data):
            async with self._news:
                await self._news.wait_for(lambda: self._may_send(number) > 0 or self._is_over(number))
            if self._is_over(number):
                return
            size = min(self._may_send(number), len(data) - at, FRAME_BYTES)
            self._writer.write(_frame(DATA, 0, number, data[at : at + size]))
            self._granted[number] -= size
            self._window -= size
            self.sent += size
            at += size
            await self._writer.drain()

    def _may_send(self, number: int) -> int:
        return min(self._window, self._initial + self._granted[number])

    def _is_over(self, number: int) -> bool:
        return self.closed or number in self.ended

    async def _read(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(9)
                size, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
                number = int.from_bytes(head[5:]) & 0x7FFFFFFF
                await self._take(kind, flags, number, await self._reader.readexactly(size))
        self.closed = True
        async with self._news:
            self._news.notify_all()

    async def _take(self, kind: int, flags: int, number: int, body: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            found = dict(struct.iter_unpack(">HI", body))
            self._initial = found.get(INITIAL_WINDOW, self._initial)
            self._writer.write(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._writer.write(_frame(PING, ACK, 0, body))
        elif kind == WINDOW_UPDATE and number == 0:
            self._window += int.from_bytes(body)
        elif kind == WINDOW_UPDATE:
            self._granted[number] += int.from_bytes(body)
        elif kind == RST or (kind == HEADERS and flags & END_STREAM):
            self.ended.add(number)
            self.first_end.set()
        async with self._news:
            self._news.notify_all()


def prefix(size: int) -> bytes:
    """The bytes that stand before a message of so many."""
    return struct.pack(">BI", 0, size)


def _frame(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + number.to_bytes(4) + body


def _text(value: str) -> bytes:
    return bytes((len(value),)) + value.encode()
