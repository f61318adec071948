"""Appends a worker's output to its job's archive, and reads from it; both as a process of its own.

``python -I -S archive_copy.py`` with its words as JSON in HOLDFAST_ARCHIVE, since all accounts can read command lines:

``append LOGS BASE JOB WORKER MOST``: from LOGS/g<N>/WORKER.r<rank>.{out,err} to
BASE/rank-logs/JOB/g<N>/, by the same names, at most MOST bytes of each stream (0: all). With an empty LOGS nothing is
copied. The directories that the AIP_* variables name are made as well.

``read BASE JOB GENERATION NAME OFFSET TAIL SINCE END``: writes to stdout a line with the time
of the last change in milliseconds, then for each piece its offset in the stream, its length (``FRAME``) and its bytes:
from OFFSET on, up to END, the last TAIL lines of that, what was written after SINCE milliseconds ("-": all). Ends
with 3 if there is none.

It runs as the worker's user: a file server that hangs blocks no other user, and only the user's own rights are used
where the user may have planted anything. Below BASE no link of ours is followed.

Beside each file lies its index, ``.NAME.idx``, with lines "OFFSET POSITION MILLISECONDS": from that position on the
file holds what is in the stream from that offset on; what precedes it was written before that time. A stream's oldest
bytes may have been cut off before they were copied; then an offset is skipped. A failure ends with 1 and a sentence on
stderr.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import struct
import sys
import time

WORDS = "HOLDFAST_ARCHIVE"
CHUNK_BYTES = 1 << 20
FOLDER = "rank-logs"
RESULTS = ("model", "checkpoints", "logs")
"""What AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR are called below the base."""
INDEX_BYTES, INDEX_MOST_BYTES, SPARSE_MS = 256 << 10, 1 << 20, 600_000
"""An index of that size gets a line each ten minutes and for each hole only; at the second one copying ends."""
TAIL_MOST_BYTES = 64 << 20
"""The last lines are looked for so far back."""
FRAME = struct.Struct(">QI")
FRAME_BYTES = 128 << 10
MISSING = 3
_GENERATION = re.compile(r"g\d+")


def append(logs: str, base: str, job: str, worker: str, most: str) -> int:
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
    left, before = most or size, there
    while left > 0 and (kept := _first_kept(source, begin, size)) < size:
        # Holes are not copied: the program may have made them, of any size.
        end = min(_end_of_data(source, kept, size), kept + left)
        now = time.time_ns() // 1_000_000
        length = os.fstat(index).st_size
        if length >= INDEX_MOST_BYTES:
            break  # holes without number
        if known is None or kept != begin or length < INDEX_BYTES or now - known[2] >= SPARSE_MS:
            os.pwrite(index, f"{kept} {there} {now}\n".encode(), length)
            known = (kept, there, now)
        _pour(source, kept, end, copy, there)
        left -= end - kept
        there += end - kept
        begin = end
    if there > before:
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


def _end_of_data(source: int, begin: int, size: int) -> int:
    """Offset at which the next hole begins."""
    try:
        return min(size, os.lseek(source, begin, os.SEEK_HOLE))
    except OSError:
        return size


def _pour(source: int, begin: int, end: int, copy: int, position: int) -> None:
    """Bytes from ``begin`` to ``end``, and no more, should there be more by now."""
    while begin < end and (data := os.pread(source, min(CHUNK_BYTES, end - begin), begin)):
        begin += len(data)
        while data:
            written = os.pwrite(copy, data, position)
            position += written
            data = data[written:]


def read(base: str, job: str, generation: str, name: str, offset: str, last: str, since: str, end: str) -> int:
    """Write what is asked for of one stream to stdout, or say what failed."""
    folder = f"{base}/{FOLDER}/{job}/{generation}"
    try:
        handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in (FOLDER, job, generation):
            handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=handle)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return MISSING
        pieces = _pieces(handle, f".{name}.idx", status.st_size)
        changed_ms = status.st_mtime_ns // 1_000_000
        start = _position(pieces, int(offset))
        stop = status.st_size if end == "-" else _position(pieces, int(end))
        if since != "-":
            start = max(start, _written_by(pieces, int(since), changed_ms, status.st_size))
        if last != "-":
            start = max(start, tail(file, stop, int(last), max(0, stop - TAIL_MOST_BYTES), FRAME_BYTES))
        sys.stdout.buffer.write(b"%d\n" % changed_ms)
        for at, position, length, _ in pieces:
            _send(file, at, position, min(length, max(0, stop - position)), start)
        sys.stdout.buffer.flush()
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        sys.stderr.write(f"{folder}/{name}: {error.strerror}\n")
        return 1
    return 0


Piece = tuple[int, int, int, int]
"""Offset in the stream, position in the file, length, and the time by which what precedes it was written."""


def _pieces(folder: int, name: str, size: int) -> list[Piece]:
    """The pieces that the file is made of. What is wrong in the index is passed over."""
    found = [(0, 0, 0)]
    try:
        index = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return [(0, 0, size, 0)]
    for line in os.pread(index, 4 * INDEX_BYTES, 0).decode("ascii", "replace").split("\n"):
        known = entry(line)
        if known is not None and found[-1][1] <= known[1] <= size and found[-1][0] <= known[0]:
            found.append(known)
    os.close(index)
    ends = [position for _, position, _ in found[1:]] + [size]
    return [(at, position, end - position, ms) for (at, position, ms), end in zip(found, ends, strict=True)]


def _position(pieces: list[Piece], offset: int) -> int:
    """Position of the first byte that is at ``offset`` of the stream, or after it."""
    for at, position, length, _ in pieces:
        if offset < at + length:
            return position + max(0, offset - at)
    return pieces[-1][1] + pieces[-1][2]


def _written_by(pieces: list[Piece], since_ms: int, changed_ms: int, size: int) -> int:
    """How many bytes were surely written by that time."""
    if changed_ms < since_ms:
        return size
    return max((position for _, position, _, ms in pieces if ms <= since_ms), default=0)


def tail(file: int, size: int, lines: int, floor: int, step: int, until: float = math.inf) -> int:
    """Position at which the last ``lines`` lines before ``size`` begin, looked for in steps.

    As far back as ``floor``, and until that time of the monotonic clock: then what was reached.
    """
    position = size
    while lines > 0 and position > floor and time.monotonic() < until:
        start = max(floor, position - step)
        block = os.pread(file, position - start, start)
        cut = len(block)
        while (cut := block.rfind(b"\n", 0, cut)) >= 0:
            if start + cut + 1 == size:
                continue  # ends the last line
            lines -= 1
            if lines == 0:
                return start + cut + 1
        position = start
    return position


def _send(file: int, at: int, position: int, length: int, start: int) -> None:
    """Write the part of a piece that is at ``start`` or after it."""
    skip = min(length, max(0, start - position))
    while skip < length and (data := os.pread(file, min(FRAME_BYTES, length - skip), position + skip)):
        sys.stdout.buffer.write(FRAME.pack(at + skip, len(data)) + data)
        skip += len(data)


if __name__ == "__main__":
    what, *words = json.loads(os.environ[WORDS])
    sys.exit(append(*words) if what == "append" else read(*words))
