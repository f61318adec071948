"""Copies a worker's output to where its job keeps results: `python -I -S archive_copy.py LOGS BASE JOB WORKER`.

From LOGS/g<N>/WORKER.r<rank>.{out,err} to BASE/logs/JOB/g<N>/, by the same names. A process of its own, run as the
worker's user: a file server that hangs blocks no other user, and only the user's own rights are used where the
user may have planted anything. Below BASE no link is followed. A file is written beside its place, synced, and
renamed; one that is there with the same size is left alone, so that an interrupted copy continues.

Of a stream whose oldest bytes have been cut off the copy begins with the first that are kept. Ends with 0, or with
1 and a sentence on stderr.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys

CHUNK_BYTES = 1 << 20
_GENERATION = re.compile(r"g\d+")


def main(logs: str, base: str, job: str, worker: str) -> int:
    """Copy all there is, or say what failed first."""
    os.umask(0o027)
    at = base
    try:
        os.makedirs(base, exist_ok=True)
        at = f"{base}/logs/{job}"
        root = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        target = _below(_below(root, "logs"), job)
        for generation in sorted(filter(_GENERATION.fullmatch, os.listdir(logs))):
            at = f"{base}/logs/{job}/{generation}"
            streams = [name for name in sorted(os.listdir(f"{logs}/{generation}")) if _is_stream(name, worker)]
            if not streams:
                continue
            folder = _below(target, generation)
            for name in streams:
                at = f"{base}/logs/{job}/{generation}/{name}"
                _copy(f"{logs}/{generation}/{name}", folder, name)
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        sys.stderr.write(f"{at}: {error.strerror}\n")
        return 1
    return 0


def _is_stream(name: str, worker: str) -> bool:
    return re.fullmatch(re.escape(worker) + r"\.r\d+\.(out|err)", name) is not None


def _below(parent: int, name: str) -> int:
    """A directory, made if need be; never what a link leads to. Raises OSError."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _copy(path: str, folder: int, name: str) -> None:
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            return
        begin = _first_kept(source)
        if _is_there(folder, name, status.st_size - begin):
            return
        fresh = f".{name}.new"
        try:
            os.unlink(fresh, dir_fd=folder)
        except FileNotFoundError:
            pass
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(fresh, flags, 0o640, dir_fd=folder)
        try:
            _pour(source, copy, begin, status.st_size)
            os.fsync(copy)
        finally:
            os.close(copy)
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(source)


def _first_kept(source: int) -> int:
    """Offset of the first byte that was not cut off."""
    try:
        return os.lseek(source, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # empty, or a hole to its end
            return os.fstat(source).st_size
        return 0  # a file system without holes


def _is_there(folder: int, name: str, size: int) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def _pour(source: int, copy: int, begin: int, end: int) -> None:
    """Bytes from ``begin`` to ``end``, and no more, should there be more by now."""
    while begin < end and (data := os.pread(source, min(CHUNK_BYTES, end - begin), begin)):
        begin += len(data)
        while data:
            data = data[os.write(copy, data) :]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
