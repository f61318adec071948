"""Copies what a task's ranks print to the task's own stdout and stderr, byte for byte and in the order of each stream.

The files are the truth, and bounded; a reader that is slow holds up this copy alone, never a rank.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

LOOK_S, QUIET_S = 0.05, 0.25
"""Between looks while there is output, and while there is none."""
OFTEN_S = 5.0
"""Folders are listed when they have changed, which a file system may tell late, and so often in any case."""
CHUNK = 1 << 16


class Forwarder:
    """One thread for all streams of one worker's ranks. Where several write, only whole lines are passed on."""

    def __init__(self, logs: Path, *, several: bool, targets: tuple[int, int] = (1, 2)) -> None:
        self._logs = logs
        self._several = several
        self._targets = {".out": targets[0], ".err": targets[1]}
        self._read: dict[str, int] = {}
        """How far each file has been read."""
        self._seen: dict[str, int] = {}
        """The size of each file when it was last looked at, in the order in which they are passed on."""
        self._folders: dict[Path, int] = {}
        """When each of the folders that hold them has changed."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to pass on what the ranks write."""
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Pass on the rest, which no one writes to any more; give up after ``timeout_s``."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        wait_s, found_s = LOOK_S, OFTEN_S
        while not self._stop.wait(wait_s):
            found_s += wait_s
            if self._have_changed():
                self._find()
                found_s = OFTEN_S - QUIET_S  # a file that came in the same tick of the clock is in none of the two
            elif found_s >= OFTEN_S:
                self._find()
                found_s = 0.0
            wait_s = LOOK_S if self._pass_on(whole=False) else min(QUIET_S, wait_s + LOOK_S)
        self._find()
        self._pass_on(whole=True)

    def _have_changed(self) -> bool:
        return any(changed != _changed(folder) for folder, changed in self._folders.items())

    def _find(self) -> None:
        folders = [self._logs, *self._logs.glob("*/"), *self._logs.glob("*/g*/")]
        self._folders = {folder: _changed(folder) for folder in folders}
        found = [path for suffix in self._targets for path in self._logs.glob(f"*/g*/*{suffix}")]
        self._seen = {str(path): self._seen.get(str(path), -1) for path in sorted(found, key=_age)}

    def _pass_on(self, *, whole: bool) -> bool:
        """Whether anything was new."""
        news = False
        for path, seen in self._seen.items():
            with contextlib.suppress(FileNotFoundError):
                size = os.stat(path, follow_symlinks=False).st_size
                if size != seen or whole:
                    if size < self._read.get(path, 0):  # cut short, as `echo saved > /dev/stdout` does
                        self._read[path] = 0
                    self._copy(path, self._targets[path[-4:]], whole=whole)
                    self._seen[path], news = size, True
        return news

    def _copy(self, path: str, target: int, *, whole: bool) -> None:
        at = self._read.get(path, 0)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            while True:
                try:
                    at = os.lseek(fd, at, os.SEEK_DATA)  # the head of a long file is cut off
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        return
                    raise
                data = os.read(fd, CHUNK)
                if self._several and not whole:
                    data = data[: data.rfind(b"\n") + 1] or (data if len(data) == CHUNK else b"")
                if not data:
                    return
                _write(target, data)
                at += len(data)
                self._read[path] = at
        finally:
            os.close(fd)


def _changed(folder: Path) -> int:
    """When a file came or went there, in nanoseconds; 0 where it isn't there."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _age(path: Path) -> tuple[int, str]:
    """Sort key: by generation, then by rank."""
    return int(path.parent.name[1:]) if path.parent.name[1:].isdecimal() else 0, path.name


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            threading.Event().wait(LOOK_S)
        except OSError:
            return  # its reader is gone, which is no reason to stop the work
