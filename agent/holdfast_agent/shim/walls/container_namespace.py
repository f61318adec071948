"""A generation's room in its worker's container: the container's files, the host's processes, the job's /dev/shm.

Ranks are not started by the container's engine but by the shim, which has them enter the container's mount
namespace. So they are the shim's own children: their wait statuses are true, a signal reaches them, and waitpid
proves that no descendant is left, just as on the bare host. That takes the host's process namespace, and so a /proc
of the host's, which the container's own, made for the process that holds it open, is not. Each generation gets a
mount namespace that is a copy of the container's with such a /proc, and with the /dev/shm of the generation's room
where it has one. What is mounted in a copy goes with it; what ranks write into the container's files stays for the
next generation.

A rank of root's is left no capability that the engine has not given to the container.
"""

from __future__ import annotations

import ctypes
import errno
import os

from holdfast_agent.shim.processes import Process
from holdfast_agent.shim.walls.namespaces import (
    CLONE_NEWNS,
    MS_NODEV,
    MS_NOSUID,
    MS_REC,
    MS_SLAVE,
    SHM,
    NotAllowed,
    Room,
    checked,
    libc,
    made_by,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.journal import Record

MS_NOEXEC = 0x8
PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
SYS_OPEN_TREE, SYS_MOVE_MOUNT = 428, 429  # the same on every architecture
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
AT_FDCWD = -100


class Inside(Room):
    """A room in a container; the room whose /dev/shm it has, if any, is held for others of the job."""

    def __init__(self, made: Room, outer: Room | None, capabilities: int) -> None:
        super().__init__(made.mounts, made.ipc)
        self._outer = outer
        self._capabilities = capabilities

    def enter(self) -> None:
        """Enter the namespaces and, as root, drop capabilities beyond those allowed, for good. Raises OSError."""
        super().enter()
        if os.geteuid() == 0:
            number = 0
            while (given := libc().prctl(PR_CAPBSET_READ, ctypes.c_ulong(number), *[ctypes.c_ulong(0)] * 3)) >= 0:
                if given and not self._capabilities >> number & 1:
                    checked(libc().prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), *[ctypes.c_ulong(0)] * 3))
                number += 1

    def close(self) -> None:
        super().close()
        if self._outer:
            self._outer.close()


def take(order: Record, outer: Room | None) -> Inside:
    """A room in the container that a process of the order's ``pid`` and ``start_ticks`` holds open.

    ``outer`` is the generation's room on the host; it is the result's to close, and closed when this raises:
    OSError, or KeyError, TypeError or ValueError for a bad order.
    """
    held: list[int] = []
    try:
        pid, start_ticks = int(order["pid"]), int(order["start_ticks"])
        try:
            held.append(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
            if Process(pid).start_ticks != start_ticks:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
            capabilities = _capabilities(pid)
            libc()
            made = made_by(lambda: _build(held[0], outer))
        except (OSError, NotAllowed) as error:
            number = error.errno if isinstance(error, OSError) else errno.EPERM
            raise OSError(number, os.strerror(number or errno.EIO), "the container") from None
        return Inside(made, outer, capabilities)
    except BaseException:
        if outer:
            outer.close()
        raise
    finally:
        for fd in held:
            os.close(fd)


def _build(container: int, outer: Room | None) -> None:
    """Move this process, a child that soon ends, into the new namespaces."""
    flags = ctypes.c_ulong
    shm = -1
    if outer:
        outer.enter()
        shm = libc().syscall(SYS_OPEN_TREE, AT_FDCWD, SHM.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC)
        checked(min(shm, 0))
    checked(libc().setns(container, CLONE_NEWNS))
    checked(libc().unshare(CLONE_NEWNS))
    checked(libc().mount(b"none", b"/", None, flags(MS_REC | MS_SLAVE), None))
    checked(libc().mount(b"proc", b"/proc", b"proc", flags(MS_NOSUID | MS_NODEV | MS_NOEXEC), None))
    if outer:
        move = (shm, b"", AT_FDCWD, SHM.encode(), MOVE_MOUNT_F_EMPTY_PATH)
        checked(libc().syscall(SYS_MOVE_MOUNT, *move))


def _capabilities(pid: int) -> int:
    """The bounding set of the process that holds the container open."""
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"CapBnd:"):
                return int(line.split()[1], 16)
    raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
