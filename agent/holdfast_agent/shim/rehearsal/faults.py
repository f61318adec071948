"""Injected faults: each does something to a rank's processes, and undoes it.

Each fault has `begin`, which raises OSError with a sentence where this host can't do it, and `undo`; one with `every_s`
is called again by `again`. A rank's processes are the one that its shim started and all below it. A
filter on a cgroup is left to the kernel, which removes it with the process that holds it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
import time

from holdfast_agent.shim.processes import Process, descendants, now_s
from holdfast_agent.shim.rehearsal.hang import Held, is_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.rehearsal.injection import Order

ROUNDS = 10
"""What forks while it is stopped is found in the next round."""
SETTLES_S = 0.01
PERIOD_S = 0.2
"""A slowed rank runs and stands still once in this time."""
STANDS_MOST_S = 1.0
"""A slowed rank stands still no longer than this at once, so that it is let go in time."""
_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_PROG_LOAD, _BPF_LINK_CREATE, _CGROUP_SKB, _INGRESS, _EGRESS = 5, 28, 8, 0, 1
_DROP = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
"""Two instructions: r0 = 0; exit."""


def tree(pid: int) -> list[Process]:
    """A rank's processes, its first one first; without zombies."""
    try:
        found = [Process(pid), *descendants(pid)]
    except OSError:
        return []
    return [process for process in found if not process.dead]


class Fault:
    """A fault of one rank."""

    every_s = 0.0
    """Seconds between two calls of `again`; 0: it is never called."""

    def __init__(self, pid: int, order: Order, cgroup: str) -> None:
        self.pid, self.order, self.cgroup = pid, order, cgroup

    def begin(self) -> None:
        """Do it. Raises OSError where this host can't."""

    def again(self) -> None:
        """Go on with it."""

    def undo(self) -> None:
        """Leave the rank as it was."""


class Kill(Fault):
    """All of its processes are killed."""

    def begin(self) -> None:
        for process in tree(self.pid):
            process.send(signal.SIGKILL)


class Stop(Fault):
    """All of its processes stand still."""

    held: tuple[Process, ...] = ()

    def begin(self) -> None:
        for _ in range(ROUNDS):
            fresh = [process for process in tree(self.pid) if process.state not in "Tt"]
            if not fresh:
                return
            self.held += tuple(fresh)
            for process in fresh:
                process.send(signal.SIGSTOP)
            time.sleep(SETTLES_S)

    def undo(self) -> None:
        for process in (*self.held, *tree(self.pid)):
            process.send(signal.SIGCONT)


class Slow(Stop):
    """All of its processes run for a part of the time."""

    every_s = PERIOD_S

    def again(self) -> None:
        began = now_s()
        self.held = tuple(tree(self.pid))
        ran_s = PERIOD_S * self.order.speed / 100 + now_s() - began  # a host has thousands of processes to look at
        for process in self.held:
            process.send(signal.SIGSTOP)
        time.sleep(min(ran_s * (100 / self.order.speed - 1), STANDS_MOST_S))
        for process in self.held:
            process.send(signal.SIGCONT)

    begin = again


class Disk(Fault):
    """Nothing that its processes write makes a file longer: they get EFBIG, and SIGXFSZ unless they ignore that."""

    def begin(self) -> None:
        self.before: dict[int, tuple[int, int]] = {}
        for process in tree(self.pid):
            try:
                before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
                self.before[process.pid] = before
            except ProcessLookupError:
                pass  # it has ended; the others have not
            except PermissionError:
                raise OSError(errno.EPERM, "its files can't be limited: the agent lacks CAP_SYS_RESOURCE") from None

    def undo(self) -> None:
        of_first = self.before.get(self.pid)
        limited = dict(self.before)  # those included that are the rank's no more, since their parent has ended
        if of_first is not None:
            for process in tree(self.pid):
                limited.setdefault(process.pid, of_first)  # a younger one has what its parent had
        for pid, before in limited.items():
            _limit_again(pid, before)


def _limit_again(pid: int, before: tuple[int, int]) -> None:
    try:
        if resource.prlimit(pid, resource.RLIMIT_FSIZE)[0] == 0:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    except OSError:
        pass  # it has ended


class Net(Fault):
    """Nothing goes into or out of sockets of the ranks of its worker, by the kernel's IP stack; RDMA is not reached."""

    links: tuple[int, ...] = ()

    def begin(self) -> None:
        number = _BPF.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, f"a network can't be cut on {os.uname().machine}")
        libc = ctypes.CDLL(None, use_errno=True)
        program, text = ctypes.create_string_buffer(_DROP), ctypes.create_string_buffer(b"GPL")
        at, license_at = ctypes.addressof(program), ctypes.addressof(text)

        def bpf(command: int, attributes: bytes) -> int:
            buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
            found: int = libc.syscall(number, command, buffer, 128)
            if found < 0:
                why = os.strerror(ctypes.get_errno())
                raise OSError(ctypes.get_errno(), f"its network can't be cut: the kernel allows no filter ({why})")
            return found

        where = os.open(self.cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # The descriptors are kept: with this process the filters are gone.
        for way in (_INGRESS, _EGRESS):
            head = struct.pack("<IIQQIIQII", _CGROUP_SKB, 2, at, license_at, 0, 0, 0, 0, 0)
            loaded = bpf(_BPF_PROG_LOAD, head.ljust(68, b"\0") + struct.pack("<I", way))
            self.links += (bpf(_BPF_LINK_CREATE, struct.pack("<IIII", loaded, where, way, 0)),)

    def undo(self) -> None:
        for link in self.links:
            os.close(link)


class Hang(Fault):
    """The main threads of its processes wait in a system call that doesn't return."""

    held: tuple[Held, ...] = ()

    def begin(self) -> None:
        for process in tree(self.pid):
            try:
                self.held += (Held(process.pid),)
            except ProcessLookupError:
                pass  # it has ended
        if not self.held:
            raise OSError(errno.ESRCH, "it has ended")

    def undo(self) -> None:
        for thread in self.held:
            thread.let_go()


FAULTS = {"kill": Kill, "stop": Stop, "slow": Slow, "disk": Disk, "net": Net, "hang": Hang}


def undo(pid: int) -> None:
    """Undo what may be left in a rank by a keeper that was killed; the kernel has undone the rest."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)  # what the shim has, ranks have inherited
    for process in tree(pid):
        if is_held(process.pid):
            process.send(signal.SIGKILL)  # where it was, only its keeper knew
        process.send(signal.SIGCONT)
        _limit_again(process.pid, unlimited)
