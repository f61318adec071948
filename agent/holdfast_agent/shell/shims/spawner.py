"""Gets shims from a template that forks itself into them, and keeps a few warm: a launch needs no Python start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import holdfast_agent.shim.template
from holdfast._base import failpoints

SPARES = 2
REFILL_S = 0.3
"""Not at once: the launch that took the spare needs the core now."""
FORK_S = 10.0
"""A template that takes longer to start and fork is given up."""


@dataclass
class Fresh:
    """A shim that waits for its ``assign`` on ``sock``."""

    pid: int
    sock: socket.socket


class Template:
    """The process that forks shims; started with the first of them. It ends when ``close`` is called or we die."""

    def __init__(self, errors: Path) -> None:
        ours, theirs = socket.socketpair()
        log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", holdfast_agent.shim.template.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env={"LANG": "C.UTF-8"} | failpoints.environment(),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(log)
        ours.settimeout(FORK_S)
        self._sock = ours

    def fork(self) -> Fresh:
        """A new shim. Waits for it, half a millisecond. Raises ``OSError``; then the template is of no more use."""
        ours, theirs = socket.socketpair()
        failpoints.hit("agent.fork.before")
        try:
            with theirs:
                socket.send_fds(self._sock, [b"\n"], [theirs.fileno()])
            answer = b""
            while not answer.endswith(b"\n"):
                data = self._sock.recv(256)
                if not data:
                    raise OSError("the shims' template has ended; see shims.log")
                answer += data
            pid, _, problem = answer.decode().strip().partition(" ")
            if not pid.isdigit():
                raise OSError(f"no shim can be forked: {problem}")
            failpoints.hit("agent.fork.after")
            return Fresh(int(pid), ours)
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        """End the template; its shims live on."""
        self._sock.close()
        self._process.kill()
        self._process.wait()


class Spawner:
    """Hands out shims. They outlive the agent once assigned; unassigned ones end with it.

    ``single``: the host has one worker at most, for which one is kept warm until it is taken. Should it die, the next
    one is forked when it is needed: another that waits costs 2 MB.
    """

    def __init__(self, errors: Path, *, single: bool = False) -> None:
        self._errors = errors
        self._single = single
        self._template: Template | None = None
        self._spares: list[Fresh] = []
        self._loop = asyncio.get_running_loop()
        self._refilling: asyncio.TimerHandle | None = None

    def take(self) -> Fresh:
        """A shim for one worker: a warm one where there is one. Raises ``OSError`` when none can be had."""
        if not self._single:
            self._refill_later(REFILL_S)
        while self._spares:
            spare = self._spares.pop()
            if _is_open(spare.sock):
                return spare
            spare.sock.close()
        return self._fork()

    def warm(self) -> None:
        """Have the spare ones that are missing. Raises ``OSError``."""
        while len(self._spares) < (1 if self._single else SPARES):
            self._spares.append(self._fork())

    def close(self) -> None:
        """End the spare ones; assigned ones live on."""
        if self._refilling:
            self._refilling.cancel()
        for spare in self._spares:
            spare.sock.close()
        self._spares.clear()
        if self._template is not None:
            self._template.close()

    def _refill_later(self, seconds: float) -> None:
        if self._refilling is None:
            self._refilling = self._loop.call_later(seconds, self._refill)

    def _refill(self) -> None:
        self._refilling = None
        try:
            self.warm()
        except OSError:
            self._refill_later(5.0)

    def _fork(self) -> Fresh:
        if self._template is not None:
            with contextlib.suppress(OSError):
                return self._template.fork()
            self._template.close()
            self._template = None
        self._template = Template(self._errors)
        try:
            return self._template.fork()
        except OSError:
            self._template.close()
            self._template = None
            raise


def _is_open(sock: socket.socket) -> bool:
    """Whether the shim at the other end still lives."""
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def watch_exit(pid: int, on_exit: Callable[[], None]) -> bool:
    """Call ``on_exit`` once when the process is gone. False where there is no such process.

    Raises ``OSError`` where that can't be found out: no descriptors left.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        on_exit()

    loop.add_reader(pidfd, gone)
    return True
