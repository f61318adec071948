"""Appends a worker's output to its job's archive: `python -I -S archive_copy.py LOGS BASE JOB WORKER MOST`.

From LOGS/g<N>/WORKER.r<rank>.{out,err} to BASE/rank-logs/JOB/g<N>/, by the same names, at most MOST bytes of each
stream (0: all). With an empty LOGS nothing is copied. The directories that the AIP_* variables name are made as well.
A process of its own, run as the worker's user: a file server that hangs blocks no other user, and only the user's own
rights are used where the user may have planted anything. Below BASE no link is followed.

Beside each file lies its index, ``.NAME.idx``, with lines "OFFSET POSITION MILLISECONDS": from that position on the
file holds what is in the stream from that offset on, and was written since that time (or in the minutes before). A
stream's oldest bytes may have been cut off before they were copied; then an offset is skipped. Ends with 0, or with
1 and a sentence on stderr.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time

CHUNK_BYTES = 1 << 20
FOLDER = "rank-logs"
RESULTS = ("model", "checkpoints", "logs")
"""What AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR are called below the base."""
INDEX_BYTES, SPARSE_MS = 256 << 10, 600_000
"""An index of that size gets a line each ten minutes only."""
_GENERATION = re.compile(r"g\d+")


def main(logs: str, base: str, job: str, worker: str, most: str) -> int:
    """Append all there is, or say what failed first."""
    os.umask(0o027)
    at = base
    try:
        os.makedirs(base, exist_ok=True)
        root = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in RESULTS:
            at = f"{base}/{name}"
            os.close(_below(root, name, links=True))
        if not logs:
            return 0
        at = f"{base}/{FOLDER}/{job}"
        target = _below(_below(root, FOLDER), job)
        for generation in sorted(filter(_GENERATION.fullmatch, os.listdir(logs))):
            at = f"{base}/{FOLDER}/{job}/{generation}"
            streams = [name for name in sorted(os.listdir(f"{logs}/{generation}")) if _is_stream(name, worker)]
            if not streams:
                continue
            folder = _below(target, generation)
            for name in streams:
                at = f"{base}/{FOLDER}/{job}/{generation}/{name}"
                _append(f"{logs}/{generation}/{name}", folder, name, int(most))
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        sys.stderr.write(f"{at}: {error.strerror}\n")
        return 1
    return 0


def _is_stream(name: str, worker: str) -> bool:
    return re.fullmatch(re.escape(worker) + r"\.r\d+\.(out|err)", name) is not None


def _below(parent: int, name: str, *, links: bool = False) -> int:
    """A directory, made if need be; what a link leads to only with ``links``. Raises OSError."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    return os.open(name, flags, dir_fd=parent)


def _append(path: str, folder: int, name: str, most: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            return
        copy = _own_file(folder, name)
        index = _own_file(folder, f".{name}.idx")
        try:
            _go_on(source, status.st_size, copy, index, most)
        finally:
            os.close(copy)
            os.close(index)
    finally:
        os.close(source)


def _own_file(folder: int, name: str) -> int:
    """A regular file; anything else that has been put in its place is removed. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(2):
        try:
            file = os.open(name, flags, 0o640, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
        else:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return file
            os.close(file)
        os.unlink(name, dir_fd=folder)
    raise OSError(errno.EEXIST, "something is put in its place again and again")


def _go_on(source: int, size: int, copy: int, index: int, most: int) -> None:
    """Append what the stream has and the copy hasn't. The index comes first: it is right also if no bytes follow."""
    there = os.fstat(copy).st_size
    known = last_entry(index)
    begin = known[0] + there - known[1] if known is not None and there >= known[1] else -1
    if not 0 <= begin <= size or (known is None and there):
        os.ftruncate(copy, 0)
        os.ftruncate(index, 0)
        begin, there, known = 0, 0, None
    kept = _first_kept(source, begin, size)
    end = size if not most else min(size, kept + most)
    if kept >= end:
        return
    now = time.time_ns() // 1_000_000
    length = os.fstat(index).st_size
    if known is None or kept != begin or length < INDEX_BYTES or now - known[2] >= SPARSE_MS:
        os.pwrite(index, f"{kept} {there} {now}\n".encode(), length)
    _pour(source, kept, end, copy, there)
    os.fsync(copy)


def last_entry(index: int) -> tuple[int, int, int] | None:
    """The last whole line of an index; None without one."""
    length = os.fstat(index).st_size
    lines = os.pread(index, 256, max(0, length - 256)).decode("ascii", "replace").split("\n")
    return entry(lines[-2]) if len(lines) > 1 else None


def entry(line: str) -> tuple[int, int, int] | None:
    """Offset, position and time in a line; None where it is no line of ours."""
    numbers = line.split(" ")
    if len(numbers) != 3 or not all(
        number.isascii() and number.isdigit() and len(number) < 20 for number in numbers
    ):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def _first_kept(source: int, begin: int, size: int) -> int:
    """Offset of the first byte from ``begin`` on that was not cut off."""
    try:
        return os.lseek(source, begin, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the end, or a hole to it
            return size
        return begin  # a file system without holes


def _pour(source: int, begin: int, end: int, copy: int, position: int) -> None:
    """Bytes from ``begin`` to ``end``, and no more, should there be more by now."""
    while begin < end and (data := os.pread(source, min(CHUNK_BYTES, end - begin), begin)):
        begin += len(data)
        while data:
            written = os.pwrite(copy, data, position)
            position += written
            data = data[written:]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
