"""Starts shims and keeps spare ones warm, so that a launch needs no Python start."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import holdfast_agent.shim

SPARES = 1


@dataclass
class Fresh:
    """A shim that waits for its ``assign`` on ``sock``."""

    pid: int
    sock: socket.socket


class Spawner:
    """Starts ``shim.py`` processes. They outlive the agent once assigned; unassigned ones end with it."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        self._spares: list[Fresh] = []
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._loop = asyncio.get_running_loop()
        self._refilling: asyncio.TimerHandle | None = None

    def take(self) -> Fresh:
        """A shim for one worker: a warm one where there is one. Raises ``OSError`` when none can be started."""
        while self._spares:
            spare = self._spares.pop()
            if spare.pid in self._children:
                self._refill_later()
                return spare
            spare.sock.close()
        self._refill_later()
        return self._start()

    def warm(self) -> None:
        """Start the spare ones that are missing. Raises ``OSError``."""
        self._refilling = None
        while len(self._spares) < SPARES:
            self._spares.append(self._start())

    def close(self) -> None:
        """End the spare ones; assigned ones live on."""
        if self._refilling:
            self._refilling.cancel()
        for spare in self._spares:
            spare.sock.close()
        self._spares.clear()

    def _refill_later(self) -> None:
        if self._refilling is None:
            # Not now: the start of a Python competes for the core with the launch that took the spare.
            self._refilling = self._loop.call_later(0.5, self._refill)

    def _refill(self) -> None:
        try:
            self.warm()
        except OSError:
            self._refilling = self._loop.call_later(5.0, self._refill)

    def _start(self) -> Fresh:
        ours, theirs = socket.socketpair()
        errors = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", holdfast_agent.shim.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd="/",
                env={"LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(errors)
        self._children[child.pid] = child
        watch_exit(child.pid, lambda: self._reap(child.pid))
        return Fresh(child.pid, ours)

    def _reap(self, pid: int) -> None:
        child = self._children.pop(pid, None)
        if child is not None:
            child.poll()


def watch_exit(pid: int, on_exit: Callable[[], None]) -> bool:
    """Call ``on_exit`` once when the process is gone. False where there is no such process."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        on_exit()

    loop.add_reader(pidfd, gone)
    return True
