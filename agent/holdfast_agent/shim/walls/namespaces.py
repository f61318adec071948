"""A generation's room on a host: its own /dev/shm and System V IPC, fresh, shared by all ranks of the job there.

What ranks leave in /dev/shm (`nccl-*`, `torch_*`, semaphores) goes with the room, and the room with the last
process in it and the last descriptor of it: nothing has to be cleaned up, and no other process sees the mounts.
A room is a mount namespace and an IPC namespace. They are held by the descriptors of the shims whose ranks are in
it; a shim that dies leaves its ranks in it. The first of a job's shims to launch a generation makes the room and
writes into `room`, in the job's directory, where its descriptors are; the others open those. A description that has
gone stale names other inodes than it says, or none: then the room is gone and a new one is made.

Mounts that the host makes later appear in the room, too; nothing that is mounted in it appears on the host.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from holdfast_agent.shim.journal import Record

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE = 0x2, 0x4, 0x4000, 0x80000
SHM = "/dev/shm"
FILE = "room"
AHEAD = "room-ahead"  # of the next generation, made for ranks that are parked
PATIENCE_S = 5.0
CANNOT = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.ENOENT})
"""What a host that doesn't allow it, or lacks it, answers: all its shims get the same."""


_loaded: ctypes.CDLL | None = None


class NotAllowed(Exception):
    """This host does not allow the namespaces; ranks share its own /dev/shm."""


class Room:
    """Descriptors of the namespaces; a rank enters before it takes its user's identity."""

    def __init__(self, mounts: int, ipc: int) -> None:
        self.mounts, self.ipc = mounts, ipc

    def enter(self) -> None:
        """Moves this process, which has one thread; its directory is then the root. Raises OSError."""
        for fd, kind in ((self.ipc, CLONE_NEWIPC), (self.mounts, CLONE_NEWNS)):
            checked(libc().setns(fd, kind))

    def is_same(self, other: Room | None) -> bool:
        """Whether both are descriptors of the same namespaces."""
        return other is not None and os.path.samestat(os.fstat(self.mounts), os.fstat(other.mounts))

    def close(self) -> None:
        """The room is gone once no process is in it and no other shim holds it."""
        os.close(self.mounts)
        os.close(self.ipc)


def take(generation: int, directory: int, *, ahead: bool = False) -> Room:
    """The room of this generation of the job whose worker's directory is given; made if need be.

    ``ahead``: before its launch, so that what is known of the generation that runs stays. Raises NotAllowed, and
    OSError for anything else that goes wrong.
    """
    file = _open(FILE, directory)
    try:
        _lock(file)
        room = None if ahead else _described(os.pread(file, 4096, 0), generation)
        if room is None:
            # Without what is parked nothing was made ahead: a job without warm starts has no such file.
            after = (
                _open(AHEAD, directory) if ahead or os.access("../" + AHEAD, os.F_OK, dir_fd=directory) else None
            )
            try:
                room = None if after is None else _described(os.pread(after, 4096, 0), generation)
                if room is None or not ahead:  # who has described it lets go of it once its ranks are released
                    room = room or _make()
                    _describe(room, generation, after if ahead and after is not None else file)
            finally:
                if after is not None:
                    os.close(after)
        return room
    finally:
        os.close(file)


def carry(room: Room, generation: int, directory: int) -> Room:
    """The same room for a later generation, whose ranks may be in it already. Raises OSError.

    Another one, where another of the job's shims has made one for it.
    """
    file = _open(FILE, directory)
    try:
        _lock(file)
        after = _open(AHEAD, directory)
        try:
            made = _described(os.pread(after, 4096, 0), generation)
            if made and not made.is_same(room):
                return made
            if made:
                made.close()
            kept = Room(os.dup(room.mounts), os.dup(room.ipc))
            _describe(kept, generation, after)  # by descriptors that last for as long as the process that needs it
            return kept
        finally:
            os.close(after)
    finally:
        os.close(file)


def _open(name: str, directory: int) -> int:
    return os.open("../" + name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)


def _describe(room: Room, generation: int, file: int) -> None:
    text = json.dumps({"generation": generation, "pid": os.getpid(), **_description(room)}).encode()
    os.ftruncate(file, 0)
    os.pwrite(file, text, 0)


def _lock(file: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held for the time of a mount
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, "another shim of the job is at it") from None
            time.sleep(0.001)


def _description(room: Room) -> Record:
    fds = {"mounts": room.mounts, "ipc": room.ipc}
    return {name: [fd, os.fstat(fd).st_ino] for name, fd in fds.items()}


def _described(text: bytes, generation: int) -> Room | None:
    """The room that another shim has described, if it is of this generation and still there."""
    opened: list[int] = []
    try:
        said = json.loads(text)
        if said["generation"] == generation:
            for number, inode in (said["mounts"], said["ipc"]):
                opened.append(os.open(f"/proc/{said['pid']}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC))
                if os.fstat(opened[-1]).st_ino != inode:
                    raise OSError(errno.ESTALE, "another file by now")
            libc()
            return Room(*opened)
    except (OSError, ValueError, KeyError, TypeError):
        for fd in opened:
            os.close(fd)
    return None


def _make() -> Room:
    """A room with a /dev/shm and IPC of its own."""
    size = _size_bytes()
    libc()
    return made_by(lambda: _build(size))


def made_by(build: Callable[[], None]) -> Room:
    """The namespaces into which ``build`` has put a child, which ends; this process stays where it is.

    Raises NotAllowed, and OSError for anything else that goes wrong.
    """
    ready, told = os.pipe2(os.O_CLOEXEC)
    hold, go = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(go)
            _wait_there(build, told, hold)
        try:
            os.close(told)
            told = -1
            if not select.select([ready], [], [], PATIENCE_S)[0]:
                raise OSError(errno.ETIMEDOUT, "mounting it takes too long")
            answer = os.read(ready, 16)
            if answer != b"0":
                number = int(answer or errno.EIO)
                if number in CANNOT:
                    raise NotAllowed(os.strerror(number))
                raise OSError(number, os.strerror(number))
            mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return Room(mounts, os.open(f"/proc/{pid}/ns/ipc", os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                os.close(mounts)
                raise
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    finally:
        for fd in (ready, told, hold, go):
            if fd >= 0:
                os.close(fd)


def _build(size: int) -> None:
    """In the child."""
    flags = ctypes.c_ulong
    checked(libc().unshare(CLONE_NEWNS | CLONE_NEWIPC))
    checked(libc().mount(b"none", b"/", None, flags(MS_REC | MS_SLAVE), None))
    options = f"mode=1777,size={size}".encode() if size else b"mode=1777"
    checked(libc().mount(b"shm", SHM.encode(), b"tmpfs", flags(MS_NOSUID | MS_NODEV), options))


def _wait_there(build: Callable[[], None], told: int, hold: int) -> NoReturn:
    """Build the namespaces in the child, then wait until the parent holds them or is gone."""
    try:
        build()
        os.write(told, b"0")
        os.read(hold, 1)
    except OSError as error:
        os.write(told, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(0)


def libc() -> ctypes.CDLL:
    """Loaded once, by the shim, so that its ranks need not."""
    global _loaded
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
    return _loaded


def _size_bytes() -> int:
    """Size of the host's own /dev/shm; 0 if it has none, which means the kernel's default, half of the memory."""
    try:
        found = os.statvfs(SHM)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
