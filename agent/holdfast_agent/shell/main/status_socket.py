"""Serves the agent's status to root on its own host, over ``agent.sock`` in the state directory.

The answer is one JSON object; nothing is read from the caller. The kernel says which user connects: root and the
agent's own user get the answer, all others are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

import anyio

from holdfast import __version__
from holdfast._base.cancellation import connection_handler
from holdfast._daemon import log
from holdfast_agent.core.upgrade.handover import in_flight
from holdfast_agent.shell.doctor.status_client import ANSWER_S, NAME
from holdfast_agent.shell.driver.driver import Driver

_AT_A_TIME = 8
_CREDENTIALS = struct.Struct("3i")


class LocalStatus:
    """Serves one agent's. ``controller`` is the address that it dials."""

    def __init__(self, directory: Path, controller: str, driver: Driver) -> None:
        self._directory = directory
        self._controller = controller
        self._driver = driver
        self._answering = 0

    async def run(self) -> None:
        """Answer until cancelled. Without the socket an agent does all else, so what goes wrong is only logged."""
        try:
            sock = _bound(self._directory)
        except OSError as error:
            log.warning("status_socket.listen_failed", error=str(error))
            return
        server = await asyncio.start_unix_server(self._answer, sock=sock)
        async with server:
            await server.serve_forever()

    @connection_handler
    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answering += 1
        try:
            if _peer_uid(writer) in (0, os.geteuid()) and self._answering <= _AT_A_TIME:
                writer.write(json.dumps(self.status()).encode() + b"\n")
                with anyio.move_on_after(ANSWER_S):
                    await writer.drain()
        except OSError:
            pass  # the caller has disconnected
        finally:
            self._answering -= 1
            writer.close()

    def status(self) -> dict[str, Any]:
        """The current status."""
        driver = self._driver
        workers, busy = [], []
        for key in driver.known():
            worker = driver.worker(key)
            if worker is None:
                continue
            living = sorted(pair for pair in worker.pids.items() if pair[0] not in worker.codes)
            workers.append(
                {
                    "worker": str(key),
                    "state": worker.state.kind.value,
                    "generation": worker.state.generation,
                    "shimPid": worker.shim_pid,
                    "ranks": [{"rank": rank, "pid": pid} for rank, pid in living],
                    "doing": worker.doing,
                }
            )
            if doing := in_flight(worker, examined=driver.parts.hangs.examining(key)):
                busy.append({"worker": str(key), "doing": doing})
        return {
            "version": __version__,
            "pid": os.getpid(),
            "host": driver.facts.name,
            "controller": self._controller,
            "connected": driver.connected,
            "status": driver.status(),
            "unacknowledged": driver.unacknowledged,
            "busy": busy,
            "workers": workers,
        }


def _bound(directory: Path) -> socket.socket:
    """Listening, whatever the length of the path. Raises ``OSError``."""
    holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path = f"/proc/self/fd/{holder}/{NAME}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NAME, dir_fd=holder)  # an earlier run's; the lock says that there is no other agent
        sock.bind(path)
        os.chmod(path, 0o600)
        sock.listen(_AT_A_TIME)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(holder)
    return sock


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    sock: socket.socket = writer.get_extra_info("socket")
    return int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])
