"""A TCP proxy that delays, stalls, half-closes and cuts: in a test's process, or as a door into another namespace.

``python proxy.py NETNS HOST:PORT`` prints the port on 127.0.0.1 where it listens, here, and dials from in NETNS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1 << 16
CLONE_NEWNET = 0x40000000


@dataclass(eq=False)
class _Way:
    """One direction of one connection."""

    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@dataclass
class Proxy:
    """Passes bytes on, as slowly or as badly as it is told; every method takes effect on live connections too."""

    target: tuple[str, int] | str
    """HOST and port, or the path of a socket."""
    delay_s: float = 0.0
    """Each way, for every piece."""
    port: int = 0
    accepted: int = 0
    _ways: set[_Way] = field(default_factory=set)
    _flows: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, listener: socket.socket | None = None) -> None:
        """Listen on ``listener``, or on a free port of 127.0.0.1."""
        for name in ("up", "down"):
            self._flows[name] = asyncio.Event()
            self._flows[name].set()
        listener = listener or _listener()
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def stop(self) -> None:
        """Cut everything and listen no more."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stall(self, *ways: str) -> None:
        """Pass nothing on that goes ``"up"`` (to the target) or ``"down"``, but lose nothing either."""
        for way in ways:
            self._flows[way].clear()

    async def flow(self) -> None:
        """Pass everything on again, what was held back first."""
        for flow in self._flows.values():
            flow.set()

    async def cut(self) -> None:
        """Break every connection; new ones are taken."""
        for way in list(self._ways):
            way.writer.transport.abort()

    async def half_close(self, name: str) -> None:
        """Say in one direction that nothing more comes."""
        for way in list(self._ways):
            if way.name == name and way.writer.can_write_eof():
                with contextlib.suppress(OSError, RuntimeError):
                    way.writer.write_eof()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if isinstance(self.target, str):
                there, back = await asyncio.open_unix_connection(self.target)
            else:
                there, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        ways = [_Way("up", reader, back), _Way("down", there, writer)]
        self._ways.update(ways)
        try:
            async with asyncio.TaskGroup() as both:
                for way in ways:
                    both.create_task(self._carry(way))
        except* OSError:
            pass
        finally:
            self._ways.difference_update(ways)
            for way in ways:
                way.writer.transport.abort()
            self._tasks.discard(task)

    async def _carry(self, way: _Way) -> None:
        while data := await way.reader.read(CHUNK):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._flows[way.name].wait()
            way.writer.write(data)
            await way.writer.drain()
        if way.writer.can_write_eof():
            way.writer.write_eof()


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


class Held:
    """A proxy in a thread, for tests that are not asynchronous."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.proxy = Proxy(target)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a method of ``proxy`` and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@contextlib.contextmanager
def held(target: tuple[str, int]) -> Iterator[Held]:
    """A proxy before ``target`` that runs until the block is left."""
    made = Held(target)
    made._thread.start()
    try:
        made.do(made.proxy.start())
        yield made
        made.do(made.proxy.stop())
    finally:
        made._loop.call_soon_threadsafe(made._loop.stop)
        made._thread.join(30)
        made._loop.close()


async def _door(listener: socket.socket, target: tuple[str, int]) -> None:
    await Proxy(target).start(listener)
    print(listener.getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until whoever started us is gone


def _main(netns: str, target: str) -> None:
    listener = _listener()  # sockets stay in the namespace where they were made
    with open(netns) as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {netns}")
    host, _, port = target.rpartition(":")
    asyncio.run(_door(listener, (host, int(port))))
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
