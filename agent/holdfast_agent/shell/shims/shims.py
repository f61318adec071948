"""The shims of this host: one per worker, found again after a restart of the agent, watched until they are gone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from holdfast._base.failpoints import hit
from holdfast._daemon import log
from holdfast._session.protocol import agree
from holdfast._session.reports import WorkerId
from holdfast.errors import StoreError
from holdfast_agent.shell.shims.shim_files import start_ticks
from holdfast_agent.shell.shims.shim_link import ShimLink, connect, peer
from holdfast_agent.shell.shims.spawner import Spawner, watch_exit
from holdfast_agent.shell.shims.worker_files import WorkerFiles
from holdfast_agent.shim import shim

RECONNECT_S = 0.5
"""A living shim that dropped us is asked again after this time."""
TELLING_S, TELLING_EVERY_S = 10.0, 0.1
"""How long an agent that starts tries to learn whether a shim lives, before it ends rather than guess."""
QUIT_S = 5.0
"""A shim with nothing to do that has not ended by then is killed."""


@dataclass(slots=True)
class Held:
    """A shim that lives."""

    pid: int
    start_ticks: int | None
    link: ShimLink | None = None
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has its directory, or has said why not."""
    refusal: str = ""
    keeps_shells: bool = False
    binds: bool = False
    faults: tuple[str, ...] = ()


