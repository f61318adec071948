"""A guard's folder in node-local scratch, and the process that removes it should the guard not live to do so.

A shell, a tenth of a Python's memory, waits until its stdin is closed, and becomes ``python -I -S scratch.py FOLDER``,
which waits until no shim is left of the workers in the folder, and removes it. Stdlib only, and nothing of ours.

A scheduler may kill every process of a task at once, as Slurm does on a node that a job loses, and that shell as well.
So a guard holds a lock on a file in its folder, and the next guard of the same user there removes what no one holds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import stat
import sys
import time

PREFIX = "holdfast-guard-"
MARK = "held"
"""A file that a guard has locked while it lives; in it is which boot of which machine that is."""
SHIMS_S = 30.0
_WAITS = 'trap "" HUP INT TERM USR1 USR2; read -r end; exec "$0" -I -S "$@"'


def make() -> str:
    """A new folder that is the user's alone. Raises ``OSError``, naming the folder that it can't lie in."""
    import tempfile

    parent = os.path.realpath(tempfile.gettempdir())
    if who := _can_replace(parent):
        text = f"{who} can replace what lies there: set TMPDIR to a folder of yours"
        raise PermissionError(errno.EPERM, text, parent)
    made = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    with contextlib.suppress(OSError):  # where nothing can be locked, nothing is removed
        _hold(made)
        _remove_abandoned(parent)
    return made


def _hold(folder: str) -> None:
    """Lock the mark of a folder, which is there only once it is locked, for as long as this process lives."""
    path = os.path.join(folder, MARK)
    held = os.open(f"{path}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(held, _boot())
    os.rename(f"{path}.new", path)


def _remove_abandoned(parent: str) -> None:
    """Remove this user's folders whose guards were killed with all that belonged to them, in this boot of this host."""
    for path in glob.glob(os.path.join(glob.escape(parent), PREFIX + "*")):
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid != os.geteuid():
                continue
            with open(os.path.join(path, MARK), "rb") as mark:
                # Another machine's lock on a shared file system may not be seen here.
                if mark.read(len(_boot()) + 1) != _boot():
                    continue
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not has_shims(path):
                    _delete(path)


def _boot() -> bytes:
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read()


def _delete(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _can_replace(folder: str) -> str:
    """Say who else can rename and remove what this user makes in a folder; empty where no one can."""
    found = os.stat(folder)
    if found.st_uid not in (0, os.geteuid(), _unmapped_user()):
        return f"its owner, uid {found.st_uid},"
    while True:
        found = os.stat(folder)
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return f"everyone who can write to {folder}"
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)


def _unmapped_user() -> int:
    """The uid by which the files of all who don't exist in a container are seen, root's too; else root's."""
    try:
        with open("/proc/self/uid_map") as file:
            whole = file.read().split() == ["0", "0", "4294967295"]
        with open("/proc/sys/kernel/overflowuid") as file:
            return 0 if whole else int(file.read())
    except (OSError, ValueError):
        return 0


def watch(folder: str) -> int:
    """Start the process that removes ``folder`` when this one is gone; returns the descriptor that holds it back."""
    import subprocess

    reading, writing = os.pipe2(os.O_CLOEXEC)
    with open(os.devnull, "wb") as null:
        subprocess.Popen(
            ["/bin/sh", "-c", _WAITS, sys.executable, __file__, folder],
            stdin=reading,
            stdout=null,
            stderr=null,
            cwd="/",
            start_new_session=True,
        )
    os.close(reading)
    return writing


def has_shims(folder: str) -> bool:
    """Whether a worker's shim is alive that was started for this folder."""
    for path in glob.glob(glob.escape(folder) + "/state/workers/*/*/shim.json"):
        try:
            with open(path) as file:
                said = json.load(file)
            with open(f"/proc/{int(said['pid'])}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if fields[0] not in "ZX" and int(fields[19]) == said["start_ticks"]:
            return True
    return False


def remove(folder: str) -> None:
    """Remove the folder once its shims are gone, or after half a minute."""
    until = time.monotonic() + SHIMS_S
    while has_shims(folder) and time.monotonic() < until:
        time.sleep(0.1)
    _delete(folder)


def main() -> None:
    """Clean up after a guard that has ended, whatever has ended it."""
    remove(sys.argv[1])


if __name__ == "__main__":
    main()
