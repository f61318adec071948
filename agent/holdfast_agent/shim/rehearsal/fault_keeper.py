"""The process that puts one fault into a rank and takes it back: see `injection`.

From it come ``b`` once the fault is there, or ``p`` and why it can't be; ``x`` once it is undone. Nothing goes to it.
"""

from __future__ import annotations

import os
import select
import signal

from holdfast_agent.shim.keepers import frame, let_go
from holdfast_agent.shim.processes import now_s
from holdfast_agent.shim.rehearsal.faults import FAULTS, Fault
from holdfast_agent.shim.rehearsal.injection import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def keep(connection: int, order: Order, rank: int, cgroup: str) -> NoReturn:
    """In the shim's child: inject the fault into the rank whose process that is, and undo it in time."""
    status = 1
    try:
        shim = os.getppid()
        let_go({connection})
        _serve(connection, order, FAULTS[order.fault](rank, order, cgroup), os.pidfd_open(rank), shim)
        status = 0
    finally:
        os._exit(status)


def _serve(connection: int, order: Order, fault: Fault, ended: int, shim: int) -> None:
    told, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(wake)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    until = now_s() + order.for_s
    try:
        try:
            fault.begin()
        except OSError as error:
            _say(connection, b"p", error.strerror or str(error))
            return
        _say(connection, b"b")
        if order.fault != "kill" and os.getppid() == shim:
            _wait((connection, told, ended), until, fault)
    finally:
        fault.undo()
    _say(connection, b"x")


def _wait(ends: tuple[int, int, int], until: float, fault: Fault) -> None:
    """Return when the time is up, the agent or the rank has gone, or the shim wants an end or has died."""
    connection, told, ended = ends
    poll = select.poll()
    for fd in ends:
        poll.register(fd, select.POLLIN)
    while (left_s := until - now_s()) > 0:
        if fault.every_s:
            fault.again()
            left_s = min(left_s, fault.every_s * fault.order.speed / 100)
        ready = {fd for fd, _ in poll.poll(left_s * 1000)}
        if ready & {connection, ended} or (told in ready and signal.SIGTERM in os.read(told, 4096)):
            return


def _say(connection: int, kind: bytes, words: str = "") -> None:
    try:
        os.write(connection, frame(kind, words.encode("utf-8", "replace")[:1000]))
    except OSError:
        pass  # the agent has gone