class Shims:
    """Keeps a connection to each worker's shim. Callbacks come from the event loop, not from within a call."""

    def __init__(
        self,
        files: WorkerFiles,
        spawner: Spawner,
        on_message: Callable[[WorkerId, dict[str, Any]], None],
        on_lost: Callable[[WorkerId], None],
        guard_pid: int = 0,
    ) -> None:
        self._files = files
        self._spawner = spawner
        self._on_message = on_message
        self._on_lost = on_lost
        self._guard = {"guard": {"pid": guard_pid, "start_ticks": start_ticks(guard_pid)}} if guard_pid else {}
        self._held: dict[WorkerId, Held] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._held)

    def pid(self, key: WorkerId) -> int:
        """The pid of the worker's shim; 0 without one."""
        held = self._held.get(key)
        return held.pid if held else 0

    def is_ready(self, key: WorkerId) -> bool:
        """Whether the worker's shim has its directory and can launch."""
        held = self._held.get(key)
        return held is not None and held.link is not None and held.greeted.is_set() and not held.refusal

    def keeps_shells(self, key: WorkerId) -> bool:
        """Whether the worker's shim can start shells beside its ranks; one of an older release can't."""
        held = self._held.get(key)
        return held is not None and held.keeps_shells

    def binds(self, key: WorkerId) -> bool:
        """Whether the worker's shim binds ranks to cores and memory; one of an older release doesn't."""
        held = self._held.get(key)
        return held is not None and held.binds

    def faults(self, key: WorkerId) -> tuple[str, ...]:
        """The faults that the worker's shim can inject; none for one of an older release."""
        held = self._held.get(key)
        return held.faults if held is not None else ()

    async def ready(self, key: WorkerId) -> str:
        """Wait until the worker's shim has its directory. Returns why that failed, empty when all is well."""
        held = self._held.get(key)
        if held is None:
            return "its shim ended at once"
        await held.greeted.wait()
        return held.refusal

    def ensure(self, key: WorkerId) -> None:
        """Have a shim for the worker: the one that has its directory, else a new one. Raises ``OSError``."""
        if key in self._held or self.adopt(key):
            return
        directory = self._files.directory(key)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._spawner.take()
        try:
            held = self._hold(key, fresh.pid)
        except OSError:
            fresh.sock.close()  # which ends it
            raise
        held.link = self._link(key, held, fresh.sock)
        hit("agent.assign.before")
        held.link.send({"op": "assign", "dir": str(directory), **self._guard})
        hit("agent.assign.after")

    def adopt(self, key: WorkerId) -> bool:
        """Reconnect to the shim that listens in the worker's directory. False where none does.

        Who listens is taken from the kernel, so a file that names another process can't mislead. Raises ``OSError``
        where that can't be found out at present (no descriptors left, a shim that is stopped): the processes of a
        shim that is taken for dead are killed.
        """
        try:
            sock = connect(self._files.directory(key))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        try:
            held = self._hold(key, peer(sock)[0])
        except OSError:
            sock.close()
            raise
        held.link = self._link(key, held, sock)
        return True

    async def found(self, key: WorkerId) -> bool:
        """Adopt the worker's shim, with retries; raises ``StoreError`` where ``TELLING_S`` were not enough."""
        problem = ""
        for _ in range(int(TELLING_S / TELLING_EVERY_S)):
            try:
                return self.adopt(key)
            except OSError as error:
                if not problem:
                    log.warning("shim.unreachable", worker=str(key), error=str(error))
                problem = error.strerror or str(error)
            await anyio.sleep(TELLING_EVERY_S)
        raise StoreError(
            f"Whether the shim of {key} lives can't be found out: {problem}. Its work runs on; start the agent again "
            "once the host has descriptors and memory to spare."
        )

    def send(self, key: WorkerId, message: dict[str, Any]) -> bool:
        """Send a message to the worker's shim. It is lost while the shim can't be reached, and repeated once it greets.

        False for a message that is too long for any shim.
        """
        held = self._held.get(key)
        return held is None or held.link is None or held.link.send(message)

    def dismiss(self, key: WorkerId) -> None:
        """Let the worker's shim end; it is no longer watched."""
        held = self._held.pop(key, None)
        if held is None:
            return
        if held.link is not None:
            held.link.send({"op": "quit"})
            self._loop.call_later(QUIT_S / 2, held.link.close)
        self._loop.call_later(QUIT_S, _kill, held)

    def quit(self) -> None:
        """Let all shims end that have nothing to do; others run on."""
        for held in self._held.values():
            if held.link is not None:
                held.link.send({"op": "quit"})

    def close(self) -> None:
        """Close all connections; the shims go on."""
        for held in self._held.values():
            if held.link is not None:
                held.link.close()
        self._held.clear()

    def _hold(self, key: WorkerId, pid: int) -> Held:
        held = Held(pid, start_ticks(pid))
        lives = watch_exit(pid, lambda: self._gone(key, held))
        self._held[key] = held
        if not lives:
            self._loop.call_soon(self._gone, key, held)
        return held

    def _link(self, key: WorkerId, held: Held, sock: socket.socket) -> ShimLink:
        return ShimLink(sock, lambda message: self._heard(key, held, message), lambda: self._dropped(key, held))

    def _heard(self, key: WorkerId, held: Held, message: dict[str, Any]) -> None:
        if self._held.get(key) is not held:
            return
        try:
            self._handle(key, held, message)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            # Where workers have the agent's own account, anything may sit in a shim's place.
            log.warning("shim.message_invalid", worker=str(key), error=repr(error)[:200])

    def _handle(self, key: WorkerId, held: Held, message: dict[str, Any]) -> None:
        if message["ev"] == "hello" and not agree(message["version"], shim.VERSION):
            self._shun(key, held, message["version"])
            return
        if message["ev"] == "hello":
            held.keeps_shells = bool(message.get("shells"))
            held.binds = bool(message.get("bindings"))
            held.faults = tuple(message.get("faults") or ())
            held.greeted.set()
        elif message["ev"] == "refused" and message["generation"] == 0:
            held.refusal = message["message"]
            held.greeted.set()
        self._on_message(key, message)

    def _shun(self, key: WorkerId, held: Held, version: int) -> None:
        """Leave a shim of an unknown protocol alone: its ranks run on, and its journal records their ends."""
        held.refusal = (
            f"its shim speaks protocol {version}, this agent {shim.VERSION}: an agent between them is needed"
        )
        log.warning("shim.wrong_version", worker=str(key), pid=held.pid, error=held.refusal)
        if held.link is not None:
            held.link.close()
            held.link = None
        held.greeted.set()

    def _dropped(self, key: WorkerId, held: Held) -> None:
        held.link = None
        self._loop.call_later(RECONNECT_S, self._reconnect, key, held)

    def _reconnect(self, key: WorkerId, held: Held) -> None:
        if self._held.get(key) is not held or held.link is not None:
            return
        try:
            held.link = self._link(key, held, connect(self._files.directory(key)))
        except OSError as error:
            log.warning("shim.unreachable", worker=str(key), pid=held.pid, error=str(error))
            self._loop.call_later(RECONNECT_S, self._reconnect, key, held)

    def _gone(self, key: WorkerId, held: Held) -> None:
        if self._held.get(key) is not held:
            return
        if held.link is not None:
            held.link.close()
        del self._held[key]
        held.refusal = held.refusal or "its shim ended"
        held.greeted.set()
        self._on_lost(key)


def _kill(held: Held) -> None:
    try:
        pidfd = os.pidfd_open(held.pid)
    except OSError:
        return
    try:
        if held.start_ticks is not None and start_ticks(held.pid) == held.start_ticks:
            log.warning("shim.killed", pid=held.pid, error="nothing ran there and it did not end when asked")
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(pidfd)
