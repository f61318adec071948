"""A guard's folder in node-local scratch, and the process that removes it should the guard not live to do so.

A shell, a tenth of a Python's memory, waits until its stdin is closed, and becomes ``python -I -S scratch.py FOLDER``,
which waits until no shim is left of the workers in the folder, and removes it. Stdlib only, and nothing of ours.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import stat
import sys
import time

PREFIX = "holdfast-guard-"
SHIMS_S = 30.0
_WAITS = 'trap "" HUP INT TERM USR1 USR2; read -r end; exec "$0" -I -S "$@"'


def make() -> str:
    """A new folder that is the user's alone. Raises ``OSError``, naming the folder that it can't lie in."""
    import tempfile

    parent = os.path.realpath(tempfile.gettempdir())
    if who := _can_replace(parent):
        text = f"{who} can replace what lies there: set TMPDIR to a folder of yours"
        raise PermissionError(errno.EPERM, text, parent)
    return tempfile.mkdtemp(prefix=PREFIX, dir=parent)


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
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Clean up after a guard that has ended, whatever has ended it."""
    remove(sys.argv[1])


if __name__ == "__main__":
    main()
