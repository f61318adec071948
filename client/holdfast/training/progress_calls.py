"""Reports a training loop's progress to Holdfast: ``progress(step=…)`` and ``with idle(reason):``.

Nothing has to be reported: hangs are found from the outside. A loop that does report gives the detector its strongest
signal, and lets a restart tell how many steps were lost. Outside Holdfast the calls do nothing, and under it they never
raise: a training must not fail over a report of it. A call costs a microsecond and no system call.

This file stands by itself: standard library only, Python 3.7 and later, Linux. ``pip install holdfast`` brings it as
``holdfast.progress``; without that, copy it beside your program as ``holdfast_progress.py``, or install the package
``holdfast-progress``. https://pypi.org/project/holdfast/

For other languages: file ``r<RANK>.progress`` in the folder ``HOLDFAST_PROGRESS_DIR``, 256 bytes, mapped or written in
place. Each field is a value of its own, aligned, in the host's byte order: a reader sees the old or the new one.

| offset | type | what |
|---|---|---|
| 0 | 8 bytes | ``HFPROG1\\n``, written last |
| 8 | int64 | reports so far |
| 16 | int64 | the newest step, -1 before the first |
| 24 | float64 | CLOCK_BOOTTIME seconds of the newest report |
| 32 | int64 | declared pauses that are open |
| 40 | int64 | pid of the writer |
| 48 | int64 | the writer's start time as in /proc/PID/stat; 0: not known |
| 64 | 192 bytes | reason of the newest pause, UTF-8, padded with NUL |
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator

__all__ = ["idle", "progress"]

MAGIC = b"HFPROG1\n"
SIZE = 256
DIRECTORY = "HOLDFAST_PROGRESS_DIR"
"""Environment variable with the folder for a worker's files; unset outside Holdfast."""
REPORT = struct.Struct("=qqd")
PAUSES = struct.Struct("=q")
WRITER = struct.Struct("=qq")
REPORT_AT, PAUSES_AT, WRITER_AT, REASON_AT, REASON_BYTES = 8, 32, 40, 64, 192

_map: mmap.mmap | None = None
_looked = False
_lock = threading.Lock()


def progress(step: int | None = None) -> None:
    """Report that the training loop has reached ``step``, which should grow; without it, only that it moves on."""
    try:
        reports = _map if _looked else _open()
        if reports is not None:
            # Shared with other processes of the rank, and with another copy of this module: the file has the count.
            count, last, _ = REPORT.unpack_from(reports, REPORT_AT)
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            REPORT.pack_into(reports, REPORT_AT, count + 1, last if step is None else int(step), now)
    except Exception:  # noqa: BLE001 - whatever a step is, or has become of the file: the training goes on
        pass


@contextlib.contextmanager
def idle(reason: str = "") -> Iterator[None]:
    """Declare a pause: inside the block no progress is expected and no hang is suspected.

    For waits that are meant, such as for a data set that others are still writing. Blocks may nest.
    """
    declared = _pause(reason)
    try:
        yield
    finally:
        if declared:
            _count_pauses(-1)


def path_for(directory: str, rank: str) -> str:
    """Path of the file that rank ``rank`` of the worker with folder ``directory`` writes."""
    return os.path.join(directory, f"r{rank}.progress")


def _pause(reason: object) -> bool:
    try:
        pauses = _map if _looked else _open()
        if pauses is None:
            return False
        text = str(reason).encode("utf-8", "replace")[:REASON_BYTES]
        pauses[REASON_AT : REASON_AT + REASON_BYTES] = text.ljust(REASON_BYTES, b"\0")
    except Exception:  # noqa: BLE001 - see progress
        return False
    return _count_pauses(1)


def _count_pauses(by: int) -> bool:
    try:
        with _lock:
            if _map is None:
                return False  # in a process that was forked inside the block
            (open_ones,) = PAUSES.unpack_from(_map, PAUSES_AT)
            PAUSES.pack_into(_map, PAUSES_AT, max(0, open_ones + by))
            return True
    except Exception:  # noqa: BLE001 - see progress
        return False


def _open() -> mmap.mmap | None:
    """Map the file of this process' rank, once; None outside Holdfast, and where it can't be had."""
    global _map, _looked
    with _lock:
        if not _looked:
            directory = os.environ.get(DIRECTORY)
            # A folder that is missing or a disk that is full must not end a training.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                if directory:
                    # Parameter servers and evaluators have no RANK, unless a launcher gives them one.
                    rank = os.environ.get("RANK") or os.environ.get("HOLDFAST_RANK", "0")
                    _map = _mapped(path_for(directory, rank))
            _looked = True
        return _map


def _mapped(path: str) -> mmap.mmap:
    """Map the file, made where it is missing. A writer that still lives is joined, what a dead one left is cleared."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o640)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a file")
        # Neither shortened, nor left without blocks: a write to the map would be SIGBUS, for each process that maps it.
        os.posix_fallocate(descriptor, 0, SIZE)
        mapped = mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)
    if mapped[:8] != MAGIC or not _lives(*WRITER.unpack_from(mapped, WRITER_AT)):
        REPORT.pack_into(mapped, REPORT_AT, 0, -1, 0.0)
        PAUSES.pack_into(mapped, PAUSES_AT, 0)
        WRITER.pack_into(mapped, WRITER_AT, os.getpid(), _started(os.getpid()))
        mapped[:8] = MAGIC
    return mapped


def _lives(pid: int, started: int) -> bool:
    return started > 0 and _started(pid) == started


def _started(pid: int) -> int:
    """Start time of a process in ticks since boot; 0 where there is none, or it is only waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def _forked() -> None:
    """A forked helper, such as a data loader's, does not report for its rank; a rank that is forked itself may."""
    global _map, _lock
    _lock = threading.Lock()  # another thread may have held it
    if _map is not None:
        _map = None
    else:
        globals()["_looked"] = False


if hasattr(os, "register_at_fork"):  # not so on Windows, where the calls do nothing
    os.register_at_fork(after_in_child=_forked)
