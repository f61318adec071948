"""A guard's folder in node-local scratch, and the process that removes it should the guard not live to do so.

Run as a program, ``python -I -S scratch.py FOLDER``, it waits until its stdin is closed, then until no shim is left of
the workers in the folder, and removes it. Stdlib only, and nothing of ours; what it does not need to wait is imported
by the functions that need it.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import time

PREFIX = "holdfast-guard-"
SHIMS_S = 30.0


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
            [sys.executable, "-I", "-S", __file__, folder],
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
    """Wait for the guard's end, whatever it is, and clean up after it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    remove(sys.argv[1])


if __name__ == "__main__":
    main()
