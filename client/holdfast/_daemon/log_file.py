"""A daemon's log as a file of bounded size: ``log_file`` and ``log_file_mb`` of its settings.

The file becomes the daemon's stderr, so that it also has tracebacks and what libraries print. When it is full it is
renamed to ``NAME.1``, older ones move up by one, and ``NAME.5`` is deleted. No line is lost by that: a process that
still writes to the old file writes to what is ``NAME.1`` now. A file moved away by another process is noticed at the
next line, so logrotate needs no signal.

Until the daemon is ready, an error that ends it also goes to its original stderr: a person starting it by hand must
not have to look for a file.

On a full disk the log gives way first: the oldest files are deleted, then lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast._daemon.log import timestamp
from holdfast.errors import ConfigError

KEPT = 4
"""Full files beside the one that is written."""
_STDERR = 2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class LogFile:
    """An open log file; it and each older one take at most ``limit_bytes``. Not thread-safe: handlers have a lock.

    Raises ``ConfigError`` where it can't be opened.
    """

    def __init__(self, path: Path, limit_bytes: int, *, stderr: bool = True) -> None:
        self._path = path
        self._limit = limit_bytes
        self._stderr = stderr
        self._dropped = 0
        self._torn = False
        """The last line lacks its end: the disk was full in the middle of it."""
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            fix = "Correct it, or leave it out: then the log goes to stderr."
            raise ConfigError(f"log_file: cannot open {path}: {error.strerror}.", fix=fix) from error
        self._become_stderr()

    def write(self, line: str) -> None:
        """Append a line, given without its end. What the disk has no room for is counted, and reported later."""
        data = line.encode(errors="backslashreplace") + b"\n"
        try:
            self._follow()
            if os.fstat(self._fd).st_size + len(data) > self._limit:
                self._rotate()
        except OSError:
            pass  # then writing continues in the open file
        while True:
            before = b"\n" * self._torn + self._confession()
            try:
                self._append(before + data)
            except OSError as error:
                if error.errno in _NO_ROOM and self._give_way():
                    continue
                self._dropped += 1
            else:
                self._dropped = 0
            return

    def close(self) -> None:
        """Close the file; no line may follow."""
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            done = os.write(self._fd, rest)
            rest = rest[done:]
            self._torn = bool(rest)

    def _confession(self) -> bytes:
        if not self._dropped:
            return b""
        said = {"time": timestamp(time.time()), "level": "warning", "event": "log.lines_dropped"}
        return json.dumps(said | {"lines": self._dropped}).encode() + b"\n"

    def _give_way(self) -> bool:
        """Remove the oldest full file. False where there is none."""
        for number in range(KEPT, 0, -1):
            try:
                os.unlink(self._numbered(number))
            except FileNotFoundError:
                continue
            except OSError:
                return False
            return True
        return False

    def _rotate(self) -> None:
        rotate(self._numbered, KEPT)
        self._open_anew()

    def _follow(self) -> None:
        """Open the file again if it was moved or removed."""
        mine = os.fstat(self._fd)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            self._open_anew()
            return
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            self._open_anew()

    def _open_anew(self) -> None:
        """Open the path again, with the mode and the owner of the file before."""
        old = os.fstat(self._fd)
        fresh = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        if os.fstat(fresh).st_size == 0:
            os.fchmod(fresh, stat.S_IMODE(old.st_mode))
            if os.geteuid() == 0:
                os.fchown(fresh, old.st_uid, old.st_gid)
        os.dup2(fresh, self._fd, inheritable=False)
        os.close(fresh)
        self._become_stderr()

    def _become_stderr(self) -> None:
        if self._stderr:
            os.dup2(self._fd, _STDERR)

    def _numbered(self, number: int) -> str:
        return f"{self._path}.{number}" if number else str(self._path)


def rotate(numbered: Callable[[int], str | Path], kept: int) -> None:
    """Move each file of a log on by one number; number 0 is the one that was written, and the last is replaced.

    Raises ``OSError``; a number that has no file is passed over.
    """
    for number in range(kept, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(numbered(number - 1), numbered(number))


class LogFileHandler(logging.Handler):
    """Writes records there, each as one line."""

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; failures of the disk are not raised."""
        self._file.write(self.format(record))


def handler(path: Path | None, limit_mb: int) -> logging.Handler:
    """Return a handler that logs to the file, or to stderr where none is named. Raises ``ConfigError``.

    From then on a crash of native code, and SIGABRT, write the stacks of all threads there.
    """
    if path is None:
        faulthandler.enable(_STDERR)
        return logging.StreamHandler()
    if limit_mb < 1:
        raise ConfigError(f"log_file_mb is {limit_mb}.", fix="Write 1 or more.")
    first = os.dup(_STDERR)
    try:
        file = LogFile(path, limit_mb << 20)
    except ConfigError:
        os.close(first)
        raise
    if os.path.samestat(os.fstat(first), os.fstat(_STDERR)):
        os.close(first)  # it was the log from the beginning
    else:
        _first_stderr.append(first)
    faulthandler.enable(_STDERR)
    return LogFileHandler(file)


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that the process was started without.

    Else what a daemon opens first would take its number, and the log or a library's message would be written there.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - open as long as the process
    sys.stderr = sys.stderr or open(_STDERR, "w", closefd=False)  # noqa: SIM115


def ready() -> None:
    """Mark the daemon as ready: the process that started it no longer has to read stderr."""
    while _first_stderr:
        os.close(_first_stderr.pop())


def complain(sentence: str) -> None:
    """Print why the daemon ends: to stderr, which may be the log, and to the process that waits for it to be ready."""
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201
    for handle in _first_stderr:
        with contextlib.suppress(OSError):
            os.write(handle, sentence.encode(errors="backslashreplace") + b"\n")


_first_stderr: list[int] = []
