"""The shims of this host: one per place, found again after a restart of the agent, watched until they are gone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_agent.core.model import PlaceKey
from holdfast_agent.shell import log
from holdfast_agent.shell.proc import start_ticks
from holdfast_agent.shell.shim_link import ShimLink, connect
from holdfast_agent.shell.spawner import Spawner, watch_exit

RECONNECT_S = 0.5
"""A living shim that dropped us is asked again after this time."""


@dataclass(slots=True)
class Held:
    """A shim that lives."""

    pid: int
    link: ShimLink | None = None


class Shims:
    """Keeps a connection to each place's shim. Callbacks come from the event loop, never from within a call here."""

    def __init__(
        self,
        workers: Path,
        spawner: Spawner,
        on_message: Callable[[PlaceKey, dict[str, Any]], None],
        on_lost: Callable[[PlaceKey], None],
    ) -> None:
        self._workers = workers
        self._spawner = spawner
        self._on_message = on_message
        self._on_lost = on_lost
        self._held: dict[PlaceKey, Held] = {}
        self._loop = asyncio.get_running_loop()

    def directory(self, key: PlaceKey) -> Path:
        """Where the place's truth is kept."""
        return self._workers / key.job / key.worker

    def pid(self, key: PlaceKey) -> int:
        """Of the place's shim; 0 without one."""
        held = self._held.get(key)
        return held.pid if held else 0

    def ensure(self, key: PlaceKey) -> None:
        """Have a shim for the place, a new one where there is none. Raises ``OSError``."""
        if key in self._held:
            return
        directory = self.directory(key)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._spawner.take()
        held = self._hold(key, fresh.pid)
        held.link = self._link(key, held, fresh.sock)
        held.link.send({"op": "assign", "dir": str(directory)})

    def adopt(self, key: PlaceKey) -> bool:
        """Reconnect to the shim that the place's files name. False where it is gone, as proven by its start time."""
        try:
            known = json.loads((self.directory(key) / "shim.json").read_bytes())
            pid, ticks = int(known["pid"]), int(known["start_ticks"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if start_ticks(pid) != ticks:
            return False
        held = self._hold(key, pid)
        if start_ticks(pid) != ticks:
            self._held.pop(key, None)
            return False
        self._reconnect(key, held)
        return True

    def send(self, key: PlaceKey, message: dict[str, Any]) -> None:
        """Tell the place's shim. Nothing while it can't be reached: what it should do is asked for again then."""
        held = self._held.get(key)
        if held is not None and held.link is not None:
            held.link.send(message)

    def dismiss(self, key: PlaceKey) -> None:
        """Let the place's shim end; it is no longer watched."""
        held = self._held.pop(key, None)
        if held is not None and held.link is not None:
            held.link.send({"op": "quit"})
            held.link.close()

    def close(self) -> None:
        """Close all connections; the shims go on."""
        for held in self._held.values():
            if held.link is not None:
                held.link.close()
        self._held.clear()

    def _hold(self, key: PlaceKey, pid: int) -> Held:
        held = self._held[key] = Held(pid)
        if not watch_exit(pid, lambda: self._gone(key, held)):
            self._loop.call_soon(self._gone, key, held)
        return held

    def _link(self, key: PlaceKey, held: Held, sock: socket.socket) -> ShimLink:
        return ShimLink(sock, lambda message: self._on_message(key, message), lambda: self._dropped(key, held))

    def _dropped(self, key: PlaceKey, held: Held) -> None:
        held.link = None
        self._loop.call_later(RECONNECT_S, self._reconnect, key, held)

    def _reconnect(self, key: PlaceKey, held: Held) -> None:
        if self._held.get(key) is not held or held.link is not None:
            return
        try:
            sock = connect(self.directory(key))
        except OSError as error:
            log.warning("shim.unreachable", place=str(key), pid=held.pid, problem=str(error))
            self._loop.call_later(RECONNECT_S, self._reconnect, key, held)
            return
        if _peer_pid(sock) != held.pid:
            log.warning("shim.impostor", place=str(key), pid=held.pid, peer=_peer_pid(sock))
            sock.close()
            return
        held.link = self._link(key, held, sock)

    def _gone(self, key: PlaceKey, held: Held) -> None:
        if self._held.get(key) is not held:
            return
        if held.link is not None:
            held.link.close()
        del self._held[key]
        self._on_lost(key)


def _peer_pid(sock: socket.socket) -> int:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def remove_state(directory: Path) -> None:
    """Remove a worker's directory and its job's, if that is empty. The directory holds plain files of ours only."""
    for entry in os.scandir(directory):
        os.unlink(entry.path)
    directory.rmdir()
    try:
        directory.parent.rmdir()
    except OSError:
        return
