"""The process table, read from /proc, and the one way to signal what is not our child.

A pid alone names nothing: it is used again. A process is its pid together with its start time (and the boot, where
it is written down), and a signal goes through a pidfd that was checked against that start time once open.
"""

from __future__ import annotations

import errno
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing of the process that was looked at."""


def now_s() -> float:
    """Seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The running kernel's."""
    return read_small("/proc/sys/kernel/random/boot_id").decode().strip()


def read_small(path: str) -> bytes:
    """The first 4 KiB of a file of /proc. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def printable(text: bytes | str) -> str:
    """One line that a terminal and JSON can take, whatever a program or a path has put into it."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in data.decode("utf-8", "replace"))


def signal_name(number: int) -> str:
    """SIGSEGV for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time signal"


class Process:
    """One process as it was when read. Raises OSError when there is none of that pid."""

    __slots__ = ("group", "parent", "pid", "session", "start_ticks", "state", "threads")

    def __init__(self, pid: int) -> None:
        stat = read_small(f"/proc/{pid}/stat")
        fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
        self.pid = pid
        self.state = fields[0].decode()
        self.parent, self.group, self.session = int(fields[1]), int(fields[2]), int(fields[3])
        self.threads, self.start_ticks = int(fields[17]), int(fields[19])

    @property
    def dead(self) -> bool:
        """Whether it only waits to be reaped. A main thread may have ended while others run on."""
        return self.state in "ZX" and self.threads <= 1

    def send(self, number: int) -> None:
        """Signals this very process; a later user of its pid gets nothing."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            if Process(self.pid).start_ticks == self.start_ticks:
                signal.pidfd_send_signal(fd, number)
        except OSError:
            pass  # it has gone meanwhile
        finally:
            os.close(fd)

    def terminate(self) -> None:
        """Sends it TERM, and CONT: a process that stands still takes no other signal."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def where(self) -> str:
        """Pid, state letter and, where readable, the kernel function that the process waits in."""
        try:
            wchan = read_small(f"/proc/{self.pid}/wchan").decode()
        except OSError:
            wchan = ""
        return f"{self.pid} ({self.state}{' in ' + wchan if wchan not in ('', '0') else ''})"


def table() -> list[Process]:
    """All processes that we may see, zombies included. Raises OSError rather than miss one for want of memory."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.append(Process(int(name)))
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise
    return found


def descendants(root: int = 0, apart: Collection[int] = ()) -> list[Process]:
    """All below a process, by default this one, but ``apart`` and what is below that. Raises OSError.

    What forks meanwhile may be missing, so ask again.
    """
    by_parent: dict[int, list[Process]] = {}
    for process in table():
        by_parent.setdefault(process.parent, []).append(process)
    found = [process for process in by_parent.pop(root or os.getpid(), []) if process.pid not in apart]
    for process in found:  # grows while it is walked
        found += by_parent.pop(process.pid, [])
    return found


def kill_descendants() -> None:
    """Sends KILL to all below this process. Whether something is left, waitpid says."""
    try:
        for process in descendants():
            if not process.dead:
                process.send(signal.SIGKILL)
    except OSError:
        pass  # no memory or descriptor to look


def children(pid: int) -> list[int]:
    """Pids of the children of a process's first thread; empty where the process is gone."""
    try:
        return [int(child) for child in read_small(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return []


def group_exists(group: int) -> bool:
    """Whether any process is in the group; sends nothing."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
