"""Children of the shim that serve one connection of the agent's each: keepers of shells, and of injected faults.

The shim connects to a socket of the agent's and forks a keeper, which has the connection and keeps the shim's identity.
It ends with its connection, when its generation is stopped (TERM), and when the shim dies. `empty` waits for it.
Frames, both ways, are a byte for the kind, two for the length of the rest (big-endian), the rest.
"""

from __future__ import annotations

import os
import signal
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM
from _socket import socket as Socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, Protocol

    from holdfast_agent.shim.generation import Generation

    class Order(Protocol):
        """An order for something to be kept beside a rank."""

        rank: int
        socket: str

        def fork(self, generation: Generation, connection: int) -> str:
            """Fork its keeper; why there is none, or nothing. Raises OSError."""


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KEEPERS_MOST = 64
"""Keepers of a generation at a time, those included of whose shell a process outlives KILL."""


def frame(kind: bytes, rest: bytes) -> bytes:
    """One frame; its rest is shorter than 64 KiB."""
    return kind + len(rest).to_bytes(2, "big") + rest


def begin(generation: Generation | None, number: int, order: Order, directory: int) -> None:
    """Fork a keeper, or tell the agent why there is none. Runs in the shim; never waits, never raises."""
    try:
        connection = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
        connection.connect(f"/proc/self/fd/{directory}/{order.socket}")
    except OSError:
        return  # the agent wants it no more
    try:
        try:
            if generation is None:
                problem = "nothing runs there"
            else:
                problem = _refusal(generation, number) or order.fork(generation, connection.fileno())
        except OSError as error:
            problem = f"it can't be started: {os.strerror(error.errno or 0)}"
        except ImportError:  # of another release, or gone: its modules are loaded only now
            problem = "the agent was upgraded since these ranks began; it can be had from their next start on"
        if problem:
            connection.send(frame(b"p", problem.encode()))
    except OSError:
        pass  # the agent has gone meanwhile
    finally:
        connection.close()


def _refusal(generation: Generation, number: int) -> str:
    """Why nothing can be kept beside its ranks now; empty when it can."""
    if generation.number != number or generation.gone or generation.stop:
        return f"the ranks of generation {number} are not running there, or are being stopped"
    return f"it has {KEEPERS_MOST} shells and faults already" if len(generation.keepers) >= KEEPERS_MOST else ""


def fork(generation: Generation, keep: Callable[[], NoReturn]) -> int:
    """Fork a keeper; its pid. Raises OSError."""
    # A TERM that comes before the keeper can take it waits for it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        pid = os.fork()
        if pid == 0:
            keep()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    generation.keepers.add(pid)
    return pid


def let_go(held: set[int]) -> None:
    """In a keeper: close all that is the shim's, become the parent of what is orphaned, end with the shim."""
    import ctypes

    signal.set_wakeup_fd(-1)
    os.setsid()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in held:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own
    libc = ctypes.CDLL(None)
    for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGTERM)):
        if libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3):
            raise OSError(f"prctl {option} failed")
