"""Connections to keepers, which shims fork beside ranks: for users' shells, and for faults that are injected.

Each has a socket of its own, in its worker's directory until the keeper has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast._session.reports import WorkerId
from holdfast_agent.shell.shims.shims import Shims

STARTED_WITHIN_S = 10.0
BUFFER_BYTES = 64 << 10
_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def keeper(
    workers: Path, shims: Shims, key: WorkerId, order: dict[str, object]
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """The connection of a keeper that the worker's shim forks for the order, which ends with it.

    Raises ``OSError``, and ``TimeoutError`` where the shim does not fork it in time.
    """
    name = f"keeper.{next(_numbers)}"
    directory = os.open(workers / key.job / key.worker, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)  # of an agent that was killed
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        listener.listen(1)
        shims.send(key, order | {"socket": name})
        async with asyncio.timeout(STARTED_WITHIN_S):
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
    finally:
        listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        os.close(directory)
    reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=BUFFER_BYTES)
    writer.transport.set_write_buffer_limits(BUFFER_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
