"""Reports a training loop's progress to Holdfast: ``progress(step, total=…)`` and ``with idle(reason):``.

Nothing has to be reported: hangs are found from the outside. A loop that does report gives the detector its strongest
signal, and lets a restart tell how many steps were lost; ``saving``, ``saved``, ``phase`` and ``resumed`` tell where
the time went. Outside Holdfast the calls do nothing, and under it they never raise: a training must not fail over a
report of it. A call costs a microsecond and no system call.

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
| 64 | 128 bytes | reason of the newest pause, UTF-8, padded with NUL; 192 bytes where nothing follows |
| 192 | 2 × int64 | the same as at 40 and 48; what follows counts only then |
| 208 | int64 | steps that the training takes in all, plus 1; 0: not known |
| 216 | int64 | the step of the newest complete checkpoint, plus 1; 0: none |
| 224 | int64 | the step that the training went on from, plus 1; 0: none |
| 232 | int64 | how often it went on from one |
| 240 | int64 | saves that are going on |
| 248 | int64 | evaluations that are going on |
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import struct
import threading
import time
import warnings
from collections.abc import Iterator

__all__ = ["idle", "phase", "progress", "resumed", "saved", "saving"]

MAGIC = b"HFPROG1\n"
SIZE = 256
MOST_STEPS = (1 << 63) - 1
DIRECTORY = "HOLDFAST_PROGRESS_DIR"
"""Environment variable with the folder for a worker's files; unset outside Holdfast."""
REPORT = struct.Struct("=qqd")
WRITER = struct.Struct("=qq")
REPORT_AT, PAUSES_AT, WRITER_AT, REASON_AT, REASON_BYTES = 8, 32, 40, 64, 128
MARKS = struct.Struct("=8q")
NUMBER = struct.Struct("=q")
MARKS_AT, TOTAL_AT, SAVED_AT, RESUMED_AT, RESUMES_AT, SAVES_AT, EVALUATIONS_AT = 192, 208, 216, 224, 232, 240, 248
PHASES = {"train": 0, "save": SAVES_AT, "evaluate": EVALUATIONS_AT}
"""Where the open blocks of each phase are counted; training is what goes on outside of all of them."""

_map: mmap.mmap | None = None
_looked = False
# A handler of a signal reports in the main thread, which may be reporting itself.
_lock = threading.RLock()


def progress(step: int | None = None, total: int | None = None) -> None:
    """Report that the training loop has reached ``step`` of ``total``, which should grow; without it, that it moves on.

    ``total`` is kept once it was given. A number that can't be one (NaN, below 0) makes the step or total unknown.
    """
    try:
        reports = _map if _looked else _open()
        if reports is not None:
            # Shared with other processes of the rank, and with another copy of this module: the file has the count.
            count, last, _ = REPORT.unpack_from(reports, REPORT_AT)
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            REPORT.pack_into(reports, REPORT_AT, count + 1, last if step is None else _whole(step), now)
            if total is not None:
                steps = _whole(total)
                if NUMBER.unpack_from(reports, TOTAL_AT)[0] != steps + 1:
                    _mark(reports, TOTAL_AT, steps)
    except Exception:  # noqa: BLE001 - whatever has become of the file: the training goes on
        pass


def resumed(step: int) -> None:
    """Report that the training goes on from a checkpoint of ``step``: later steps were lost, and are done again."""
    try:
        reports = _map if _looked else _open()
        if reports is not None:
            from_step = _whole(step)
            _mark(reports, RESUMED_AT, from_step)
            count, _, at = REPORT.unpack_from(reports, REPORT_AT)
            REPORT.pack_into(reports, REPORT_AT, count, from_step, at)
            with _lock:
                _count(reports, RESUMES_AT, 1)
    except Exception:  # noqa: BLE001 - see progress
        pass


def saved(step: int | None = None) -> None:
    """Report that the checkpoint of ``step`` is complete, so that no work up to it can be lost; without it, the newest.

    Call it from any thread when an asynchronous save is done.
    """
    try:
        reports = _map if _looked else _open()
        if reports is not None:
            newest = REPORT.unpack_from(reports, REPORT_AT)[1] if step is None else _whole(step)
            _mark(reports, SAVED_AT, newest)
    except Exception:  # noqa: BLE001 - see progress
        pass


@contextlib.contextmanager
def saving(step: int | None = None) -> Iterator[None]:
    """Declare that the block writes the checkpoint of ``step``, by default the newest; ``saved`` if it ends well."""
    if step is None:
        with contextlib.suppress(Exception):
            reports = _map if _looked else _open()
            step = None if reports is None else REPORT.unpack_from(reports, REPORT_AT)[1]
    with phase("save"):
        yield
    saved(step)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Declare what the block does: ``"train"``, ``"evaluate"`` or ``"save"``. Blocks may nest; the innermost counts.

    It tells where the time goes and suspends no hang detection: that is what ``idle`` is for.
    """
    place = _phase(name)
    try:
        yield
    finally:
        if place:
            _count_open(place, -1)


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
            _count_open(PAUSES_AT, -1)


def begin_again() -> None:
    """Have the next report go to the file that the environment names by then: the rank is another generation's."""
    global _map, _looked
    with _lock:
        _map, _looked = None, False


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
    return _count_open(PAUSES_AT, 1)


def _phase(name: object) -> int:
    """Open a block of a phase: where it is counted, 0 where nothing was."""
    try:
        place = PHASES.get(str(name))
        if place is None:
            known = ", ".join(sorted(PHASES))
            warnings.warn(f"holdfast: no phase is called {str(name)[:40]!r}; there are {known}", stacklevel=4)
        elif (_map if _looked else _open()) is not None and place and _count_open(place, 1):
            return place
    except Exception:  # noqa: BLE001 - see progress
        pass
    return 0


def _count_open(place: int, by: int) -> bool:
    try:
        with _lock:
            if _map is None:
                return False  # in a process that was forked inside the block
            _count(_map, place, by)
            return True
    except Exception:  # noqa: BLE001 - see progress
        return False


def _count(reports: mmap.mmap, place: int, by: int) -> None:
    if place > MARKS_AT:
        _begin_marks(reports)
    (open_ones,) = NUMBER.unpack_from(reports, place)
    NUMBER.pack_into(reports, place, max(0, open_ones + by))


def _whole(number: object) -> int:
    """The number as a step; -1 for what can't be one."""
    try:
        step = int(number)  # type: ignore[call-overload]
    except Exception:  # noqa: BLE001 - see progress
        return -1
    return step if 0 <= step < MOST_STEPS else -1


def _mark(reports: mmap.mmap, place: int, step: int) -> None:
    _begin_marks(reports)
    NUMBER.pack_into(reports, place, step + 1)


def _begin_marks(reports: mmap.mmap) -> None:
    """Clear the marks where they aren't this writer's: none were made, or an earlier copy of this file wrote there."""
    writer = reports[WRITER_AT : WRITER_AT + WRITER.size]
    if reports[MARKS_AT:TOTAL_AT] != writer:
        reports[TOTAL_AT:] = bytes(SIZE - TOTAL_AT)
        reports[MARKS_AT:TOTAL_AT] = writer


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
        NUMBER.pack_into(mapped, PAUSES_AT, 0)
        mapped[MARKS_AT:] = bytes(SIZE - MARKS_AT)
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
    _lock = threading.RLock()  # another thread may have held it
    if _map is not None:
        _map = None
    else:
        globals()["_looked"] = False


if hasattr(os, "register_at_fork"):  # not so on Windows, where the calls do nothing
    os.register_at_fork(after_in_child=_forked)
