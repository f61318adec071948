"""Index of the ranks' output: files, times of writing, and how much is kept.

Beside each stream lies its time index (``.idx``): pairs of (milliseconds since the epoch, bytes written by then),
sampled once a second while the stream grows. When a stream exceeds its limit the oldest bytes are cut by punching a
hole at its head: offsets stay what they were, and the writer never notices.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio

from holdfast._daemon import log
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import HostFacts, log_paths, progress_dir

SAMPLE_S = 1.0
FLOOD_SAMPLE_S = 0.05
"""Shortest time between two looks at a stream that would pass its limit within a second."""
INDEX_MAX_BYTES = 64 << 10
CLOCK_MARGIN_MS = 1000
"""A file's own time comes from the kernel's coarse clock, and may be that of another file system's server."""
BLOCK_BYTES = 4096
_INDEX_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_ENTRY = struct.Struct("<QQ")
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def make_directories(facts: HostFacts, key: WorkerId, generation: int) -> None:
    """Have the directories of a generation's output and progress, and the ``latest`` link. Raises ``OSError``."""
    said = progress_dir(facts, key, generation)
    folder = os.path.dirname(said)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    own_directory(said, facts, mode=0o700)
    _link_latest(os.path.dirname(folder), f"g{generation}")


def _link_latest(of_job: str, newest: str) -> None:
    link, fresh = f"{of_job}/latest", f"{of_job}/.latest.new"
    try:
        os.symlink(newest, link)
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(link) == newest:
                return
            os.unlink(fresh)
        os.symlink(newest, fresh)
        os.replace(fresh, link)


def own_directory(path: str | Path, facts: HostFacts, mode: int) -> None:
    """Have a directory that belongs to the worker's user. Never follows a link. Raises ``OSError``."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if facts.user.uid is not None and os.fstat(handle).st_uid != facts.user.uid:
            os.fchown(handle, facts.user.uid, -1 if facts.user.gid is None else facts.user.gid)
    finally:
        os.close(handle)


def punch(path: str, end: int) -> None:
    """Give the blocks before ``end`` back to the disk. Raises ``OSError`` where the file system can't."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _libc.fallocate(handle, _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE, 0, end):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(handle)


@dataclass(slots=True)
class Stream:
    """One file that a rank may still write."""

    path: str
    size: int = 0
    sampled_at: float = 0.0
    due: float = 0.0


class LogSampler:
    """Looks at each stream that is being written, once a second: keeps its time index and its bound."""

    def __init__(self, facts: HostFacts, limit_bytes: int) -> None:
        self._facts = facts
        self._limit_bytes = limit_bytes
        self._streams: dict[WorkerId, list[Stream]] = {}
        self._any = anyio.Event()
        self._cannot_cut = False

    def watch(self, key: WorkerId, generation: int, ranks: Iterable[int]) -> None:
        """Follow this generation's streams from now on, and no longer an older one's."""
        self.drop(key)
        paths = (path for rank in ranks for path in log_paths(self._facts, key, generation, rank))
        self._streams[key] = [Stream(path) for path in paths]
        self._any.set()

    def drop(self, key: WorkerId) -> None:
        """Take a last look at a file that no rank writes any more."""
        for stream in self._streams.pop(key, ()):
            self._look(stream, time.monotonic())

    async def run(self) -> None:
        """Look until cancelled; sleeps while nothing is written."""
        while True:
            if not self._streams:
                self._any = anyio.Event()
                await self._any.wait()
            now = time.monotonic()
            wait_s = SAMPLE_S
            for streams in list(self._streams.values()):
                for stream in streams:
                    if stream.due <= now:
                        self._look(stream, now)
                    wait_s = min(wait_s, stream.due - now)
            await anyio.sleep(max(wait_s, FLOOD_SAMPLE_S))

    def _look(self, stream: Stream, now: float) -> None:
        stream.due = now + SAMPLE_S
        try:
            status = os.stat(stream.path, follow_symlinks=False)
        except OSError:
            return
        if status.st_size == stream.size or not stat.S_ISREG(status.st_mode):
            return
        rate = (status.st_size - stream.size) / max(now - stream.sampled_at, 1e-3) if stream.sampled_at else 0.0
        if rate * SAMPLE_S > self._limit_bytes / 4:
            stream.due = now + max(FLOOD_SAMPLE_S, self._limit_bytes / 4 / rate)
        stream.size, stream.sampled_at = status.st_size, now
        # First: on a full disk it makes the room that the index takes.
        if status.st_blocks * 512 > self._limit_bytes and not self._cannot_cut:
            end = (status.st_size - self._limit_bytes * 3 // 4) // BLOCK_BYTES * BLOCK_BYTES
            try:
                punch(stream.path, end)
            except OSError as error:
                self._cannot_cut = error.errno in (errno.EOPNOTSUPP, errno.ENOSYS)
                log.warning("log.trim_failed", path=stream.path, error=str(error))
        try:
            note(stream.path, status.st_size)
        except OSError as error:
            log.warning("log.index_failed", path=stream.path, error=str(error))


def note(path: str, size: int) -> None:
    """Add to the stream's time index: so much was written by now. Raises ``OSError``."""
    entry = _ENTRY.pack(time.time_ns() // 1_000_000, size)
    handle = os.open(f"{path}.idx", _INDEX_FLAGS | os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if os.fstat(handle).st_size >= INDEX_MAX_BYTES:
            entries = list(_ENTRY.iter_unpack(os.pread(handle, INDEX_MAX_BYTES, 0)))
            os.ftruncate(handle, 0)
            os.write(handle, b"".join(_ENTRY.pack(*kept) for kept in entries[1::2]))
        os.write(handle, entry)
    finally:
        os.close(handle)


def written_by(path: str, when_ms: int) -> int:
    """How many bytes were surely written by that time; what follows may be newer. 0 if unknown."""
    now = sys.maxsize
    with contextlib.suppress(OSError):
        status = os.stat(path, follow_symlinks=False)
        now = status.st_size
        if status.st_mtime_ns // 1_000_000 + CLOCK_MARGIN_MS < when_ms:
            return now
    try:
        handle = os.open(f"{path}.idx", _INDEX_FLAGS | os.O_RDONLY)
        try:
            data = os.pread(handle, 2 * INDEX_MAX_BYTES, 0)
        finally:
            os.close(handle)
    except OSError:
        return 0
    usable = data[: len(data) // _ENTRY.size * _ENTRY.size]
    written = before = 0
    for moment, size in (*_ENTRY.iter_unpack(usable), (sys.maxsize, now)):
        if size < before:
            written = 0  # the rank has cut the file short: all that is there is newer
        if moment <= when_ms:
            written = max(written, size)
        before = size
    return written
