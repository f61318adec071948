"""A guard's folder in node-local scratch, and the process that removes it should the guard not live to do so.

A shell, a tenth of a Python's memory, waits until its stdin is closed, and becomes ``python -I -S scratch.py FOLDER``,
which waits until no shim is left of the workers in the folder, and removes it. Stdlib only, and nothing of ours.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import time

PREFIX = "holdfast-guard-"
SHIMS_S = 30.0
_WAITS = 'trap "" HUP INT TERM USR1 USR2; read -r end; exec "$0" -I -S "$@"'


def make() -> str:
    """A new folder that is the user's alone. Raises ``OSError``, naming the folder that it can't lie in."""
    import tempfile

    return tempfile.mkdtemp(prefix=PREFIX)


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
