"""Removes the locks that killed builds have left in the caches of just-in-time compilers.

torch's extension builder claims a build by creating a file and removes it afterwards; a process that finds the file
waits forever. A rank killed in between leaves the file, and every later start hangs. (`FileBaton` in
torch/utils/file_baton.py; later versions, Triton and Inductor use flock, which dies with its holder, unless the
filelock package has fallen back to the same scheme.) Such a file is dead when no process has it open, since a builder
keeps it open for as long as it holds it.

Runs in a rank's child before its program, as the rank's user: it can remove nothing that the user couldn't. Removed
is only an empty regular file of that user's, on a local file system (another host's builder can't be seen), that no
process has open or locked. Directories are walked by descriptor and no link is followed below a cache's root.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from holdfast_agent.shim.processes import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Env = dict[bytes, bytes]

BOUND_S = 1.0
"""A start waits no longer for this; what is left then stays."""
ENTRIES_MOST = 10_000
"""Of one directory; programs fill these caches."""
LOCAL = frozenset({b"bcachefs", b"btrfs", b"ext2", b"ext3", b"ext4", b"f2fs", b"overlay", b"tmpfs", b"xfs", b"zfs"})
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOUNTS = "/proc/self/mountinfo"


def caches(env: Env) -> list[tuple[bytes, int, Callable[[bytes], bool]]]:
    """The compilers' caches: root, how many levels below it a lock may lie, and a test for names of locks."""
    home = env.get(b"HOME", b"")
    cache = env.get(b"XDG_CACHE_HOME") or home + b"/.cache"
    scratch = env.get(b"TMPDIR") or b"/tmp"
    user = env.get(b"USER") or env.get(b"LOGNAME") or b""
    inductor = env.get(b"TORCHINDUCTOR_CACHE_DIR") or scratch + b"/torchinductor_" + user
    triton = env.get(b"TRITON_CACHE_DIR") or (env.get(b"TRITON_HOME") or home) + b"/.triton/cache"
    found = [
        # <python and accelerator>/<extension>/lock, or <extension>/lock where the directory is the user's choice
        (env.get(b"TORCH_EXTENSIONS_DIR") or cache + b"/torch_extensions", 2, lambda name: name == b"lock"),
        (inductor + b"/locks", 0, lambda name: name.endswith(b".lock")),
        (triton, 1, lambda name: name == b"lock" or name.endswith(b".lock")),
    ]
    return [each for each in found if each[0].startswith(b"/")]


def remove_dead(env: Env, mounts: str = MOUNTS) -> list[bytes]:
    """Paths of the locks that were removed from the caches that this environment names."""
    deadline = time.monotonic() + BOUND_S
    removed: list[bytes] = []
    for root, depth, is_lock in caches(env):
        try:
            directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            _walk(directory, root, depth, is_lock, deadline, mounts, removed)
        finally:
            os.close(directory)
    return removed


def tell(removed: list[bytes]) -> None:
    """Name the removed locks on the rank's stderr."""
    for path in removed:
        os.write(2, f"holdfast: removed {printable(path)}, the lock of a build that was killed\n".encode())


def _walk(
    directory: int,
    path: bytes,
    depth: int,
    is_lock: Callable[[bytes], bool],
    deadline: float,
    mounts: str,
    removed: list[bytes],
) -> None:
    entries: list[tuple[bytes, bool]] = []
    try:
        with os.scandir(directory) as listing:
            for entry in listing:
                if len(entries) == ENTRIES_MOST or time.monotonic() > deadline:
                    break
                entries.append((os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)))
    except OSError:
        return
    for name, is_directory in entries:
        if time.monotonic() > deadline:
            return
        if not is_directory:
            if is_lock(name) and _remove(name, directory, mounts):
                removed.append(path + b"/" + name)
        elif depth:
            try:
                below = os.open(name, READ | os.O_DIRECTORY, dir_fd=directory)
            except OSError:
                continue
            try:
                _walk(below, path + b"/" + name, depth - 1, is_lock, deadline, mounts, removed)
            finally:
                os.close(below)


def _remove(name: bytes, directory: int, mounts: str) -> bool:
    """Whether the file was a dead lock, and is gone."""
    try:
        fd = os.open(name, READ, dir_fd=directory)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size or found.st_uid != os.geteuid():
            return False
        if not _is_local(directory, mounts):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_open_elsewhere(found, name):
            return False
        os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _is_local(directory: int, mounts: str) -> bool:
    """Whether a directory's file system is one that only this host writes to; an unknown kind is not."""
    path = os.fsencode(os.readlink(f"/proc/self/fd/{directory}"))
    best, kind = b"", b""
    with open(mounts, "rb") as table:
        for line in table:
            fields, _, rest = line.partition(b" - ")
            point = fields.split()[4].replace(b"\\040", b" ")
            # The later of two mounts on one point hides the earlier.
            if len(point) >= len(best) and (path + b"/").startswith(point.rstrip(b"/") + b"/"):
                best, kind = point, rest.split()[0]
    return kind in LOCAL


def _is_open_elsewhere(file: os.stat_result, base: bytes) -> bool:
    """Whether another process of this user has it open. Those of others can't, or could not be asked."""
    wanted, me = (file.st_dev, file.st_ino), str(os.getpid())
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == me:
            continue
        try:
            descriptors = os.listdir(f"/proc/{name}/fd")
        except OSError:
            continue
        for descriptor in descriptors:
            link = f"/proc/{name}/fd/{descriptor}"
            try:
                # By name first: to ask for more of a file on a dead file server would never end.
                if not os.fsencode(os.readlink(link)).endswith(b"/" + base):
                    continue
                found = os.stat(link)
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == wanted:
                return True
    return False
