"""What another user of a host tries with processes, files and ports that are not his; prints what succeeds.

Run as that user: ``python neighbour.py JSON``, with ``pids``, ``files``, ``tcp`` and ``udp``. Stdlib only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
PROCESS_VM_READV, PIDFD_GETFD, KCMP, IOPRIO_SET = {"x86_64": (310, 438, 312, 251)}.get(os.uname().machine) or (
    270,
    438,
    272,
    30,
)
SIGNALS = (signal.SIGCONT, signal.SIGUSR1, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL)
WRITTEN = ("mem", "oom_score_adj", "clear_refs", "comm", "coredump_filter", "uid_map", "attr/current", "autogroup")
HELD_S = 2.0
"""For how long connections are held that say nothing."""


def call(result: int) -> None:
    """Raises ``OSError`` where a call to libc has failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def processes(pid: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What may be tried with a process, the deadliest last."""
    yield "descriptor", lambda: call(LIBC.syscall(PIDFD_GETFD, os.pidfd_open(pid), 1, 0))
    yield "compare", lambda: call(LIBC.syscall(KCMP, pid, os.getpid(), 0, 1, 1))
    yield "memory", lambda: _memory(pid)
    yield "priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)
    yield "io priority", lambda: call(LIBC.syscall(IOPRIO_SET, 1, pid, 3 << 13))
    yield "affinity", lambda: os.sched_setaffinity(pid, {0})
    yield "scheduler", lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    yield "limits", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
    for name in WRITTEN:
        yield f"write {name}", partial(_write, f"/proc/{pid}/{name}")
    for request in (PTRACE_SEIZE, PTRACE_ATTACH):
        yield "trace", partial(_trace, pid, request)
    for number in SIGNALS:
        yield "signal", partial(os.kill, pid, number)
        yield "signal", partial(_send, pid, number)


def _memory(pid: int) -> None:
    taken = (ctypes.c_char * 8)()
    with open(f"/proc/{pid}/maps") as maps:
        start = int(maps.readline().partition("-")[0], 16)
    here = (ctypes.c_void_p * 2)(ctypes.addressof(taken), 8)
    there = (ctypes.c_void_p * 2)(start, 8)
    call(LIBC.syscall(PROCESS_VM_READV, pid, here, 1, there, 1, 0))


def _trace(pid: int, request: int) -> None:
    call(LIBC.ptrace(request, pid, None, None))


def _send(pid: int, number: signal.Signals) -> None:
    signal.pidfd_send_signal(os.pidfd_open(pid), number)


def _read(path: str) -> None:
    with open(path, "rb", 0) as file:
        file.read(1)


def _write(path: str) -> None:
    with open(path, "r+b", 0) as file:
        file.write(b"0")


def files(path: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """What may be tried with a file or a folder of another user's, the deadliest last."""
    yield "list", lambda: os.listdir(path)
    yield "read", partial(_read, path)
    yield "make", lambda: os.mkdir(f"{path}/planted")
    yield "link", lambda: os.link(path, f"{os.path.dirname(path)}/linked")
    yield "write", partial(_write, path)
    yield "mode", lambda: os.chmod(path, 0o777)
    yield "rename", lambda: os.rename(path, f"{path}.gone")
    yield "remove", lambda: os.unlink(path)
    yield "remove", lambda: os.rmdir(path)


def knock(given: dict[str, Any]) -> Iterator[str]:
    """Flood what listens with connections that say nothing, and every port with datagrams; what answers them."""
    held = []
    for host, port in given["tcp"]:
        for _ in range(300):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((host, port), 5))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.setblocking(False)
        for host, port in given["udp"]:
            for size in (0, 1, 21, 37, 53, 1400):
                with contextlib.suppress(OSError):
                    asks.sendto(bytes(size), (host, port))
        time.sleep(HELD_S)
        with contextlib.suppress(OSError):
            while True:
                _, address = asks.recvfrom(4096)
                yield f"datagram from {address[1]}"
    for each in held:
        each.close()


def main() -> None:
    """Try it all."""
    given = json.loads(sys.argv[1])
    tries = [(f"{pid}", each) for pid in given["pids"] for each in processes(pid)]
    tries += [(path, each) for path in given["files"] for each in files(path)]
    for line in knock(given):
        print(line)
    for whom, (what, act) in tries:
        try:
            act()
        except (OSError, ValueError):
            continue
        print(f"{what} {whom}", flush=True)


if __name__ == "__main__":
    main()
