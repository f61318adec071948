"""Work in directories that a worker's user may write to, safe for an agent that is root.

Such a user may put a link, a pipe or another directory in any place at any moment, also between two of our calls.
So everything goes by descriptors of directories: ``openat2`` lets the kernel refuse every link on the way and every
step out of the directory; where a kernel lacks it, or a sandbox forbids it, the way is walked part by part.
Whatever is walked is walked without recursion, and with few descriptors, however deep it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DEEPEST = 32
"""Directories that are open at once while a tree is removed; what lies deeper is moved up first."""
BATCH = 1024
"""Names of one directory that are read at a time."""
TRIES = 100
"""Times that a directory is emptied again because another process keeps filling it."""
_OPENAT2 = 437  # the same on every architecture that we run on
_SAME_MOUNT, _NO_MAGICLINKS, _NO_SYMLINKS, _INSIDE, _IN_ROOT = 0x01, 0x02, 0x04, 0x08, 0x10
_UNAVAILABLE = (errno.ENOSYS, errno.EPERM)
"""What a kernel before 5.6 answers, and a sandbox that does not know the call."""
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    """The kernel's ``struct open_how``, the argument of openat2."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_inside(directory: int, path: str, flags: int) -> int:
    """A descriptor of what lies at ``path`` below ``directory``. Raises ``OSError`` for a link or ``..`` on it.

    Never waits for the other end of a pipe. ``path`` may be that of a directory, with ``O_DIRECTORY``.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    found = _openat2(directory, path, flags, _INSIDE | _NO_SYMLINKS | _NO_MAGICLINKS)
    return _walk_to(directory, path, flags) if found is None else found


def open_in_root(root: int, path: str) -> int:
    """A descriptor of the directory that is at the absolute ``path`` as seen by a process whose root is ``root``.

    Links are followed as that process would; without the kernel's help there may be none. Raises ``OSError``.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    found = _openat2(root, path, flags, _IN_ROOT | _NO_MAGICLINKS)
    return _walk_to(root, os.path.normpath(path).strip("/"), flags) if found is None else found


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int | None:
    """A descriptor from openat2; None where the kernel or a sandbox lacks the call."""
    how = _How(flags, 0, resolve)
    name, size = os.fsencode(path), ctypes.sizeof(how)
    while True:
        found = int(_libc.syscall(_OPENAT2, directory, name, ctypes.byref(how), ctypes.c_size_t(size)))
        number = ctypes.get_errno()
        if found >= 0:
            return found
        if number in _UNAVAILABLE:
            return None
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), path)


def _walk_to(directory: int, path: str, flags: int) -> int:
    *folders, name = path.split("/")
    if path.startswith("/") or not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    here = os.dup(directory)
    try:
        for folder in folders:
            below = os.open(folder, DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


def remove_tree(folder: Path, name: str) -> None:
    """Remove ``name`` in ``folder``, and all below it if it is a directory. Nothing where there is none.

    Raises ``OSError``, also if another process fills it faster than it is emptied, and ``EXDEV`` where something is
    mounted in it: what lies there is not the tree's.
    """
    try:
        holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if _is_directory(name, holder):
            _remove_directory(name, holder)
    finally:
        os.close(holder)


def try_to_remove(path: Path) -> None:
    """Like ``remove_tree``, but what can't be removed stays."""
    with contextlib.suppress(OSError):
        remove_tree(path.parent, path.name)


def _is_directory(name: str, holder: int) -> bool:
    """Whether the name is a directory's; any other entry of that name is removed. Raises ``OSError``."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode):
            return True
        os.unlink(name, dir_fd=holder)
    except FileNotFoundError:
        pass
    return False


def _remove_directory(name: str, holder: int) -> None:
    way = [_Emptied(name, holder)]
    try:
        while way:
            here = way[-1]
            below = here.next_directory()
            if below is None:
                if here.removed():
                    way.pop().close()
            elif len(way) < DEEPEST:
                way.append(_Emptied(below, here.handle))
            else:
                aside = f".removed-{secrets.token_hex(8)}"
                os.rename(below, aside, src_dir_fd=here.handle, dst_dir_fd=way[0].handle)
    finally:
        for left in way:
            left.close()


class _Emptied:
    """A directory that is being emptied. Raises ``OSError``."""

    def __init__(self, name: str, parent: int) -> None:
        self.handle = _open_unmounted(name, parent)
        if os.geteuid() != 0:
            with contextlib.suppress(OSError):
                os.fchmod(self.handle, 0o700)  # a program may have made it read-only
        self._name, self._parent = name, parent
        self._directories: list[str] = []
        self._tries = TRIES

    def next_directory(self) -> str | None:
        """A directory in it that is still there; None once there is nothing more. What is none is removed."""
        while True:
            while self._directories:
                if _is_directory(name := self._directories.pop(), self.handle):
                    return name
            with os.scandir(self.handle) as entries:
                found = itertools.islice(entries, BATCH)
                batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
            for name, directory in batch:
                if directory or _is_directory(name, self.handle):
                    self._directories.append(name)
            if not batch:
                return None

    def removed(self) -> bool:
        """Whether it has gone; False where something was put into it meanwhile, which goes first."""
        self._tries -= 1
        try:
            os.rmdir(self._name, dir_fd=self._parent)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not self._tries:
                raise
            return False
        return True

    def close(self) -> None:
        os.close(self.handle)


def _open_unmounted(name: str, parent: int) -> int:
    """A directory on which nothing is mounted. Raises ``OSError``."""
    if (found := _openat2(parent, name, DIRECTORY, _SAME_MOUNT)) is not None:
        return found
    handle = os.open(name, DIRECTORY, dir_fd=parent)
    if _mount_of(handle) != _mount_of(parent):
        os.close(handle)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return handle


def _mount_of(descriptor: int) -> bytes:
    """The number of the mount that an open directory is on."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
        return next(line for line in file.read(4096).splitlines() if line.startswith(b"mnt_id:"))


def give(path: Path, uid: int, gid: int) -> None:
    """Give a tree of the agent's to a user, its top last, so that no other process is in it yet. Raises ``OSError``."""
    top = os.open(path, DIRECTORY)
    try:
        for folder, name in entries(top, whole=True):
            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
        os.fchown(top, uid, gid)
    finally:
        os.close(top)


def size(path: Path) -> int:
    """Bytes of a tree on disk; what goes away meanwhile, or lies too deep for a path, counts nothing."""
    total = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        top = os.open(path, DIRECTORY)
        try:
            for folder, name in entries(top, whole=False):
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
        finally:
            os.close(top)
    return total


def entries(top: int, *, whole: bool) -> Iterator[tuple[int, str]]:
    """Each entry below ``top``, as its directory's descriptor and its name; no link is followed.

    What can't be entered is left out, or with ``whole`` an error.
    """
    waiting = ["."]
    while waiting:
        path = waiting.pop()
        try:
            folder = os.dup(top) if path == "." else open_inside(top, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            if whole:
                raise
            continue
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.name if path == "." else f"{path}/{entry.name}")
                    yield folder, entry.name
        finally:
            os.close(folder)
