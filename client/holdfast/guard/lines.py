"""Lines of JSON between two tasks, each of which proves that it comes from the other side, and is its next one.

What lies between the two may hold them back or hang up, and no more: without the seed nothing can make a line,
nor change, repeat, leave out or turn round one that was made.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import Unauthenticated
from holdfast.guard import trust

LINE_BYTES = 64 << 10
SILENT_S, BEAT_S = 20, 5
"""A task that is silent for so long is gone; the kernel asks in between, at no cost to us."""


class Link:
    """One side of a conversation that both know by ``words``: what each has chosen at random, and the port."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        seed: bytes,
        words: Sequence[str],
        *,
        first_task: bool,
    ) -> None:
        self._reader, self._writer, self._seed = reader, writer, seed
        self._words = tuple(words)
        self._sides = ("task 0", "another") if first_task else ("another", "task 0")
        self._sent = self._received = 0

    def send(self, message: Mapping[str, Any]) -> None:
        """Send the next line."""
        text = json.dumps(message)
        self._writer.write(f"{self._proof(self._sides[0], self._sent, text)} {text}\n".encode())
        self._sent += 1

    async def receive(self) -> dict[str, Any]:
        """The other side's next line. Raises ``Unauthenticated`` for one that is not, and as ``read_line`` does."""
        proof, _, text = (await _line(self._reader)).decode(errors="replace").partition(" ")
        expected = self._proof(self._sides[1], self._received, text)
        if not secrets.compare_digest(proof.encode(), expected.encode()):
            raise Unauthenticated("the other side has another secret")
        self._received += 1
        return _object(text)

    def _proof(self, side: str, number: int, text: str) -> str:
        return trust.proof(self._seed, *self._words, side, str(number), text)

    def keep_asking(self) -> None:
        """Have the kernel find out when the other side is gone without a word, such as a host without power."""
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, BEAT_S),
            (socket.TCP_KEEPINTVL, BEAT_S),
            (socket.TCP_KEEPCNT, SILENT_S // BEAT_S - 1),
            (socket.TCP_USER_TIMEOUT, SILENT_S * 1000),  # for what was sent and not acknowledged
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def close(self) -> None:
        """End the connection to the other task."""
        self._writer.close()


def write_line(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Send a line that proves nothing."""
    writer.write(json.dumps(message).encode() + b"\n")


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any]:
    """A line that proves nothing. Raises ``ValueError``, ``OSError`` or ``IncompleteReadError`` where none comes."""
    return _object(await _line(reader))


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await reader.readuntil(b"\n"))[:-1]
    except asyncio.LimitOverrunError as error:
        raise ValueError("a line without end") from error


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message
